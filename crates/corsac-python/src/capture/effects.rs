//! What functions of C that programs call read and write.
//!
//! The table says effects only, never what a function computes, since CPython computes it. What is not here
//! may do anything, and a program that calls it is not captured.

use std::fmt;

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cpython::Slots;
use super::guards::address;

/// What a function does besides giving a result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// Nothing.
    Nothing,
    /// Reads what its arguments hold, and no deeper; tensors by operators of PyTorch.
    Reads,
    /// Reads what containers among its arguments hold, and no deeper; tensors are left alone.
    Uses,
    /// Reads what its arguments hold, and what is in that: comparisons, texts.
    ReadsAll,
    /// Reads an entry of its first argument, whose key is the second one.
    Item,
    /// Reads an attribute of its first argument, whose name is the second one.
    Attribute,
    /// Asks for the class of its first argument, and what it is derived from.
    Class,
    /// The same of its second argument.
    ClassOf,
    /// Gives what a copy of its first argument is made of.
    Copies,
    /// Tells which object its argument is.
    Identity,
    /// Writes to its first argument, and reads the others.
    Writes,
    /// Puts its second argument at the end of its first one.
    Appends,
    /// Takes something from its first argument, an iterator.
    Advances,
    /// Tells how something is set: it is asked anew in each call.
    Asked,
    /// Reads or sets a variable of the context.
    Context,
    /// Tells whether a class is registered as another one's: depends on what has been registered.
    Registered,
    /// Calls its first argument, and reads the others.
    Calls,
    /// Writes to a file, a terminal or a log.
    Prints,
    /// An operator of PyTorch.
    Torch,
}

impl Effect {
    /// Whether it is the same for all arguments and does nothing but read them, so that other C code may call the function with
    /// whatever it has.
    pub(super) fn is_reading(self) -> bool {
        matches!(
            self,
            Self::Nothing | Self::Torch | Self::Reads | Self::Uses | Self::ReadsAll | Self::Item
        )
    }
}

/// What C code does with what it takes from iterables, or from functions that it calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) enum Purpose {
    /// Puts it somewhere, or gives it to the program.
    #[default]
    Moved,
    /// Asks for its truth value, its length or what it holds, and no deeper.
    Read,
    /// Compares it, or computes with it: all that it holds is read.
    Compared,
    /// Makes a text of it.
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

