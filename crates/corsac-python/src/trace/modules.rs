//! The modules, parameters and buffers of the root, by identity.
//!
//! torch.fx goes through all of them for each lookup. Here each table is filled once, in the order
//! of `named_modules` and the like, so that an object reachable by several paths gets the same
//! name. At the start of a trace one walk finds the modules and the constants.

use pyo3::exceptions::PyRecursionError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::state_copy::common_attributes;

/// Deepest nesting of modules: the limit of Python itself.
const MAX_DEPTH: usize = 1000;

/// Classes of PyTorch.
pub(super) struct TorchClasses {
    pub(super) module: Py<PyType>,
    pub(super) parameter: Py<PyType>,
    pub(super) tensor: Py<PyType>,
    pub(super) sequential: Py<PyType>,
    /// Classes of the attributes of modules that count as constants.
    constants: Py<PyTuple>,
    /// Addresses of the names of attributes that every module has, none of which is a constant.
    common: FxHashSet<usize>,
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
            let common = common_attributes(py)?.keys();
            Ok(Self {
                common: common.iter().map(|name| name.as_ptr() as usize).collect(),
                parameter: class(nn.as_any(), "Parameter")?,
                tensor: class(py.import("torch")?.as_any(), "Tensor")?,
                sequential: class(nn.as_any(), "Sequential")?,
                constants: py
                    .import("corsac.fx._symbolic_trace")?
                    .getattr("_constant_attribute_types")?
                    .cast_into::<PyTuple>()?
                    .unbind(),
                named: [modules?, parameters?, buffers?],
                module,
            })
        })
    }
}

/// Names by identity. Objects with names are kept alive, so that an address stands for one object.
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
    /// Names of the objects in `root`, as from `named_modules`, `named_parameters` or
    /// `named_buffers`.
    pub(super) fn names(self, root: &Bound<'_, PyAny>) -> PyResult<Names> {
        let py = root.py();
        let classes = TorchClasses::get(py)?;
        let (method, _) = &classes.named[self as usize];
        let Some(Survey { modules, .. }) = self.survey(root)? else {
            return Self::listed(root, method);
        };
        let table = match self {
            Self::Modules => return Ok(modules),
            Self::Parameters => intern!(py, "_parameters"),
            Self::Buffers => intern!(py, "_buffers"),
        };
        let mut names = Names::default();
        for (module, path) in &modules.entries {
            let attributes = attributes(module.bind(py))?;
            let members = match attributes.get_item(table)?.map(|m| m.cast_into::<PyDict>()) {
                Some(Ok(members)) => members,
                Some(Err(_)) => return Self::listed(root, method),
                None => continue,
            };
            let path = path.bind(py).to_str()?;
            for (name, member) in entries(&members) {
                if !member.is_none() {
                    let name = join(path, name.cast::<PyString>()?.to_str()?);
                    names.add(&member, &PyString::new(py, &name));
                }
            }
        }
        Ok(names)
    }

    /// A survey of `root`, if it finds the same as the method, which may be overridden.
    pub(super) fn survey<'py>(self, root: &Bound<'py, PyAny>) -> PyResult<Option<Survey<'py>>> {
        let (method, original) = &TorchClasses::get(root.py())?.named[self as usize];
        let found = root.get_type().getattr_opt(method)?;
        match found {
            Some(found) if found.is(original) => Survey::of(root),
            Some(_) | None => Ok(None),
        }
    }

    /// Result of a method such as `named_modules`.
    fn listed(root: &Bound<'_, PyAny>, method: &Py<PyString>) -> PyResult<Names> {
        let mut names = Names::default();
        for item in root.call_method0(method)?.try_iter()? {
            let (name, object): (Bound<'_, PyString>, Bound<'_, PyAny>) = item?.extract()?;
            names.add(&object, &name);
        }
        Ok(names)
    }
}

/// The current entries of a dictionary, which may change while they are processed.
pub(super) fn entries<'py>(
    dict: &Bound<'py, PyDict>,
) -> Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    dict.iter().collect()
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

