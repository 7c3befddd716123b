//! Effects of the C functions that programs call: the table for the current interpreter.

use std::fmt;

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cpython::Slots;
use super::effects_table::{CALLERS, CALLING, CLASSES, FUNCTIONS, MOVING, PURPOSES, SETTINGS};
use super::guards::address;

/// Effect of a function besides its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// Nothing.
    Nothing,
    /// Reads the direct contents of its arguments; of tensors, by operators of PyTorch.
    Reads,
    /// Reads the direct contents of containers among its arguments; tensors are left alone.
    Uses,
    /// Reads its arguments deeply: comparisons, conversions to text.
    ReadsAll,
    /// Reads the entry of its first argument at the key in the second one.
    Item,
    /// Reads the attribute of its first argument that the second one names.
    Attribute,
    /// Reads the class of its first argument, and the bases of that.
    Class,
    /// The same for its second argument.
    ClassOf,
    /// Returns the parts that a copy of its first argument is made of.
    Copies,
    /// Returns the identity of its argument.
    Identity,
    /// Writes to its first argument, and reads the others.
    Writes,
    /// Puts its second argument at the end of its first one.
    Appends,
    /// Takes an element from its first argument, an iterator.
    Advances,
    /// Returns a setting: it is called again in each call of the program.
    Asked,
    /// Reads or sets a context variable.
    Context,
    /// Returns whether a class is registered with an abstract one, which depends on past
    /// registrations.
    Registered,
    /// Calls its first argument, and reads the others.
    Calls,
    /// Writes to a file, a terminal or a log.
    Prints,
    /// An operator of PyTorch.
    Torch,
}

impl Effect {
    /// Whether the effect is the same for all arguments and only reads them, so that other C code
    /// may call the function with any.
    pub(super) fn is_reading(self) -> bool {
        matches!(
            self,
            Self::Nothing | Self::Torch | Self::Reads | Self::Uses | Self::ReadsAll | Self::Item
        )
    }
}

/// Use that C code makes of elements of iterables, or of results of functions that it calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) enum Purpose {
    /// Stores it, or passes it to the program.
    #[default]
    Moved,
    /// Reads its truth value, its length or its direct contents.
    Read,
    /// Compares it, or computes with it: reads it deeply.
    Compared,
    /// Converts it to text.
    Printed,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Moved | Self::Read => "contents",
            Self::Compared => "a comparison",
            Self::Printed => "a text",
        })
    }
}

/// The table, for the current interpreter.
pub(super) struct Effects {
    functions: FxHashMap<usize, Effect>,
    classes: FxHashMap<usize, Effect>,
    moving: FxHashSet<usize>,
    purposes: FxHashMap<usize, Purpose>,
    callers: FxHashSet<usize>,
    /// C functions that only make and initialise instances.
    makers: Vec<usize>,
    /// Slots of classes that define `__getattr__`, `__getattribute__`, `__setattr__` or `__call__`
    /// in Python.
    pub(super) in_python: InPython,
    /// `torch.Tensor`
    pub(super) tensor: Py<PyType>,
    /// `torch.nn.Module`
    pub(super) module: Py<PyType>,
    /// `torch.overrides.has_torch_function`, which takes a tuple of values, and its variants for
    /// one value and for several.
    pub(super) has_torch_function: [Py<PyAny>; 3],
    /// `torch.compiler.is_compiling`
    pub(super) is_compiling: Py<PyAny>,
    /// `threading.local`
    pub(super) local: Py<PyAny>,
    /// `types.SimpleNamespace`
    pub(super) namespace: Py<PyAny>,
    /// `torch._C.TensorBase`
    tensor_base: Py<PyType>,
    /// `abc.get_cache_token`, whose result changes with each registration of a class.
    pub(super) cache_token: Py<PyAny>,
    _kept: Vec<Py<PyAny>>,
}

/// C functions in slots that call methods of Python.
#[derive(Clone, Copy)]
pub(super) struct InPython {
    pub(super) getattr: usize,
    pub(super) getattribute: usize,
    pub(super) setattr: usize,
    pub(super) call: usize,
}

fn resolve<'py>(py: Python<'py>, path: &str) -> Option<Bound<'py, PyAny>> {
    let mut parts = path.split('.');
    let first = parts.next()?;
    let builtins = py.import("builtins").ok()?;
    let mut found = match builtins.getattr(first) {
        Ok(class) => class,
        Err(_) => py.import(first).ok()?.into_any(),
    };
    for part in parts {
        // Methods are looked up in the `__dict__` of their class.
        found = match found.cast::<PyType>() {
            Ok(class) => class.getattr("__dict__").ok()?.get_item(part).ok()?,
            Err(_) => found.getattr(part).ok()?,
        };
    }
    Some(found)
}

