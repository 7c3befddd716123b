//! Facts from Python about the modules and attributes that a graph names, for the rules.

use corsac_ir::{ExternalId, Op};
use corsac_ops::shape::{ModuleFacts, Storage, TypeHost, Value};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use rustc_hash::{FxHashMap, FxHashSet};

use super::value::{TypeReader, in_storage};
use crate::graph::PyGraph;

/// A parameter or buffer.
#[derive(Clone)]
pub(crate) struct Weight {
    /// Qualified name, the first that it was found under.
    pub(crate) name: String,
    /// Number of elements.
    pub(crate) numel: i64,
    /// Size in bytes.
    pub(crate) bytes: i64,
    /// Whether it is a parameter; a buffer otherwise.
    pub(crate) parameter: bool,
    /// Whether it is trained.
    pub(crate) trainable: bool,
}

/// Facts from Python, collected before types are propagated: rules call no Python.
#[derive(Default)]
pub(crate) struct TypeFacts {
    modules: FxHashMap<String, ModuleFacts>,
    attributes: FxHashMap<String, Value>,
    constants: FxHashMap<ExternalId, Value>,
    /// Parameters and buffers, by storage.
    pub(crate) weights: Vec<Weight>,
    /// The tensors themselves, by storage.
    pub(crate) tensors: Vec<Py<PyAny>>,
    by_identity: FxHashMap<usize, Storage>,
    /// Indices of the tensors that this graph uses.
    used: FxHashSet<usize>,
}

impl TypeHost for TypeFacts {
    fn module(&self, path: &str) -> Option<&ModuleFacts> {
        self.modules.get(path)
    }

    fn attribute(&self, path: &str) -> Option<Value> {
        self.attributes.get(path).cloned()
    }

    fn constant(&self, id: ExternalId) -> Option<Value> {
        self.constants.get(&id).cloned()
    }

    fn weight_count(&self) -> usize {
        self.weights.len()
    }
}

impl TypeFacts {
    /// Adds the facts about modules that the graph does not call yet.
    pub(crate) fn learn(&mut self, graph: &Bound<'_, PyGraph>, paths: &[String]) -> PyResult<()> {
        let py = graph.py();
        let owner = graph.getattr(intern!(py, "owning_module"))?;
        if owner.is_none() {
            return Ok(());
        }
        let (reader, hooked) = (TypeReader::new(py)?, global_hooks(py)?);
        for path in paths {
            if !self.modules.contains_key(path)
                && let Some(module) = resolve(&owner, path)?
                && module.hasattr(intern!(py, "training"))?
            {
                let known = self.describe(&reader, &module, path, hooked)?;
                self.modules.insert(path.clone(), known);
            }
        }
        Ok(())
    }

    /// Collects the facts about everything that `graph` names.
    pub(crate) fn of_graph(graph: &Bound<'_, PyGraph>) -> PyResult<Self> {
        Self::default().with_graph(graph)
    }

    /// Collects the facts about everything that `graph` names. Tensors that are known already keep
    /// their storage, and no new one gets the storage of another.
    pub(crate) fn of_graph_after(&self, graph: &Bound<'_, PyGraph>) -> PyResult<Self> {
        let py = graph.py();
        let known = Self {
            weights: self.weights.clone(),
            tensors: self.tensors.iter().map(|own| own.clone_ref(py)).collect(),
            by_identity: self.by_identity.clone(),
            ..Self::default()
        };
        known.with_graph(graph)
    }

    fn with_graph(self, graph: &Bound<'_, PyGraph>) -> PyResult<Self> {
        let py = graph.py();
        let reader = TypeReader::new(py)?;
        let (modules, attributes, constants) = {
            let borrowed = graph.try_borrow()?;
            let ir = borrowed.ir();
            let names = |op| {
                let nodes = ir.find_nodes(op, None).into_iter();
                let names = nodes.map(|node| ir.node(node).target_name().to_owned());
                let mut seen = FxHashSet::default();
                names
                    .filter(|name| seen.insert(name.clone()))
                    .collect::<Vec<_>>()
            };
            let constants = borrowed.host().externals();
            let constants: Vec<_> = constants.map(|(id, o)| (id, o.clone_ref(py))).collect();
            (names(Op::CallModule), names(Op::GetAttr), constants)
        };
        let mut facts = self;
        let owner = graph.getattr(intern!(py, "owning_module"))?;
        if !owner.is_none() {
            let hooked = global_hooks(py)?;
            for path in modules {
                if let Some(module) = resolve(&owner, &path)? {
                    let known = facts.describe(&reader, &module, &path, hooked)?;
                    facts.modules.insert(path, known);
                }
            }
            for path in attributes {
                if let Some(object) = resolve(&owner, &path)? {
                    let value = facts.weight(&reader, &object, &path, false)?;
                    facts.attributes.insert(path, value);
                }
            }
        }
        for (id, object) in constants {
            let object = object.bind(py);
            if reader.is_tensor(object)? {
                let value = facts.weight(&reader, object, "", false)?;
                facts.constants.insert(id, value);
            }
        }
        Ok(facts)
    }

