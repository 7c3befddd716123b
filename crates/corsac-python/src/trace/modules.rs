//! The modules, parameters and buffers of the root, by identity.
//!
//! torch.fx goes through all of them each time it looks for one. Here each table is filled once,
//! in the order in which `named_modules` and its like go, so that a thing reachable in several
//! ways gets the same name.

use pyo3::exceptions::PyRecursionError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

/// How deep modules may nest: what Python itself can go through.
const MAX_DEPTH: usize = 1000;

/// Classes of PyTorch.
pub(super) struct TorchClasses {
    pub(super) module: Py<PyType>,
    pub(super) parameter: Py<PyType>,
    pub(super) tensor: Py<PyType>,
    pub(super) sequential: Py<PyType>,
    /// What an attribute of a module may be to count as a constant.
    constants: Py<PyTuple>,
    named: [(Py<PyString>, Py<PyAny>); 3],
}

impl TorchClasses {
    pub(super) fn get(py: Python<'_>) -> PyResult<&Self> {
        static CLASSES: PyOnceLock<TorchClasses> = PyOnceLock::new();
        CLASSES.get_or_try_init(py, || {
            let nn = py.import("torch.nn")?;
            let class = |module: &Bound<'_, PyAny>, name: &str| -> PyResult<Py<PyType>> {
                Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
            };
            let module = class(nn.as_any(), "Module")?;
            let named = ["named_modules", "named_parameters", "named_buffers"].map(|name| {
                let method = module.bind(py).getattr(name)?.unbind();
                Ok::<_, PyErr>((PyString::intern(py, name).unbind(), method))
            });
            let [modules, parameters, buffers] = named;
            Ok(Self {
                parameter: class(nn.as_any(), "Parameter")?,
                tensor: class(py.import("torch")?.as_any(), "Tensor")?,
                sequential: class(nn.as_any(), "Sequential")?,
                constants: py
                    .import("torch.fx._symbolic_trace")?
                    .getattr("_constant_attribute_types")?
                    .cast_into::<PyTuple>()?
                    .unbind(),
                named: [modules?, parameters?, buffers?],
                module,
            })
        })
    }
}

/// Names by identity. Whatever has a name is kept alive, so that an address stands for one object.
#[derive(Default)]
pub(super) struct Names {
    entries: Vec<(Py<PyAny>, Py<PyString>)>,
    by_address: FxHashMap<usize, usize>,
}

impl Names {
    fn add(&mut self, object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> bool {
        let address = object.as_ptr() as usize;
        if self.by_address.contains_key(&address) {
            return false;
        }
        self.by_address.insert(address, self.entries.len());
        self.entries
            .push((object.clone().unbind(), name.clone().unbind()));
        true
    }

    /// The name of an object.
    pub(super) fn get<'py>(&self, object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyString>> {
        let index = *self.by_address.get(&(object.as_ptr() as usize))?;
        Some(self.entries[index].1.bind(object.py()).clone())
    }

    /// Objects and names, in order.
    pub(super) fn entries(&self) -> &[(Py<PyAny>, Py<PyString>)] {
        &self.entries
    }
}

/// A table that can be filled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Modules,
    Parameters,
    Buffers,
}

impl Kind {
    /// Goes through `root`, as `named_modules`, `named_parameters` or `named_buffers` does.
    pub(super) fn names(self, root: &Bound<'_, PyAny>) -> PyResult<Names> {
        let py = root.py();
        let classes = TorchClasses::get(py)?;
        let (method, original) = &classes.named[self as usize];
        let mut names = Names::default();
        let usual = root
            .get_type()
            .getattr(method)
            .is_ok_and(|found| found.is(original))
            && plain_tree(root)?;
        if !usual {
            for item in root.call_method0(method)?.try_iter()? {
                let (name, object): (Bound<'_, PyString>, Bound<'_, PyAny>) = item?.extract()?;
                names.add(&object, &name);
            }
            return Ok(names);
        }
        let mut modules = Names::default();
        add_modules(&mut modules, root, "", 0)?;
        if self == Self::Modules {
            return Ok(modules);
        }
        let table = match self {
            Self::Parameters => intern!(py, "_parameters"),
            Self::Modules | Self::Buffers => intern!(py, "_buffers"),
        };
        for (module, path) in &modules.entries {
            let attributes = attributes(module.bind(py))?;
            let Some(members) = attributes.get_item(table)? else {
                continue;
            };
            let path = path.bind(py).to_str()?;
            for (name, member) in members.cast::<PyDict>()?.iter() {
                if !member.is_none() {
                    let name = join(path, name.cast::<PyString>()?.to_str()?);
                    names.add(&member, &PyString::new(py, &name));
                }
            }
        }
        Ok(names)
    }
}