/// The object at a path of the table, or all C functions there if it ends with `.*`.
fn all_at<'py>(py: Python<'py>, path: &str) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let Some(owner) = path.strip_suffix(".*") else {
        return Ok(resolve(py, path).into_iter().collect());
    };
    let Some(owner) = resolve(py, owner) else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for own in owner
        .getattr("__dict__")?
        .call_method0("values")?
        .try_iter()?
    {
        let own = own?;
        if is_of_c(&own)? {
            all.push(own);
        }
    }
    Ok(all)
}

impl Effects {
    pub(super) fn get(py: Python<'_>) -> PyResult<&Self> {
        static EFFECTS: PyOnceLock<Effects> = PyOnceLock::new();
        EFFECTS.get_or_try_init(py, || Self::load(py))
    }

    fn load(py: Python<'_>) -> PyResult<Self> {
        let mut kept = Vec::new();
        let mut functions = FxHashMap::default();
        for (effect, paths) in FUNCTIONS {
            for path in *paths {
                for own in all_at(py, path)? {
                    // Paths listed by name take precedence.
                    if !path.ends_with(".*") || !functions.contains_key(&address(&own)) {
                        functions.insert(address(&own), *effect);
                    }
                    kept.push(own.unbind());
                }
            }
        }
        let mut classes = FxHashMap::default();
        let mut makers = Vec::new();
        for (effect, paths) in [(Effect::Uses, CLASSES), (Effect::Calls, CALLING)] {
            for path in paths {
                if let Some(class) = resolve(py, path) {
                    classes.insert(address(&class), effect);
                    if let Ok(class) = class.cast::<PyType>() {
                        let slots = Slots::of(class);
                        makers.extend([slots.new, slots.init]);
                    }
                    kept.push(class.unbind());
                }
            }
        }
        let base = py.get_type::<PyBaseException>();
        for own in py.import("builtins")?.dict().values() {
            if let Ok(class) = own.cast::<PyType>()
                && class.is_subclass(&base)?
            {
                let slots = Slots::of(class);
                makers.extend([slots.new, slots.init]);
            }
        }
        // Asked once, a class without `__getattr__` calls `__getattribute__` more directly.
        let samples = PyDict::new(py);
        py.run(
            c"class A:\n def __getattr__(self, name): pass\n def __setattr__(self, name, value): pass\n \
              def __call__(self): pass\n def __new__(cls): pass\n def __init__(self): pass\n\
              class B:\n def __getattribute__(self, name): pass\nB().name\n",
            Some(&samples),
            None,
        )?;
        let sample = |name: &str| -> PyResult<Slots> {
            let class = samples.as_any().get_item(name)?;
            Ok(Slots::of(class.cast::<PyType>()?))
        };
        let (first, second) = (sample("A")?, sample("B")?);
        makers.extend([first.new, first.init]);
        let torch = py.import("torch")?;
        let core = torch.getattr("_C")?;
        let functions_of_torch = core.getattr("_VariableFunctions")?;
        for name in functions_of_torch.dir()? {
            let own = functions_of_torch.getattr(name.cast::<PyString>()?)?;
            if is_of_c(&own)? {
                functions.entry(address(&own)).or_insert(Effect::Torch);
                kept.push(own.unbind());
            }
        }
        let mut found = |paths: &[&str]| -> PyResult<Vec<usize>> {
            let mut addresses = Vec::new();
            for path in paths {
                for own in all_at(py, path)? {
                    addresses.push(address(&own));
                    kept.push(own.unbind());
                }
            }
            Ok(addresses)
        };
        let moving = found(MOVING)?.into_iter().collect();
        let callers = found(CALLERS)?.into_iter().collect();
        let mut purposes = FxHashMap::default();
        for (purpose, paths) in PURPOSES {
            purposes.extend(found(paths)?.into_iter().map(|own| (own, *purpose)));
        }
        Ok(Self {
            functions,
            classes,
            moving,
            purposes,
            callers,
            makers,
            in_python: InPython {
                getattr: first.getattr,
                getattribute: second.getattr,
                setattr: first.setattr,
                call: first.call,
            },
            tensor: torch.getattr("Tensor")?.cast_into::<PyType>()?.unbind(),
            is_compiling: torch.getattr("compiler")?.getattr("is_compiling")?.unbind(),
            has_torch_function: [
                core.getattr("_has_torch_function")?.unbind(),
                core.getattr("_has_torch_function_unary")?.unbind(),
                core.getattr("_has_torch_function_variadic")?.unbind(),
            ],
            module: torch
                .getattr("nn")?
                .getattr("Module")?
                .cast_into::<PyType>()?
                .unbind(),
            local: py.import("threading")?.getattr("local")?.unbind(),
            namespace: py.import("types")?.getattr("SimpleNamespace")?.unbind(),
            tensor_base: core.getattr("TensorBase")?.cast_into::<PyType>()?.unbind(),
            cache_token: py.import("_abc")?.getattr("get_cache_token")?.unbind(),
            _kept: kept,
        })
    }

