//! Copying submodules from one module hierarchy into another, by qualified name.
//!
//! Graph modules nearly always take submodules of plain modules from their root. Such a name is
//! copied here; any other is left to Python (`corsac.fx._module_attributes`).

use std::cell::OnceCell;
use std::rc::Rc;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyString, PyType};
use rustc_hash::FxHashMap;

/// Parts of `torch.nn` that are needed.
struct Modules {
    class: Py<PyType>,
    set_attribute: Py<PyAny>,
    /// Called when a submodule is registered.
    hooks: Py<PyDict>,
    /// The attributes of an empty module.
    empty: Py<PyDict>,
}

impl Modules {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static MODULES: PyOnceLock<Modules> = PyOnceLock::new();
        MODULES.get_or_try_init(py, || {
            let home = py.import("torch.nn.modules.module")?;
            let class = home.getattr("Module")?.cast_into::<PyType>()?;
            let hooks = home.getattr("_global_module_registration_hooks")?;
            let empty = class.call0()?.getattr("__dict__")?;
            Ok(Self {
                set_attribute: class.getattr("__setattr__")?.unbind(),
                hooks: hooks.cast_into::<PyDict>()?.unbind(),
                empty: empty.cast_into::<PyDict>()?.unbind(),
                class: class.unbind(),
            })
        })
    }

    /// `torch.nn.Module()`, whose constructor takes longer than all else here.
    fn make<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = self.class.bind(py);
        let module = class.call_method1(intern!(py, "__new__"), (class,))?;
        let state = own_attributes(&module)?;
        for (name, value) in self.empty.bind(py).iter().collect::<Vec<_>>() {
            if value.is_none() || value.is_instance_of::<PyBool>() {
                state.set_item(name, value)?;
            } else {
                state.set_item(name, value.get_type().call0()?)?;
            }
        }
        Ok(module)
    }
}

/// The attributes of an empty `torch.nn.Module`, which every module has. They are never dropped.
pub(crate) fn common_attributes(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    Ok(Modules::get(py)?.empty.bind(py))
}

fn own_attributes<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let attributes = object.getattr(intern!(object.py(), "__dict__"))?;
    Ok(attributes.cast_into::<PyDict>()?)
}

/// Attributes of a class, and its way of setting them on instances.
struct Class<'py> {
    /// Whether that is the one of `torch.nn.Module`.
    plain: bool,
    /// The attributes of the class and of its bases.
    attributes: Vec<Bound<'py, PyAny>>,
}

impl<'py> Class<'py> {
    fn of(class: &Bound<'py, PyType>, modules: &Modules) -> PyResult<Self> {
        let py = class.py();
        let set_attribute = class.getattr(intern!(py, "__setattr__"))?;
        let attributes = |class: Bound<'py, PyAny>| class.getattr(intern!(py, "__dict__"));
        Ok(Self {
            plain: set_attribute.is(&modules.set_attribute),
            attributes: class
                .mro()
                .iter()
                .map(attributes)
                .collect::<PyResult<_>>()?,
        })
    }

