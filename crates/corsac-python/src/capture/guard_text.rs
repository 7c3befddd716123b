//! Guards as text for people: place, condition, and the line of the first read.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyFunction, PyModule, PyString, PyTuple, PyType};
use rustc_hash::FxHashMap;

use super::cpython::{self, name_in_c};
use super::guards::{
    Address, AttributeRead, CallRead, ClassRead, DictRead, FunctionRead, Place, PyGuards, Reads,
    SequenceRead, address, is_same_option,
};
use super::look::{full_name, is_class, is_constant};
use super::sites::Family;

/// Longest text of a value, in letters.
const LONGEST: usize = 60;
/// Largest number of elements written out for a container.
const MOST: usize = 4;

/// One guard.
pub(super) enum Guard<'a> {
    Entry(&'a DictRead, &'a Place),
    Contents(&'a DictRead),
    /// All of a class, or its bases.
    Class(&'a ClassRead),
    Name(&'a ClassRead, &'a Py<PyAny>, Option<&'a Py<PyAny>>),
    Kind(&'a Py<PyAny>, &'a Py<PyType>),
    Sequence(&'a SequenceRead),
    Cell(&'a Place),
    Function(&'a FunctionRead),
    Attribute(&'a AttributeRead),
    Call(&'a CallRead),
}

/// A guard as text: family, place, condition, and the file and line of the first read.
pub(super) type GuardText = (&'static str, String, String, Option<(String, i32)>);
/// A failing guard as text: place, old value, current value, and the file and line.
pub(super) type Failed = (String, String, String, Option<(String, i32)>);

fn at(own: &Py<PyAny>) -> Address {
    own.as_ptr().addr()
}

impl<'a> Guard<'a> {
    /// All guards of a program.
    pub(super) fn all(reads: &'a Reads) -> Vec<Self> {
        let mut found = Vec::new();
        let kinds = reads.kinds.values();
        found.extend(kinds.map(|(object, kind)| Self::Kind(object, kind)));
        for own in reads.dicts.values() {
            found.extend(own.entries.values().map(|place| Self::Entry(own, place)));
            if own.contents.is_some() {
                found.push(Self::Contents(own));
            }
        }
        for own in reads.classes.values() {
            let names = own.names.values();
            found.extend(names.map(|(name, then)| Self::Name(own, name, then.as_ref())));
            if own.whole {
                found.push(Self::Class(own));
            }
        }
        found.extend(reads.functions.values().map(Self::Function));
        found.extend(reads.cells.values().map(Self::Cell));
        found.extend(reads.sequences.values().map(Self::Sequence));
        found.extend(reads.attributes.values().map(Self::Attribute));
        found.extend(reads.calls.iter().map(Self::Call));
        found
    }

    /// All guards, and those of the bases of classes, which belong to the names that are looked up
    /// in them.
    pub(super) fn all_and_bases(reads: &'a Reads) -> impl Iterator<Item = Self> {
        let bases = reads.classes.values().filter(|own| !own.whole);
        Self::all(reads).into_iter().chain(bases.map(Self::Class))
    }

    /// Whether the guard holds now.
    pub(super) fn holds(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(match self {
            Self::Entry(_, place) => is_same_option(self.now(py)?.as_ref(), place.before.as_ref()),
            Self::Contents(own) => own.is_same(py)?,
            Self::Class(own) => {
                let version = cpython::type_version(own.kind.bind(py));
                version != 0 && version == own.version || (!own.whole && own.is_same(py))
            }
            Self::Name(_, _, then) => is_same_option(self.now(py)?.as_ref(), *then),
            Self::Kind(object, kind) => object.bind(py).get_type().is(*kind),
            Self::Sequence(own) => own.is_same(py)?,
            Self::Cell(own) => is_same_option(self.now(py)?.as_ref(), own.before.as_ref()),
            Self::Function(own) => own.is_current(py),
            Self::Attribute(own) => own.is_current(py)?,
            Self::Call(own) => own.is_current(py),
        })
    }

    /// The value there now.
    fn now<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(match self {
            Self::Entry(own, place) => own.store.bind(py).get_item(&place.key)?,
            Self::Name(own, name, _) => match name.bind(py).cast::<PyString>() {
                Ok(name) => cpython::lookup(own.kind.bind(py), name),
                Err(_) => None,
            },
            Self::Kind(object, _) => Some(object.bind(py).get_type().into_any()),
            Self::Cell(own) => cpython::cell_content(own.key.bind(py)),
            Self::Attribute(own) => {
                let name = own.place.key.bind(py).cast::<PyString>()?;
                own.object.bind(py).getattr(name).ok()
            }
            Self::Call(own) => own.ask(py),
            Self::Contents(own) => Some(own.store.bind(py).clone().into_any()),
            Self::Sequence(own) => Some(own.object.bind(py).clone()),
            Self::Class(own) => Some(own.kind.bind(py).clone().into_any()),
            Self::Function(own) => Some(own.function.bind(py).clone()),
        })
    }

    fn family(&self) -> (Family, Address, Address) {
        match self {
            Self::Entry(own, place) => (Family::Entry, own.store.as_ptr().addr(), at(&place.key)),
            Self::Contents(own) => (Family::Contents, own.store.as_ptr().addr(), 0),
            Self::Class(own) => (Family::Class, own.kind.as_ptr().addr(), 0),
            Self::Name(own, name, _) => (Family::Class, own.kind.as_ptr().addr(), at(name)),
            Self::Kind(object, _) => (Family::Kind, at(object), 0),
            Self::Sequence(own) => (Family::Sequence, at(&own.object), 0),
            Self::Cell(own) => (Family::Cell, at(&own.key), 0),
            Self::Function(own) => (Family::Function, at(&own.function), 0),
            Self::Attribute(own) => (Family::Attribute, at(&own.object), at(&own.place.key)),
            Self::Call(own) => (
                Family::Call,
                at(&own.callable),
                own.arguments.as_ptr().addr(),
            ),
        }
    }

    fn line(&self, py: Python<'_>, reads: &Reads) -> Option<(String, i32)> {
        let (family, object, key) = self.family();
        reads.sites.line(py, family, object, key)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Entry(..) | Self::Cell(_) | Self::Attribute(_) => "value",
            Self::Contents(_) | Self::Sequence(_) => "contents",
            Self::Class(_) | Self::Name(..) => "class",
            Self::Kind(..) => "type",
            Self::Function(_) => "function",
            Self::Call(_) => "setting",
        }
    }

    fn place(&self, py: Python<'_>, paths: &Paths<'_>) -> String {
        match self {
            Self::Entry(own, place) => paths.entry(own.store.bind(py), place.key.bind(py)),
            Self::Contents(own) => paths.of(own.store.bind(py).as_any()),
            Self::Class(own) => full_name(own.kind.bind(py)),
            Self::Name(own, name, _) => format!("{}.{}", full_name(own.kind.bind(py)), name),
            Self::Kind(object, _) => format!("type({})", paths.of(object.bind(py))),
            Self::Sequence(own) => paths.of(own.object.bind(py)),
            Self::Cell(own) => paths.of(own.key.bind(py)),
            Self::Function(own) => short(own.function.bind(py), 0),
            Self::Attribute(own) => {
                format!("{}.{}", paths.of(own.object.bind(py)), own.place.key)
            }
            Self::Call(own) => {
                let arguments = own.arguments.bind(py).iter();
                let arguments: Vec<_> = arguments.map(|own| short(&own, 0)).collect();
                let callable = own.callable.bind(py);
                let name = callable.getattr(intern!(py, "__name__"));
                let name = name.map_or_else(|_| short(callable, 0), |own| own.to_string());
                format!("{name}({})", arguments.join(", "))
            }
        }
    }

    /// The old value, as text.
    fn then(&self, py: Python<'_>) -> String {
        let option = |own: Option<&Py<PyAny>>| match own {
            Some(own) => short(own.bind(py), 0),
            None => "nothing".to_owned(),
        };
        match self {
            Self::Entry(_, place) | Self::Cell(place) => option(place.before.as_ref()),
            Self::Attribute(own) => option(own.place.before.as_ref()),
            Self::Name(_, _, then) => option(*then),
            Self::Call(own) => option(own.result.as_ref()),
            Self::Kind(_, kind) => full_name(kind.bind(py)),
            Self::Contents(own) => {
                let entries = own.contents.iter().flatten();
                let entries = entries.map(|(key, value)| entry(key.bind(py), value.bind(py)));
                format!("{{{}}}", shortened(entries.collect()))
            }
            Self::Sequence(own) => {
                let items = own.items.iter().map(|own| short(own.bind(py), 1));
                format!("[{}]", shortened(items.collect()))
            }
            Self::Class(_) => "as it was".to_owned(),
            Self::Function(own) => match &own.parts[0] {
                Some(code) => short(code.bind(py), 0),
                None => "nothing".to_owned(),
            },
        }
    }

    /// The current value, as text.
    fn found(&self, py: Python<'_>) -> String {
        let Ok(now) = self.now(py) else {
            return "an error".to_owned();
        };
        let Some(now) = now else {
            return "nothing".to_owned();
        };
        match self {
            Self::Contents(own) => {
                let entries = own.store.bind(py).iter();
                let entries = entries.map(|(key, value)| entry(&key, &value));
                format!("{{{}}}", shortened(entries.collect()))
            }
            Self::Sequence(_) => {
                let items = now.try_iter().into_iter().flatten().flatten();
                format!("[{}]", shortened(items.map(|own| short(&own, 1)).collect()))
            }
            Self::Class(_) => "changed".to_owned(),
            Self::Kind(..) => match now.cast::<PyType>() {
                Ok(kind) => full_name(kind),
                Err(_) => short(&now, 0),
            },
            Self::Function(_) => match &cpython::parts_of_function(&now)[0] {
                Some(code) => short(code, 0),
                None => "nothing".to_owned(),
            },
            _ => short(&now, 0),
        }
    }

    fn condition(&self, py: Python<'_>) -> String {
        let value = match self {
            Self::Entry(_, place) | Self::Cell(place) => place.before.as_ref(),
            Self::Attribute(own) => own.place.before.as_ref(),
            Self::Name(_, _, then) => *then,
            Self::Call(own) => own.result.as_ref(),
            Self::Contents(_) | Self::Sequence(_) => return format!("== {}", self.then(py)),
            Self::Kind(..) => return format!("is {}", self.then(py)),
            Self::Class(_) => return "is as it was".to_owned(),
            Self::Function(_) => return "has its code and defaults".to_owned(),
        };
        match value {
            None => "is not there".to_owned(),
            Some(own) if is_constant(own.bind(py)) && !own.is_none(py) => {
                format!("== {}", self.then(py))
            }
            Some(_) => format!("is {}", self.then(py)),
        }
    }

    /// Description of the change, for a message.
    pub(super) fn described(&self, py: Python<'_>) -> PyResult<String> {
        let of_type = |what: &str, kind: &Bound<'_, PyType>| {
            PyResult::Ok(format!("{what} of type {}", kind.name()?))
        };
        match self {
            Self::Kind(_, kind) => of_type("the class of an object that was", kind.bind(py)),
            Self::Entry(_, place) => Ok(format!("the value of {}", place.key.bind(py).repr()?)),
            Self::Contents(_) => Ok("what a dictionary holds".to_owned()),
            Self::Class(own) | Self::Name(own, ..) => {
                Ok(format!("class {}", own.kind.bind(py).qualname()?))
            }
            Self::Function(own) => Ok(format!("function {}", own.function.bind(py).repr()?)),
            Self::Cell(_) => Ok("a variable of an enclosing function".to_owned()),
            Self::Sequence(own) => of_type("a container", &own.object.bind(py).get_type()),
            Self::Attribute(own) => Ok(format!("attribute {}", own.place.key)),
            Self::Call(own) => Ok(format!("what {} gives", own.callable.bind(py).repr()?)),
        }
    }
}

fn entry(key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> String {
    format!("{}: {}", short(key, 1), short(value, 1))
}

/// Joins texts with commas; of many, only the first.
fn shortened(mut texts: Vec<String>) -> String {
    let more = texts.len().saturating_sub(MOST);
    if more > 0 {
        texts.truncate(MOST);
        texts.push(format!("{more} others"));
    }
    texts.join(", ")
}

/// A value as a short text. Runs no code of users, so that only the classes of their objects are
/// shown.
fn short(own: &Bound<'_, PyAny>, depth: usize) -> String {
    let py = own.py();
    let kind = own.get_type();
    let named = |what: &str| {
        let name = own.getattr(intern!(py, "__qualname__"));
        let name = name.or_else(|_| own.getattr(intern!(py, "__name__")));
        name.map_or_else(|_| what.to_owned(), |name| format!("{what} {name}"))
    };
    if let Ok(class) = own.cast::<PyType>() {
        return format!("class {}", full_name(class));
    }
    if own.is_instance_of::<PyFunction>() || own.is_instance_of::<PyCFunction>() {
        return named("function");
    }
    if own.is_exact_instance_of::<PyModule>() {
        return named("module");
    }
    let name = full_name(&kind);
    if name == "code" {
        let line = own.getattr(intern!(py, "co_firstlineno"));
        let line = line.map_or_else(|_| String::new(), |own| format!(" at line {own}"));
        return format!("{}{line}", named("code of"));
    }
    if is_constant(own) {
        let text = own.repr().map_or_else(|_| name, |own| own.to_string());
        return match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        };
    }
    if let Ok(tuple) = own.cast::<PyTuple>()
        && depth < 2
    {
        let items = tuple.iter().map(|own| short(&own, depth + 1)).collect();
        return format!("({})", shortened(items));
    }
    let name = name.rsplit('.').next().unwrap_or_default().to_owned();
    match name.chars().next() {
        Some('a' | 'e' | 'i' | 'o' | 'u' | 'A' | 'E' | 'I' | 'O' | 'U') => format!("an {name}"),
        _ => format!("a {name}"),
    }
}

/// Paths from the program to objects.
pub(super) struct Paths<'py> {
    /// Objects, as expressions.
    objects: FxHashMap<Address, String>,
    /// Dictionaries: the expression before a key, and the form of keys.
    dicts: FxHashMap<Address, (String, Keys)>,
    left: Vec<(Bound<'py, PyAny>, String)>,
}

/// Form of the keys of a dictionary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// `object.key`
    Attributes,
    /// `object.key`, and `object[0]` for numbers, as modules show their parts.
    Parts,
    /// `object['key']`
    Items,
}

impl<'py> Paths<'py> {
    /// Paths that begin at the program, at modules, at classes and at cells of functions.
    pub(super) fn new(
        py: Python<'py>,
        reads: &Reads,
        program: &Bound<'py, PyAny>,
    ) -> PyResult<Self> {
        let mut own = Self {
            objects: FxHashMap::default(),
            dicts: FxHashMap::default(),
            left: Vec::new(),
        };
        let tensor_module = py.import("torch.nn")?.getattr("Module")?;
        let start = match program.is_instance_of::<PyFunction>() {
            true => program.getattr(intern!(py, "__name__"))?.to_string(),
            false => "self".to_owned(),
        };
        own.left.push((program.clone(), start));
        own.follow(py, reads, &tensor_module)?;
        for read in reads.functions.values() {
            let function = read.function.bind(py);
            own.cells(function)?;
        }
        own.follow(py, reads, &tensor_module)?;
        let modules = py.import("sys")?.getattr("modules")?;
        for (name, module) in modules.cast_into::<PyDict>()? {
            if let Ok(module) = module.cast::<PyModule>() {
                let name = name.to_string();
                let name = if name == "__main__" {
                    String::new()
                } else {
                    name
                };
                let dict = module.dict();
                own.module(py, reads, &dict, &name);
            }
        }
        own.follow(py, reads, &tensor_module)?;
        for read in reads.classes.values() {
            for class in read.kind.bind(py).mro() {
                let class = class.cast_into::<PyType>()?;
                if let Some(dict) = cpython::class_dict(&class) {
                    let text = (full_name(&class), Keys::Attributes);
                    own.dicts.entry(address(dict.as_any())).or_insert(text);
                }
            }
        }
        Ok(own)
    }

    fn module(&mut self, py: Python<'py>, reads: &Reads, dict: &Bound<'py, PyDict>, name: &str) {
        let at = address(dict.as_any());
        if let Some(read) = reads.dicts.get(&at)
            && !self.dicts.contains_key(&at)
        {
            self.dicts.insert(at, (name.to_owned(), Keys::Attributes));
            for place in read.entries.values() {
                let value = place.before.as_ref().map(|own| own.bind(py).clone());
                if let Some(value) = value.filter(|own| !own.is_instance_of::<PyModule>()) {
                    let text = joined(name, Keys::Attributes, place.key.bind(py));
                    self.left.push((value, text));
                }
            }
        }
    }

    /// Adds the variables of enclosing functions.
    fn cells(&mut self, function: &Bound<'py, PyAny>) -> PyResult<()> {
        let py = function.py();
        let (code, cells) = (
            function.getattr(intern!(py, "__code__"))?,
            function.getattr(intern!(py, "__closure__"))?,
        );
        let names = code.getattr(intern!(py, "co_freevars"))?;
        if let (Ok(names), Ok(cells)) = (names.cast::<PyTuple>(), cells.cast::<PyTuple>()) {
            for (name, cell) in names.iter().zip(cells.iter()) {
                let name = name.to_string();
                if let Some(content) = cpython::cell_content(&cell) {
                    self.left.push((content, name.clone()));
                }
                self.objects.entry(address(&cell)).or_insert(name);
            }
        }
        Ok(())
    }

    /// Extends the paths to all that was read, the shortest first.
    fn follow(
        &mut self,
        py: Python<'py>,
        reads: &Reads,
        tensor_module: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let mut row = std::mem::take(&mut self.left);
        while !row.is_empty() {
            for (object, path) in std::mem::take(&mut row) {
                if is_constant(&object) || is_class(&object) {
                    continue;
                }
                let at = address(&object);
                if self.objects.contains_key(&at) {
                    continue;
                }
                self.objects.insert(at, path.clone());
                let is_module = object.is_instance(tensor_module)?;
                if let Some(dict) = cpython::attributes(&object, false) {
                    self.entries(py, reads, &dict, &path, Keys::Attributes, is_module);
                }
                if let Ok(dict) = object.cast::<PyDict>() {
                    self.entries(py, reads, dict, &path, Keys::Items, false);
                }
                if object.is_instance_of::<PyFunction>() {
                    self.cells(&object)?;
                }
                if name_in_c(&object.get_type()) == "method" {
                    let owner = object.getattr(intern!(py, "__self__"))?;
                    self.left.push((owner, "self".to_owned()));
                    let function = object.getattr(intern!(py, "__func__"))?;
                    self.left.push((function, path.clone()));
                }
                if let Ok(tuple) = object.cast::<PyTuple>() {
                    for (number, own) in tuple.iter().enumerate() {
                        self.left.push((own, format!("{path}[{number}]")));
                    }
                }
                if let Some(read) = reads.sequences.get(&at) {
                    for (number, own) in read.items.iter().enumerate() {
                        let own = own.bind(py).clone();
                        self.left.push((own, format!("{path}[{number}]")));
                    }
                }
            }
            row = std::mem::take(&mut self.left);
        }
        Ok(())
    }

    fn entries(
        &mut self,
        py: Python<'py>,
        reads: &Reads,
        dict: &Bound<'py, PyDict>,
        path: &str,
        keys: Keys,
        is_module: bool,
    ) {
        let at = address(dict.as_any());
        let known = self.dicts.entry(at);
        // Parts of modules are written as theirs.
        let (path, keys) = known.or_insert_with(|| (path.to_owned(), keys)).clone();
        let Some(read) = reads.dicts.get(&at) else {
            return;
        };
        let contents = read.contents.iter().flatten();
        let contents = contents.map(|(key, value)| (key, Some(value)));
        let places = read.entries.values();
        let places = places.map(|own| (&own.key, own.before.as_ref()));
        for (key, value) in places.chain(contents) {
            let (key, Some(value)) = (key.bind(py), value) else {
                continue;
            };
            let value = value.bind(py);
            if is_module
                && let Ok(parts) = value.cast::<PyDict>()
                && let Ok(name) = key.cast::<PyString>()
                && ["_modules", "_parameters", "_buffers"]
                    .iter()
                    .any(|own| name == own)
            {
                let text = (path.clone(), Keys::Parts);
                self.dicts.entry(address(parts.as_any())).or_insert(text);
            }
            self.left.push((value.clone(), joined(&path, keys, key)));
        }
    }

    /// A value as an expression.
    fn of(&self, own: &Bound<'py, PyAny>) -> String {
        match self.objects.get(&address(own)) {
            Some(path) => path.clone(),
            None => short(own, 0),
        }
    }

    fn entry(&self, dict: &Bound<'py, PyDict>, key: &Bound<'py, PyAny>) -> String {
        match self.dicts.get(&address(dict.as_any())) {
            Some((path, keys)) => joined(path, *keys, key),
            None => format!("a dict[{}]", short(key, 0)),
        }
    }
}

fn joined(path: &str, keys: Keys, key: &Bound<'_, PyAny>) -> String {
    let name = key.cast::<PyString>().ok().map(|own| own.to_string());
    match (keys, name) {
        (Keys::Parts, Some(name)) if name.parse::<usize>().is_ok() => format!("{path}[{name}]"),
        (Keys::Attributes | Keys::Parts, Some(name)) if path.is_empty() => name,
        (Keys::Attributes | Keys::Parts, Some(name)) => format!("{path}.{name}"),
        _ => format!("{path}[{}]", short(key, 0)),
    }
}

impl PyGuards {
    /// All guards, in words.
    pub(super) fn texts(&self, program: &Bound<'_, PyAny>) -> PyResult<Vec<GuardText>> {
        let py = program.py();
        let paths = Paths::new(py, &self.reads, program)?;
        let text = |own: Guard<'_>| {
            let line = own.line(py, &self.reads);
            (own.kind(), own.place(py, &paths), own.condition(py), line)
        };
        Ok(Guard::all(&self.reads).into_iter().map(text).collect())
    }

    /// The first failing guard, in words; None if all hold.
    pub(super) fn failed(&self, program: &Bound<'_, PyAny>) -> PyResult<Option<Failed>> {
        let py = program.py();
        if self.are_current(py) {
            return Ok(None);
        }
        let mut all = Guard::all_and_bases(&self.reads);
        let Some(own) = all.find(|own| !own.holds(py).unwrap_or(false)) else {
            return Ok(None);
        };
        let paths = Paths::new(py, &self.reads, program)?;
        let (then, mut now) = (own.then(py), own.found(py));
        if then == now {
            now = "another one".to_owned();
        }
        Ok(Some((
            own.place(py, &paths),
            then,
            now,
            own.line(py, &self.reads),
        )))
    }
}