/// Functions, by where they are found; `module.*` are all functions of C that are there.
pub(super) const FUNCTIONS: &[(Effect, &[&str])] = &[
    (
        Effect::Nothing,
        &[
            "builtins.callable",
            "builtins.globals",
            "builtins.locals",
            "sys.exc_info",
            "object.__new__",
            "object.__init__",
            "object.__init_subclass__",
            "type.mro",
            "_thread.LockType.acquire",
            "_thread.LockType.release",
            "_thread.LockType.__enter__",
            "_thread.LockType.__exit__",
            "_thread.RLock.acquire",
            "_thread.RLock.release",
            "_thread.RLock.__enter__",
            "_thread.RLock.__exit__",
            "_thread.get_ident",
            "_warnings._filters_mutated",
            "torch._C._has_torch_function",
            "torch._C._has_torch_function_unary",
            "torch._C._has_torch_function_variadic",
            "torch._C._log_api_usage_once",
            "torch.set_autocast_enabled",
            "torch.set_autocast_dtype",
            "torch.set_autocast_cache_enabled",
            "torch.autocast_increment_nesting",
            "torch.autocast_decrement_nesting",
            "torch.clear_autocast_cache",
            "torch._C._FunctionBase.apply",
            "BaseException.with_traceback",
            "BaseException.add_note",
            "BaseException.__init__",
            "Exception.__init__",
        ],
    ),
    (
        Effect::Reads,
        &[
            "builtins.abs",
            "builtins.all",
            "builtins.any",
            "builtins.bin",
            "builtins.chr",
            "builtins.divmod",
            "builtins.hex",
            "builtins.iter",
            "builtins.len",
            "builtins.oct",
            "builtins.ord",
            "builtins.pow",
            "builtins.round",
            "math.*",
            "cmath.*",
        ],
    ),
    (
        Effect::Uses,
        &[
            "sys.intern",
            "str.*",
            "bytes.*",
            "int.*",
            "float.*",
            "bool.*",
            "complex.*",
            "range.*",
            "slice.*",
            "_struct.calcsize",
            "_struct.pack",
            "_struct.unpack",
            "itertools.chain.from_iterable",
            "re.Pattern.match",
            "re.Pattern.search",
            "re.Pattern.fullmatch",
            "re.Pattern.findall",
            "re.Pattern.split",
            "re.Pattern.sub",
            "re.Match.group",
            "re.Match.groups",
            "re.Match.groupdict",
            "re.Match.start",
            "re.Match.end",
            "re.Match.span",
            "re.Match.__getitem__",
            "frozenset.*",
            "types.MappingProxyType.items",
            "types.MappingProxyType.keys",
            "types.MappingProxyType.values",
            "types.MappingProxyType.copy",
            "tuple.__iter__",
            "tuple.__len__",
            "tuple.__getitem__",
            "tuple.__new__",
            "tuple.__add__",
            "tuple.__mul__",
            "list.__iter__",
            "list.__len__",
            "list.__getitem__",
            "list.copy",
            "list.__add__",
            "list.__mul__",
            "list.__new__",
            "dict.items",
            "dict.keys",
            "dict.values",
            "dict.copy",
            "dict.__len__",
            "dict.__iter__",
            "dict.__reversed__",
            "dict.__or__",
            "dict.__new__",
            "dict.fromkeys",
            "set.copy",
            "set.union",
            "set.intersection",
            "set.difference",
            "set.symmetric_difference",
            "set.issubset",
            "set.issuperset",
            "set.isdisjoint",
            "set.__len__",
            "set.__iter__",
            "set.__new__",
            "set.__or__",
            "set.__and__",
            "set.__sub__",
            "collections.OrderedDict.items",
            "collections.OrderedDict.keys",
            "collections.OrderedDict.values",
            "collections.OrderedDict.copy",
            "collections.OrderedDict.__iter__",
            "collections.OrderedDict.__reversed__",
            "collections.OrderedDict.__new__",
            "collections.deque.copy",
            "collections.deque.__len__",
            "collections.deque.__iter__",
            "collections.deque.__new__",
            "torch.Size.numel",
            "torch.Size.__new__",
            "torch.Size.count",
            "torch.Size.index",
        ],
    ),
    (
        Effect::ReadsAll,
        &[
            "builtins.repr",
            "builtins.format",
            "builtins.max",
            "builtins.min",
            "builtins.sorted",
            "builtins.sum",
            "builtins.hash",
            "_bisect.bisect_left",
            "_bisect.bisect_right",
            "_functools.cmp_to_key",
            "_operator.*",
            "tuple.index",
            "tuple.count",
            "tuple.__eq__",
            "tuple.__contains__",
            "list.index",
            "list.count",
            "list.__eq__",
            "list.__contains__",
            "dict.__eq__",
            "set.__eq__",
            "set.__contains__",
            "str.format",
            "str.format_map",
            "str.__mod__",
            "collections.deque.index",
            "collections.deque.count",
            "collections.OrderedDict.__eq__",
        ],
    ),
    (
        Effect::Item,
        &[
            "dict.get",
            "dict.__getitem__",
            "dict.__contains__",
            "_operator.getitem",
        ],
    ),
    (
        Effect::Attribute,
        &[
            "builtins.getattr",
            "builtins.hasattr",
            "builtins.vars",
            "object.__getattribute__",
        ],
    ),
    (
        Effect::Class,
        &["builtins.isinstance", "builtins.issubclass"],
    ),
    (
        Effect::ClassOf,
        &["type.__instancecheck__", "type.__subclasscheck__"],
    ),
    (Effect::Identity, &["builtins.id"]),
    (
        Effect::Copies,
        &["object.__reduce_ex__", "object.__getstate__"],
    ),
    (
        Effect::Writes,
        &[
            "builtins.setattr",
            "builtins.delattr",
            "object.__setattr__",
            "object.__delattr__",
            "type.__setattr__",
            "type.__delattr__",
            "list.extend",
            "list.insert",
            "list.pop",
            "list.remove",
            "list.clear",
            "list.sort",
            "list.reverse",
            "list.__setitem__",
            "list.__delitem__",
            "list.__iadd__",
            "list.__imul__",
            "list.__init__",
            "dict.pop",
            "dict.popitem",
            "dict.clear",
            "dict.update",
            "dict.setdefault",
            "dict.__setitem__",
            "dict.__delitem__",
            "dict.__init__",
            "dict.__ior__",
            "set.add",
            "set.update",
            "set.remove",
            "set.discard",
            "set.pop",
            "set.clear",
            "set.difference_update",
            "set.intersection_update",
            "set.symmetric_difference_update",
            "set.__ior__",
            "set.__iand__",
            "set.__isub__",
            "set.__init__",
            "collections.OrderedDict.pop",
            "collections.OrderedDict.popitem",
            "collections.OrderedDict.clear",
            "collections.OrderedDict.update",
            "collections.OrderedDict.setdefault",
            "collections.OrderedDict.move_to_end",
            "collections.OrderedDict.__setitem__",
            "collections.OrderedDict.__delitem__",
            "collections.OrderedDict.__init__",
            "collections.deque.appendleft",
            "collections.deque.pop",
            "collections.deque.popleft",
            "collections.deque.extend",
            "collections.deque.extendleft",
            "collections.deque.clear",
            "collections.deque.rotate",
            "collections.deque.remove",
            "collections.deque.insert",
            "collections.deque.__init__",
            "collections.deque.__setitem__",
            "_bisect.insort_left",
            "_bisect.insort_right",
            "_collections._count_elements",
            "_heapq.heapify",
            "_heapq.heappop",
            "_heapq.heappush",
            "_heapq.heappushpop",
            "_heapq.heapreplace",
            "_heapq._heapify_max",
            "_heapq._heappop_max",
            "_heapq._heapreplace_max",
            "_operator.setitem",
            "_operator.delitem",
            "_operator.iadd",
            "_operator.iand",
            "_operator.iconcat",
            "_operator.ifloordiv",
            "_operator.ilshift",
            "_operator.imatmul",
            "_operator.imod",
            "_operator.imul",
            "_operator.ior",
            "_operator.ipow",
            "_operator.irshift",
            "_operator.isub",
            "_operator.itruediv",
            "_operator.ixor",
        ],
    ),
    (
        Effect::Appends,
        &["list.append", "collections.deque.append"],
    ),
    (
        Effect::Advances,
        &[
            "builtins.next",
            "types.GeneratorType.send",
            "types.GeneratorType.close",
            "types.GeneratorType.throw",
            "types.GeneratorType.__next__",
        ],
    ),
    (
        Effect::Context,
        &[
            "_contextvars.ContextVar.get",
            "_contextvars.ContextVar.set",
            "_contextvars.ContextVar.reset",
        ],
    ),
    (
        Effect::Asked,
        &["sys.getrecursionlimit", "_abc.get_cache_token"],
    ),
    (
        Effect::Registered,
        &["_abc._abc_instancecheck", "_abc._abc_subclasscheck"],
    ),
    (Effect::Calls, &["_functools.reduce", "_operator.call"]),
    (
        Effect::Prints,
        &[
            "builtins.print",
            "_warnings.warn",
            "_warnings.warn_explicit",
            "_io.TextIOWrapper.write",
            "_io.TextIOWrapper.flush",
            "_io.StringIO.write",
        ],
    ),
];