    /// Whether it has an attribute. Asking Python for a missing one makes an exception, with a
    /// text, each time.
    fn has(&self, name: &Bound<'py, PyString>) -> PyResult<bool> {
        for attributes in &self.attributes {
            if attributes.contains(name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A module, as its parts.
struct Owner<'py> {
    object: Bound<'py, PyAny>,
    attributes: Bound<'py, PyDict>,
    modules: Bound<'py, PyDict>,
    class: OnceCell<Class<'py>>,
}

impl<'py> Owner<'py> {
    /// None if it is no module, or keeps its members elsewhere.
    fn of(object: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = object.py();
        let Some(attributes) = object.getattr_opt(intern!(py, "__dict__"))? else {
            return Ok(None);
        };
        let Ok(attributes) = attributes.cast_into::<PyDict>() else {
            return Ok(None);
        };
        let Some(modules) = attributes.get_item(intern!(py, "_modules"))? else {
            return Ok(None);
        };
        let Ok(modules) = modules.cast_into::<PyDict>() else {
            return Ok(None);
        };
        Ok(Some(Self {
            object: object.clone(),
            attributes,
            modules,
            class: OnceCell::new(),
        }))
    }

    /// The submodule called `name`, if a lookup of the attribute would find it.
    fn submodule(&self, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.modules.get_item(name)? {
            Some(module) if !module.is_none() && !self.attributes.contains(name)? => {
                Ok(Some(module))
            }
            Some(_) | None => Ok(None),
        }
    }

    fn class(&self, modules: &Modules) -> PyResult<&Class<'py>> {
        if let Some(known) = self.class.get() {
            return Ok(known);
        }
        let found = Class::of(&self.object.get_type(), modules)?;
        Ok(self.class.get_or_init(|| found))
    }

    /// Whether setting the attribute `name` to a module only registers it.
    fn registers(&self, modules: &Modules, name: &Bound<'py, PyString>) -> PyResult<bool> {
        let py = name.py();
        let class = self.class(modules)?;
        if !class.plain || self.attributes.contains(name)? || class.has(name)? {
            return Ok(false);
        }
        for table in [intern!(py, "_parameters"), intern!(py, "_buffers")] {
            match self.attributes.get_item(table)? {
                Some(table)
                    if table
                        .cast::<PyDict>()
                        .is_ok_and(|t| t.contains(name).is_ok_and(|c| !c)) => {}
                Some(_) | None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// State of the containers with some prefix.
#[derive(Clone)]
enum Containers<'py> {
    /// Both hierarchies share it, with everything below.
    Shared,
    /// Source and destination.
    Pair(Rc<(Owner<'py>, Owner<'py>)>),
    /// Left to Python.
    Unusual,
}

struct Copier<'py> {
    modules: &'py Modules,
    known: FxHashMap<String, Containers<'py>>,
}

impl<'py> Copier<'py> {
    fn containers(&mut self, py: Python<'py>, prefix: &str) -> PyResult<Containers<'py>> {
        if let Some(known) = self.known.get(prefix) {
            return Ok(known.clone());
        }
        let (parent, item) = prefix.rsplit_once('.').unwrap_or(("", prefix));
        let found = match self.containers(py, parent)? {
            Containers::Pair(pair) => self.inner(&pair, &PyString::new(py, item))?,
            other => other,
        };
        self.known.insert(prefix.to_owned(), found.clone());
        Ok(found)
    }

    fn inner(
        &self,
        (source, destination): &(Owner<'py>, Owner<'py>),
        item: &Bound<'py, PyString>,
    ) -> PyResult<Containers<'py>> {
        let Some(from) = source.submodule(item)? else {
            return Ok(Containers::Unusual);
        };
        let to = match destination.submodule(item)? {
            Some(existing) if existing.is(&from) => return Ok(Containers::Shared),
            Some(existing) => existing,
            None if destination.registers(self.modules, item)? => {
                let new = self.modules.make(item.py())?;
                // The training mode is that of the original.
                let training = intern!(item.py(), "training");
                own_attributes(&new)?.set_item(training, from.getattr(training)?)?;
                destination.modules.set_item(item, &new)?;
                new
            }
            None => return Ok(Containers::Unusual),
        };
        Ok(match (Owner::of(&from)?, Owner::of(&to)?) {
            (Some(from), Some(to)) => Containers::Pair(Rc::new((from, to))),
            _ => Containers::Unusual,
        })
    }

    /// Copies `target` if that is possible here; returns whether it was.
    fn copy(&mut self, target: &Bound<'py, PyString>) -> PyResult<bool> {
        let text = target.to_str()?;
        let (prefix, field) = text.rsplit_once('.').unwrap_or(("", text));
        let pair = match self.containers(target.py(), prefix)? {
            Containers::Shared => return Ok(true),
            Containers::Unusual => return Ok(false),
            Containers::Pair(pair) => pair,
        };
        let (source, destination) = &*pair;
        let field = PyString::new(target.py(), field);
        match source.submodule(&field)? {
            Some(module) if destination.registers(self.modules, &field)? => {
                destination.modules.set_item(field, module)?;
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }
}

/// Registers in `destination` the submodules of `source` with the given qualified names, with
/// empty modules as containers on the way. Calls `otherwise` with each name that needs more than
/// that, in its turn.
#[pyfunction]
pub(crate) fn copy_submodules<'py>(
    source: &Bound<'py, PyAny>,
    destination: &Bound<'py, PyAny>,
    names: &Bound<'py, PyAny>,
    otherwise: &Bound<'py, PyAny>,
) -> PyResult<()> {
    let py = source.py();
    let modules = Modules::get(py)?;
    let root = match (Owner::of(source)?, Owner::of(destination)?) {
        (Some(source), Some(destination)) if modules.hooks.bind(py).is_empty() => {
            Containers::Pair(Rc::new((source, destination)))
        }
        _ => Containers::Unusual,
    };
    let mut copier = Copier {
        modules,
        known: FxHashMap::from_iter([(String::new(), root)]),
    };
    for name in names.try_iter()? {
        let name = name?.cast_into::<PyString>()?;
        if !copier.copy(&name)? {
            otherwise.call1((name,))?;
        }
    }
    Ok(())
}