    /// The tensors that this graph uses.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Py<PyAny>> {
        self.used.iter().map(|&number| &self.tensors[number])
    }

    /// Value of an object outside the graph. The same tensor always gets the same storage.
    fn weight<'py>(
        &mut self,
        reader: &TypeReader<'py>,
        object: &Bound<'py, PyAny>,
        name: &str,
        buffer: bool,
    ) -> PyResult<Value> {
        let value = reader.value(object)?;
        let Value::Tensor(tensor) = &value else {
            return Ok(value);
        };
        let (weights, tensors) = (&mut self.weights, &mut self.tensors);
        let entry = self.by_identity.entry(object.as_ptr() as usize);
        let storage = *entry.or_insert_with(|| {
            tensors.push(object.clone().unbind());
            weights.push(Weight {
                name: name.to_owned(),
                numel: tensor.numel().known().unwrap_or(0),
                bytes: tensor.size_bytes().known().unwrap_or(0),
                parameter: !buffer,
                trainable: tensor.requires_grad,
            });
            Storage::from_index(weights.len() - 1)
        });
        self.used.insert(storage.index());
        Ok(in_storage(value, storage))
    }

    fn describe<'py>(
        &mut self,
        reader: &TypeReader<'py>,
        module: &Bound<'py, PyAny>,
        path: &str,
        hooked: bool,
    ) -> PyResult<ModuleFacts> {
        let py = module.py();
        let class = module.get_type();
        let mut facts = ModuleFacts {
            class: format!("{}.{}", class.module()?, class.qualname()?),
            training: module.getattr(intern!(py, "training"))?.is_truthy()?,
            hooked,
            attributes: Vec::new(),
        };
        let own = module.getattr(intern!(py, "__dict__"))?;
        let own = own.cast::<PyDict>()?;
        for entry in own.items() {
            let (key, value): (Bound<'py, PyString>, Bound<'py, PyAny>) = entry.extract()?;
            let name = key.to_str()?;
            match name {
                "forward" => facts.hooked = true,
                "_forward_hooks"
                | "_forward_pre_hooks"
                | "_backward_hooks"
                | "_backward_pre_hooks" => facts.hooked |= value.is_truthy()?,
                "_parameters" | "_buffers" => {
                    let buffer = name == "_buffers";
                    for entry in value.cast::<PyDict>()?.items() {
                        let (name, tensor): (String, Bound<'py, PyAny>) = entry.extract()?;
                        let full = format!("{path}.{name}");
                        let value = self.weight(reader, &tensor, &full, buffer)?;
                        facts.attributes.push((name.into(), value));
                    }
                }
                "_modules" if facts.class.ends_with(".MultiheadAttention") => {
                    self.describe_projection(reader, &value, path, &mut facts)?;
                }
                _ if name.starts_with('_') => {}
                _ => match reader.value(&value)? {
                    Value::Object => {}
                    value => facts.attributes.push((name.into(), value)),
                },
            }
        }
        Ok(facts)
    }

    /// The weights of the linear layer in a `MultiheadAttention`, which it uses without calling it.
    fn describe_projection<'py>(
        &mut self,
        reader: &TypeReader<'py>,
        children: &Bound<'py, PyAny>,
        path: &str,
        facts: &mut ModuleFacts,
    ) -> PyResult<()> {
        let Ok(layer) = children.get_item(intern!(children.py(), "out_proj")) else {
            return Ok(());
        };
        let parameters = layer.getattr(intern!(children.py(), "_parameters"))?;
        for entry in parameters.cast::<PyDict>()?.items() {
            let (name, tensor): (String, Bound<'py, PyAny>) = entry.extract()?;
            let own = format!("out_proj.{name}");
            let value = self.weight(reader, &tensor, &format!("{path}.{own}"), false)?;
            facts.attributes.push((own.into(), value));
        }
        Ok(())
    }
}

/// Whether any hook is set for all modules.
fn global_hooks(py: Python<'_>) -> PyResult<bool> {
    let module = py.import(intern!(py, "torch.nn.modules.module"))?;
    for name in [
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    ] {
        if module.getattr(name)?.is_truthy()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the module that `graph` belongs to has an attribute with this qualified name.
pub(crate) fn has_attribute(graph: &Bound<'_, PyGraph>, path: &str) -> PyResult<bool> {
    let owner = graph.getattr(intern!(graph.py(), "owning_module"))?;
    Ok(!owner.is_none() && resolve(&owner, path)?.is_some())
}

/// The attribute of `root` with this qualified name, if there is one.
fn resolve<'py>(root: &Bound<'py, PyAny>, path: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut object = root.clone();
    for name in path.split('.') {
        let modules = object.getattr_opt(intern!(root.py(), "_modules"))?;
        let child = modules
            .as_ref()
            .and_then(|modules| modules.cast::<PyDict>().ok())
            .map(|modules| modules.get_item(name))
            .transpose()?
            .flatten();
        let next = match child {
            Some(child) => Some(child),
            None => object.getattr_opt(name)?,
        };
        match next {
            Some(next) => object = next,
            None => return Ok(None),
        }
    }
    Ok(Some(object))
}
