//! Facts from Python about the modules and functions of a graph, for the passes.

use corsac_ir::{EntityId, FunctionId, Graph, NodeId, Op};
use corsac_ops::schema::Schema;
use corsac_ops::{FunctionInfo, Host, ModuleInfo};
use corsac_passes::{TensorFact, TensorFacts};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PySet};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::pass_error;
use crate::graph::PyGraph;
use crate::runtime::{TorchValue, TorchValues};

/// Facts from Python, collected before a pass runs: a pass calls no Python.
#[derive(Default)]
pub(crate) struct Facts {
    modules: FxHashMap<String, ModuleInfo>,
    functions: FxHashMap<FunctionId, FunctionInfo>,
    tensors: FxHashSet<String>,
}

/// A description from `corsac.fx._effects.describe_modules`: the fields of [`ModuleInfo`], in
/// order.
type Description = (
    String,
    u64,
    bool,
    bool,
    bool,
    Option<bool>,
    f64,
    bool,
    f64,
    bool,
    usize,
    bool,
);

impl Facts {
    /// Collects the facts about everything that `graph` calls.
    pub(crate) fn of_graph(graph: &Bound<'_, PyGraph>) -> PyResult<Self> {
        let (paths, attributes, functions) = {
            let borrowed = graph.try_borrow()?;
            let ir = borrowed.ir();
            let mut paths = FxHashSet::default();
            for op in [Op::CallModule, Op::GetAttr] {
                for node in ir.find_nodes(op, None) {
                    let mut path = ir.node(node).target_name();
                    if op == Op::GetAttr {
                        path = parent(path);
                    }
                    while !path.is_empty() && paths.insert(path) {
                        path = parent(path);
                    }
                }
            }
            let paths: Vec<String> = paths.into_iter().map(str::to_owned).collect();
            let attributes = ir.find_nodes(Op::GetAttr, None).into_iter();
            let attributes: FxHashSet<String> = attributes
                .map(|node| ir.node(node).target_name().to_owned())
                .collect();
            let functions = (0..ir.functions().len()).map(FunctionId::from_index);
            (paths, attributes, functions.collect::<Vec<_>>())
        };
        Ok(Self {
            modules: modules(graph, paths)?,
            functions: describe_functions(graph, &functions)?,
            tensors: tensors(graph, attributes)?,
        })
    }

    /// Adds the facts about modules that the graph does not call yet.
    pub(crate) fn learn(&mut self, graph: &Bound<'_, PyGraph>, paths: &[String]) -> PyResult<()> {
        let mut new = FxHashSet::default();
        for mut path in paths.iter().map(String::as_str) {
            while !path.is_empty() && !self.modules.contains_key(path) && new.insert(path) {
                path = parent(path);
            }
        }
        let new = new.into_iter().map(str::to_owned).collect();
        self.modules.extend(modules(graph, new)?);
        Ok(())
    }
}

/// `a.b` for `a.b.c`; nothing for `a`.
fn parent(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(parent, _)| parent)
}

impl Host for Facts {
    fn module(&self, path: &str) -> Option<ModuleInfo> {
        self.modules.get(path).cloned()
    }

    fn is_tensor(&self, path: &str) -> bool {
        self.tensors.contains(path)
    }

    fn function(&self, _graph: &Graph, function: FunctionId) -> FunctionInfo {
        let known = self.functions.get(&function);
        known.cloned().unwrap_or(FunctionInfo::ByName)
    }
}

/// The attributes that are tensors.
fn tensors(
    graph: &Bound<'_, PyGraph>,
    attributes: FxHashSet<String>,
) -> PyResult<FxHashSet<String>> {
    let py = graph.py();
    let owner = graph.getattr(intern!(py, "owning_module"))?;
    if attributes.is_empty() || owner.is_none() {
        return Ok(FxHashSet::default());
    }
    effects(py)?
        .getattr(intern!(py, "tensor_attributes"))?
        .call1((owner, attributes))?
        .extract()
}

/// Descriptions of the modules at these paths.
fn modules(
    graph: &Bound<'_, PyGraph>,
    paths: Vec<String>,
) -> PyResult<FxHashMap<String, ModuleInfo>> {
    let py = graph.py();
    let owner = graph.getattr(intern!(py, "owning_module"))?;
    if paths.is_empty() || owner.is_none() {
        return Ok(FxHashMap::default());
    }
    let described = effects(py)?
        .getattr(intern!(py, "describe_modules"))?
        .call1((owner, &paths))?;
    let mut modules = FxHashMap::default();
    for (path, description) in paths.into_iter().zip(described.cast::<PyList>()?.iter()) {
        if description.is_none() {
            continue;
        }
        let (
            class,
            identity,
            training,
            inplace,
            hooks,
            impure,
            dropout,
            tracks_statistics,
            eps,
            renormalises,
            groups,
            zero_padded,
        ): Description = description.extract()?;
        let info = ModuleInfo {
            class,
            identity,
            training,
            inplace,
            hooks,
            impure,
            dropout,
            tracks_statistics,
            eps,
            renormalises,
            groups,
            zero_padded,
        };
        modules.insert(path, info);
    }
    Ok(modules)
}