/// What functions and classes do with what is in their arguments, where that is more than their effect says.
const PURPOSES: &[(Purpose, &[&str])] = &[
    (
        Purpose::Read,
        &[
            "builtins.all",
            "builtins.any",
            "builtins.dict",
            "dict.update",
            "dict.__init__",
            "dict.__ior__",
            "collections.OrderedDict",
            "collections.OrderedDict.update",
            "collections.OrderedDict.__init__",
            "collections.defaultdict",
            "itertools.chain.from_iterable",
            "itertools.compress",
        ],
    ),
    (
        Purpose::Compared,
        &[
            "list.sort",
            "list.remove",
            "collections.deque.remove",
            "itertools.accumulate",
            "itertools.groupby",
            "_bisect.insort_left",
            "_bisect.insort_right",
            "_heapq.heapify",
            "_heapq.heappop",
            "_heapq.heappush",
            "_heapq.heappushpop",
            "_heapq.heapreplace",
            "_heapq._heapify_max",
            "_heapq._heappop_max",
            "_heapq._heapreplace_max",
        ],
    ),
    (
        Purpose::Printed,
        &[
            "builtins.repr",
            "builtins.format",
            "str.format",
            "str.format_map",
            "str.__mod__",
            "builtins.str",
        ],
    ),
];