    /// Effect of a function or a method of C; None if it is unknown.
    pub(super) fn of(&self, function: &Bound<'_, PyAny>) -> PyResult<Option<Effect>> {
        let py = function.py();
        if let Some(effect) = self.functions.get(&address(function)) {
            return Ok(Some(*effect));
        }
        if let Some(owner) = function.getattr_opt("__objclass__")? {
            return Ok(owner.is(&self.tensor_base).then_some(Effect::Torch));
        }
        let owner = function.getattr_opt("__self__")?;
        let module = match function.getattr_opt("__module__")? {
            Some(module) if !module.is_none() => module,
            _ => match owner {
                Some(owner) => owner
                    .getattr_opt("__name__")?
                    .unwrap_or_else(|| py.None().into_bound(py)),
                None => return Ok(None),
            },
        };
        let Ok(module) = module.cast::<PyString>() else {
            return Ok(None);
        };
        let module = module.to_cow()?;
        if [
            "torch._C._nn",
            "torch._C._linalg",
            "torch._C._fft",
            "torch._C._special",
            "torch._C._sparse",
            "torch._C._nested",
        ]
        .contains(&&*module)
            || module.starts_with("torch._ops.")
        {
            return Ok(Some(Effect::Torch));
        }
        if module == "torch._C" || module == "torch" || module.starts_with("torch._C.") {
            let name = function.getattr("__name__")?.extract::<String>()?;
            let is_setting = SETTINGS.iter().any(|own| name.starts_with(own));
            if is_setting && !name.contains("torch_function") && !name.contains("mode_stack") {
                return Ok(Some(Effect::Asked));
            }
            if name == "_set_grad_enabled" {
                return Ok(Some(Effect::Torch));
            }
        }
        Ok(None)
    }

    /// Whether a function or a class only stores values, or takes them from where they are stored.
    pub(super) fn moves(&self, own: &Bound<'_, PyAny>) -> bool {
        self.moving.contains(&address(own))
    }

    /// Use that a function with this effect, or a class, makes of the contents of its arguments.
    pub(super) fn purpose(&self, own: &Bound<'_, PyAny>, effect: Effect) -> Purpose {
        let known = match own.cast::<PyType>() {
            // Derived classes do the same as their bases.
            Ok(class) => class
                .mro()
                .iter()
                .find_map(|own| self.purposes.get(&address(&own)).copied()),
            Err(_) => self.purposes.get(&address(own)).copied(),
        };
        known.unwrap_or(match effect {
            Effect::ReadsAll => Purpose::Compared,
            _ => Purpose::Moved,
        })
    }

    /// Whether a function or a class calls the callables among its arguments.
    pub(super) fn calls_arguments(&self, function: &Bound<'_, PyAny>) -> bool {
        self.callers.contains(&address(function))
    }

    /// Whether making an instance of a class only stores its arguments: C computes nothing with
    /// them, according to the first of its bases that is listed.
    pub(super) fn makes_of_values(&self, class: &Bound<'_, PyType>) -> bool {
        let bases = class.mro();
        let listed = bases
            .iter()
            .find(|own| self.classes.contains_key(&address(own)));
        listed.is_none_or(|own| {
            self.moves(&own) || self.classes.get(&address(&own)) == Some(&Effect::Calls)
        })
    }

    /// Effect of making an instance of a class; None if it is unknown.
    pub(super) fn of_class(&self, class: &Bound<'_, PyType>) -> Option<Effect> {
        if let Some(effect) = self.classes.get(&address(class)) {
            return Some(*effect);
        }
        let slots = Slots::of(class);
        let is_known = self.makers.contains(&slots.new) && self.makers.contains(&slots.init);
        is_known.then_some(Effect::Uses)
    }
}

/// Whether an object is a function or method of C.
fn is_of_c(own: &Bound<'_, PyAny>) -> PyResult<bool> {
    let kind = own.get_type();
    let name = kind.name()?;
    let name = name.to_cow()?;
    Ok(matches!(
        &*name,
        "builtin_function_or_method"
            | "method_descriptor"
            | "wrapper_descriptor"
            | "classmethod_descriptor"
            | "staticmethod"
    ))
}