/// Facts about those of the functions that need more than their names.
fn describe_functions(
    graph: &Bound<'_, PyGraph>,
    functions: &[FunctionId],
) -> PyResult<FxHashMap<FunctionId, FunctionInfo>> {
    let py = graph.py();
    let named: Vec<(FunctionId, String, Py<PyAny>)> = {
        let borrowed = graph.try_borrow()?;
        let (ir, host) = (borrowed.ir(), borrowed.host());
        let object = |&id| {
            let object = host.function_object(id)?.clone_ref(py);
            Some((id, ir.function_name(id).to_owned(), object))
        };
        functions.iter().filter_map(object).collect()
    };
    let effects = effects(py)?;
    let side_effects = effects.getattr(intern!(py, "side_effects"))?.call0()?;
    let side_effects = side_effects.cast::<PySet>()?;
    let pure = effects.getattr(intern!(py, "pure_functions"))?;
    let mut found = FxHashMap::default();
    for (id, name, object) in named {
        let object = object.bind(py);
        // A function that cannot be hashed cannot have been registered.
        let registered = |set: &Bound<'_, PyAny>| set.contains(object).unwrap_or(false);
        if registered(side_effects.as_any()) {
            found.insert(id, FunctionInfo::SideEffect);
        } else if registered(&pure) {
            found.insert(id, FunctionInfo::Pure);
        } else if name.starts_with("torch.ops.") {
            let answer = effects
                .getattr(intern!(py, "describe_operator"))?
                .call1((object,))?;
            let (effect, random, text): (bool, bool, Option<String>) = answer.extract()?;
            let schema = text.as_deref().and_then(Schema::parse);
            if effect {
                found.insert(id, FunctionInfo::SideEffect);
            } else if !corsac_ops::is_known_operator(&name)
                && let Some(schema) = schema
            {
                let schema = Schema { random, ..schema };
                found.insert(id, FunctionInfo::Operator(schema));
            }
        }
    }
    Ok(found)
}

/// Shapes, dtypes and strides from the metadata of nodes: from `meta["tensor_meta"]` as shape
/// propagation writes it, else from `meta["val"]`.
pub(crate) fn tensor_facts(graph: &Bound<'_, PyGraph>) -> PyResult<TensorFacts> {
    let py = graph.py();
    let metas: Vec<(NodeId, Py<PyAny>)> = {
        let borrowed = graph.try_borrow()?;
        let metas = borrowed.host().metas();
        metas.map(|(id, meta)| (id, meta.clone_ref(py))).collect()
    };
    let torch = TorchValues::get(py)?;
    let mut facts = TensorFacts::default();
    for (node, meta) in metas {
        let Ok(meta) = meta.bind(py).cast::<PyDict>() else {
            continue;
        };
        let found = match meta.get_item(intern!(py, "tensor_meta"))? {
            Some(found) => Some(found),
            None => meta.get_item(intern!(py, "val"))?,
        };
        let Some(found) = found else { continue };
        // A description of several tensors has neither.
        let shape = found.getattr_opt(intern!(py, "shape"))?;
        let dtype = found.getattr_opt(intern!(py, "dtype"))?;
        let dtype = dtype.and_then(|dtype| match torch.of(&dtype) {
            Some(TorchValue::DType(dtype)) => Some(dtype),
            Some(_) | None => None,
        });
        // Sizes that are symbols are unknown.
        let integers = |found: Bound<'_, PyAny>| {
            let sizes = found.try_iter().ok()?.map(|size| {
                let size = size?;
                size.cast_exact::<PyInt>()?.extract::<i64>()
            });
            sizes.collect::<PyResult<Vec<i64>>>().ok()
        };
        // A tensor has a method where its description has a value.
        let strides = found.getattr_opt(intern!(py, "stride"))?;
        let strides = match strides {
            Some(method) if method.is_callable() => method.call0().ok(),
            other => other,
        };
        facts.set(
            node,
            TensorFact {
                shape: shape.and_then(integers),
                dtype,
                strides: strides.and_then(integers),
            },
        );
    }
    let is_reshaped = TensorFacts::may_be_reshaped(graph.try_borrow()?.ir());
    if is_reshaped {
        // Metadata describes a value when it was made.
        let host = Facts::of_graph(graph)?;
        let borrowed = graph.try_borrow()?;
        facts
            .forget_reshaped(borrowed.ir(), &host)
            .map_err(pass_error)?;
    }
    Ok(facts)
}

/// The module `corsac.fx._effects`.
pub(crate) fn effects(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "corsac.fx._effects"))
}