/// Functions and classes that call those among their arguments that can be called.
const CALLERS: &[&str] = &[
    "_bisect.bisect_left",
    "_bisect.bisect_right",
    "_bisect.insort_left",
    "_bisect.insort_right",
    "_functools.cmp_to_key",
    "itertools.accumulate",
    "itertools.groupby",
    "builtins.max",
    "builtins.min",
    "builtins.sorted",
    "list.sort",
    "re.Pattern.sub",
];

/// Functions and classes that put values somewhere or take them from there, and compute nothing of them.
const MOVING: &[&str] = &[
    "builtins.isinstance",
    "builtins.callable",
    "type.__instancecheck__",
    "type.__subclasscheck__",
    "builtins.getattr",
    "builtins.hasattr",
    "builtins.setattr",
    "builtins.iter",
    "builtins.next",
    "object.__new__",
    "object.__init__",
    "object.__setattr__",
    "object.__getattribute__",
    "list.append",
    "list.extend",
    "list.copy",
    "list.__iter__",
    "list.__len__",
    "tuple.__iter__",
    "tuple.__len__",
    "tuple.__new__",
    "tuple.__add__",
    "dict.items",
    "dict.keys",
    "dict.values",
    "dict.copy",
    "collections.OrderedDict.items",
    "collections.OrderedDict.keys",
    "collections.OrderedDict.values",
    "collections.deque.append",
    "torch.Size.__new__",
    "types.GeneratorType.send",
    "types.GeneratorType.__next__",
    "builtins.tuple",
    "builtins.list",
    "builtins.object",
    "builtins.super",
    "builtins.slice",
    "builtins.zip",
    "builtins.enumerate",
    "builtins.reversed",
    "functools.partial",
    "types.SimpleNamespace",
    "types.MethodType",
    "itertools.chain",
    "torch.Size",
];

/// Names of functions of `torch._C` that tell how something is set begin so.
const SETTINGS: &[&str] = &[
    "_get_",
    "get_",
    "is_",
    "_is_",
    "are_",
    "_are_",
    "_cuda_is",
    "_cuda_get",
];

/// Classes of C whose instances are made of their arguments.
const CLASSES: &[&str] = &[
    "builtins.int",
    "builtins.float",
    "builtins.complex",
    "builtins.bool",
    "builtins.str",
    "builtins.bytes",
    "builtins.tuple",
    "builtins.list",
    "builtins.dict",
    "builtins.set",
    "builtins.frozenset",
    "builtins.range",
    "builtins.slice",
    "builtins.enumerate",
    "builtins.zip",
    "builtins.reversed",
    "builtins.object",
    "builtins.super",
    "builtins.staticmethod",
    "builtins.classmethod",
    "builtins.property",
    "collections.OrderedDict",
    "collections.deque",
    "collections.defaultdict",
    "itertools.chain",
    "itertools.product",
    "itertools.repeat",
    "itertools.islice",
    "itertools.zip_longest",
    "itertools.count",
    "itertools.cycle",
    "itertools.combinations",
    "itertools.permutations",
    "itertools.compress",
    "itertools.pairwise",
    "itertools.accumulate",
    "itertools.groupby",
    "functools.partial",
    "operator.attrgetter",
    "operator.itemgetter",
    "operator.methodcaller",
    "types.SimpleNamespace",
    "types.MethodType",
    "types.MappingProxyType",
    "_weakref.ReferenceType",
    "torch.Size",
    "torch.device",
    "torch.finfo",
    "torch.iinfo",
    "_thread.RLock",
];

/// Classes of C that call their first argument for what is in the others.
const CALLING: &[&str] = &[
    "builtins.map",
    "builtins.filter",
    "itertools.starmap",
    "itertools.takewhile",
    "itertools.dropwhile",
];