/// Whether the members of every module are in dictionaries: those of a scripted module are not.
fn plain_tree(root: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = root.py();
    let mut waiting = vec![root.clone()];
    let mut seen = FxHashSet::default();
    while let Some(module) = waiting.pop() {
        if !seen.insert(module.as_ptr() as usize) {
            continue;
        }
        let Ok(attributes) = attributes(&module) else {
            return Ok(false);
        };
        for table in [
            intern!(py, "_modules"),
            intern!(py, "_parameters"),
            intern!(py, "_buffers"),
        ] {
            match attributes.get_item(table)? {
                Some(table) if table.is_instance_of::<PyDict>() => {}
                Some(_) | None => return Ok(false),
            }
        }
        if let Some(children) = attributes.get_item(intern!(py, "_modules"))? {
            waiting.extend(
                children
                    .cast::<PyDict>()?
                    .values()
                    .iter()
                    .filter(|child| !child.is_none()),
            );
        }
    }
    Ok(true)
}

/// The dictionary of an object's own attributes.
pub(super) fn attributes<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let attributes = object.getattr(intern!(object.py(), "__dict__"))?;
    Ok(attributes.cast_into::<PyDict>()?)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn check_depth(depth: usize) -> PyResult<()> {
    if depth > MAX_DEPTH {
        let message = format!("modules nest more than {MAX_DEPTH} deep, or contain themselves");
        return Err(PyRecursionError::new_err(message));
    }
    Ok(())
}

fn add_modules(
    names: &mut Names,
    module: &Bound<'_, PyAny>,
    path: &str,
    depth: usize,
) -> PyResult<()> {
    check_depth(depth)?;
    let py = module.py();
    if !names.add(module, &PyString::new(py, path)) {
        return Ok(());
    }
    let Some(children) = attributes(module)?.get_item(intern!(py, "_modules"))? else {
        return Ok(());
    };
    for (name, child) in children.cast::<PyDict>()?.iter() {
        if !child.is_none() {
            let path = join(path, name.cast::<PyString>()?.to_str()?);
            add_modules(names, &child, &path, depth + 1)?;
        }
    }
    Ok(())
}

/// The tensors and other constants that modules have as plain attributes, with their qualified
/// names; of several names the last one counts, as in torch.fx.
pub(super) fn constants<'py>(root: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = root.py();
    let found = PyDict::new(py);
    let mut search = ConstantSearch {
        classes: TorchClasses::get(py)?,
        verdicts: FxHashMap::default(),
        found: found.clone(),
    };
    search.look(root, "", 0)?;
    Ok(found)
}

struct ConstantSearch<'py> {
    classes: &'py TorchClasses,
    /// By class: whether its instances are constants.
    verdicts: FxHashMap<usize, bool>,
    found: Bound<'py, PyDict>,
}

impl<'py> ConstantSearch<'py> {
    fn is_constant(&mut self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        let class = value.get_type_ptr() as usize;
        if let Some(&verdict) = self.verdicts.get(&class) {
            return Ok(verdict);
        }
        let verdict = value.is_instance(self.classes.constants.bind(value.py()))?;
        self.verdicts.insert(class, verdict);
        Ok(verdict)
    }

    fn look(&mut self, module: &Bound<'py, PyAny>, path: &str, depth: usize) -> PyResult<()> {
        check_depth(depth)?;
        let py = module.py();
        let attributes = attributes(module)?;
        for (name, value) in attributes.iter() {
            if self.is_constant(&value)? {
                let name = join(path, name.cast::<PyString>()?.to_str()?);
                self.found.set_item(value, name)?;
            }
        }
        let children = match attributes.get_item(intern!(py, "_modules"))? {
            Some(children) => match children.cast_into::<PyDict>() {
                Ok(children) => children,
                Err(_) => module
                    .call_method0(intern!(py, "named_children"))
                    .and_then(|items| py.get_type::<PyDict>().call1((items,)))?
                    .cast_into::<PyDict>()?,
            },
            None => return Ok(()),
        };
        let mut seen = FxHashSet::default();
        for (name, child) in children.iter() {
            if !child.is_none() && seen.insert(child.as_ptr() as usize) {
                let path = join(path, name.cast::<PyString>()?.to_str()?);
                self.look(&child, &path, depth + 1)?;
            }
        }
        Ok(())
    }
}