/// Result of a walk through the root: the modules, and the tensors and other constants that they
/// have as plain attributes, with their qualified names.
pub(super) struct Survey<'py> {
    pub(super) modules: Names,
    pub(super) constants: Bound<'py, PyDict>,
    /// Whether some module is reachable by several paths.
    shared: bool,
    classes: &'py TorchClasses,
    /// By class: whether its instances are constants.
    verdicts: FxHashMap<usize, bool>,
}

impl<'py> Survey<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        Ok(Self {
            modules: Names::default(),
            constants: PyDict::new(py),
            shared: false,
            classes: TorchClasses::get(py)?,
            verdicts: FxHashMap::default(),
        })
    }

    /// Walks through `root`. None where submodules are not kept in dictionaries, as in a scripted
    /// module, so that only its methods return them.
    pub(super) fn of(root: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let mut survey = Self::new(root.py())?;
        let whole = survey.walk(root, &mut String::new(), 0)?;
        if !whole {
            return Ok(None);
        }
        if survey.shared && !survey.constants.is_empty() {
            // Of several names of a constant the last one counts.
            survey.constants.clear();
            survey.find_constants(root, "", 0)?;
        }
        Ok(Some(survey))
    }

    /// The constants alone, found by the methods of modules.
    pub(super) fn constants_of(root: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let mut survey = Self::new(root.py())?;
        survey.find_constants(root, "", 0)?;
        Ok(survey.constants)
    }

    /// Adds a module and its contents. Returns false if its submodules are not in a dictionary.
    fn walk(
        &mut self,
        module: &Bound<'py, PyAny>,
        path: &mut String,
        depth: usize,
    ) -> PyResult<bool> {
        check_depth(depth)?;
        let py = module.py();
        if !self.modules.add(module, &PyString::new(py, path)) {
            self.shared = true;
            return Ok(true);
        }
        let attributes = attributes(module)?;
        self.note_constants(&attributes, path)?;
        let children = match attributes.get_item(intern!(py, "_modules"))? {
            Some(children) => match children.cast_into::<PyDict>() {
                Ok(children) => children,
                Err(_) => return Ok(false),
            },
            None => return Ok(true),
        };
        let own = path.len();
        for (name, child) in entries(&children) {
            if child.is_none() {
                continue;
            }
            if own > 0 {
                path.push('.');
            }
            path.push_str(name.cast::<PyString>()?.to_str()?);
            let whole = self.walk(&child, path, depth + 1)?;
            path.truncate(own);
            if !whole {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn note_constants(&mut self, attributes: &Bound<'py, PyDict>, path: &str) -> PyResult<()> {
        // Names first: most attributes are those of every module, and to look at their values takes
        // longer than all else here where they are not in the processor's caches.
        for name in attributes.keys() {
            if self.classes.common.contains(&(name.as_ptr() as usize)) {
                continue;
            }
            // The check of a class may run any code.
            let Some(value) = attributes.get_item(&name)? else {
                continue;
            };
            if self.is_constant(&value)? {
                let name = join(path, name.cast::<PyString>()?.to_str()?);
                self.constants.set_item(value, name)?;
            }
        }
        Ok(())
    }

    fn is_constant(&mut self, value: &Bound<'py, PyAny>) -> PyResult<bool> {
        let class = value.get_type_ptr() as usize;
        if let Some(&verdict) = self.verdicts.get(&class) {
            return Ok(verdict);
        }
        let verdict = value.is_instance(self.classes.constants.bind(value.py()))?;
        self.verdicts.insert(class, verdict);
        Ok(verdict)
    }

    /// Visits a module once for each path to it, as torch.fx does.
    fn find_constants(
        &mut self,
        module: &Bound<'py, PyAny>,
        path: &str,
        depth: usize,
    ) -> PyResult<()> {
        check_depth(depth)?;
        self.note_constants(&attributes(module)?, path)?;
        let children = module.call_method0(intern!(module.py(), "named_children"))?;
        for child in children.try_iter()? {
            let (name, child): (Bound<'py, PyString>, Bound<'py, PyAny>) = child?.extract()?;
            self.find_constants(&child, &join(path, name.to_str()?), depth + 1)?;
        }
        Ok(())
    }
}