/// The table, for the interpreter at hand.
pub(super) struct Effects {
    functions: FxHashMap<usize, Effect>,
    classes: FxHashMap<usize, Effect>,
    moving: FxHashSet<usize>,
    purposes: FxHashMap<usize, Purpose>,
    callers: FxHashSet<usize>,
    /// Functions of C that make instances and initialise them, and do no more.
    makers: Vec<usize>,
    /// What classes have that define `__getattr__`, `__getattribute__`, `__setattr__` or `__call__` in Python.
    pub(super) in_python: InPython,
    /// `torch.Tensor`
    pub(super) tensor: Py<PyType>,
    /// `torch.nn.Module`
    pub(super) module: Py<PyType>,
    /// `threading.local`
    pub(super) local: Py<PyAny>,
    /// `types.SimpleNamespace`
    pub(super) namespace: Py<PyAny>,
    /// `torch._C.TensorBase`
    tensor_base: Py<PyType>,
    /// Tells what is registered as a kind of something else.
    pub(super) cache_token: Py<PyAny>,
    _kept: Vec<Py<PyAny>>,
}

/// Functions of C that call methods of Python.
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
        // A method as its class has it: it is looked up there.
        found = match found.cast::<PyType>() {
            Ok(class) => class.getattr("__dict__").ok()?.get_item(part).ok()?,
            Err(_) => found.getattr(part).ok()?,
        };
    }
    Some(found)
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
                if let Some(owner) = path.strip_suffix(".*") {
                    let Some(owner) = resolve(py, owner) else {
                        continue;
                    };
                    let Ok(names) = owner
                        .getattr("__dict__")
                        .and_then(|own| own.call_method0("values"))
                    else {
                        continue;
                    };
                    for own in names.try_iter()? {
                        let own = own?;
                        // What is listed by name has been, or will be, said there.
                        if is_of_c(&own)? {
                            functions.entry(address(&own)).or_insert(*effect);
                            kept.push(own.unbind());
                        }
                    }
                } else if let Some(own) = resolve(py, path) {
                    functions.insert(address(&own), *effect);
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
        let mut found = |paths: &[&str]| -> Vec<usize> {
            let all: Vec<_> = paths.iter().filter_map(|path| resolve(py, path)).collect();
            let addresses = all.iter().map(address).collect();
            kept.extend(all.into_iter().map(Bound::unbind));
            addresses
        };
        let moving = found(MOVING).into_iter().collect();
        let callers = found(CALLERS).into_iter().collect();
        let mut purposes = FxHashMap::default();
        for (purpose, paths) in PURPOSES {
            purposes.extend(found(paths).into_iter().map(|own| (own, *purpose)));
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

    /// What a function or a method of C does; None where that is not known.
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

    /// Whether a function or a class only puts values somewhere, or takes them from there.
    pub(super) fn moves(&self, own: &Bound<'_, PyAny>) -> bool {
        self.moving.contains(&address(own))
    }

    /// What a function with this effect, or a class, does with what is in its arguments.
    pub(super) fn purpose(&self, own: &Bound<'_, PyAny>, effect: Effect) -> Purpose {
        let known = match own.cast::<PyType>() {
            // Classes that are derived from others do what these do.
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

    /// Whether a function or a class calls those among its arguments that can be called.
    pub(super) fn calls_arguments(&self, function: &Bound<'_, PyAny>) -> bool {
        self.callers.contains(&address(function))
    }

    /// Whether making an instance of a class only moves its arguments: C computes nothing of them, which the first one
    /// of its bases that is listed says.
    pub(super) fn makes_of_values(&self, class: &Bound<'_, PyType>) -> bool {
        let bases = class.mro();
        let listed = bases
            .iter()
            .find(|own| self.classes.contains_key(&address(own)));
        listed.is_none_or(|own| {
            self.moves(&own) || self.classes.get(&address(&own)) == Some(&Effect::Calls)
        })
    }

    /// What making an instance of a class does; None where that is not known.
    pub(super) fn of_class(&self, class: &Bound<'_, PyType>) -> Option<Effect> {
        if let Some(effect) = self.classes.get(&address(class)) {
            return Some(*effect);
        }
        let slots = Slots::of(class);
        let is_known = self.makers.contains(&slots.new) && self.makers.contains(&slots.init);
        is_known.then_some(Effect::Uses)
    }
}

/// Whether something is a function or method of C.
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
