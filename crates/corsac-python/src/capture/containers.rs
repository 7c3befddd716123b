//! Reads and writes of containers and values by programs.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyDict, PyFloat, PyFrozenSet, PyFunction, PyInt, PyList, PyModule, PySet, PyString, PyTuple,
    PyType,
};

use super::cpython::{self, Slots, name_in_c};
use super::effects::Purpose;
use super::guards::address;
use super::iteration::parts;
use super::look::{Look, PROXY, Step, full_name, is_class, is_constant, is_in_python};
use super::opcode as op;
use super::state::{DEEPEST, MOST};

/// Methods by which functions of C convert objects and compute with them.
const CONVERSIONS: [&str; 12] = [
    "__int__",
    "__float__",
    "__index__",
    "__complex__",
    "__abs__",
    "__round__",
    "__trunc__",
    "__floor__",
    "__ceil__",
    "__divmod__",
    "__rdivmod__",
    "__reversed__",
];

impl<'py> Look<'_, 'py> {
    /// Records a shallow read of a container: its length, its truth value, its elements in turn.
    pub(super) fn contents(&mut self, object: &Bound<'py, PyAny>) -> Step {
        if is_constant(object) || is_class(object) || object.is_instance_of::<PyFunction>() {
            return Ok(());
        }
        if self.is_tensor(object) {
            self.torch(|| "what reads a tensor".to_owned());
            return Ok(());
        }
        if name_in_c(&object.get_type()) == PROXY {
            return match cpython::viewed(object) {
                Some(dict) => self.contents(dict.as_any()),
                None => {
                    self.state
                        .opaque("it reads a proxy of something else than a dictionary");
                    Ok(())
                }
            };
        }
        if let Ok(dict) = object.cast::<PyDict>() {
            return match dict.len() > MOST {
                true => {
                    self.state.opaque("it reads a dictionary that is large");
                    Ok(())
                }
                false => self.state.reads.contents(dict),
            };
        }
        let is_sequence = object.is_instance_of::<PyList>()
            || object.is_instance_of::<PySet>()
            || cpython::is_queue(object);
        let kind = object.get_type();
        let name = name_in_c(&kind);
        if is_sequence {
            for method in [intern!(self.py, "__iter__"), intern!(self.py, "__len__")] {
                if cpython::is_of_program(&kind) && self.special(object, method) == Some(true) {
                    // C reads something else of it.
                    let name = full_name(&kind);
                    self.state.opaque(format!("it reads what a {name} holds"));
                    return Ok(());
                }
            }
            if object.len()? > MOST {
                self.state.opaque("it reads a container that is large");
                return Ok(());
            }
            return self.state.reads.sequence(object, true);
        }
        if object.is_instance_of::<PyTuple>()
            || object.is_instance_of::<PyFrozenSet>()
            || object.is_instance_of::<PyString>()
            || object.is_instance_of::<PyInt>()
            || object.is_instance_of::<PyFloat>()
        {
            return Ok(());
        }
        if cpython::is_view(object) {
            let dict = cpython::viewed(object);
            return dict.map_or(Ok(()), |own| self.state.reads.contents(&own));
        }
        match &*name {
            "builtin_function_or_method"
            | "method_descriptor"
            | "wrapper_descriptor"
            | "method"
            | "method-wrapper"
            | "module"
            | "super"
            | "cell"
            | "object"
            | "property"
            | "staticmethod"
            | "classmethod"
            | "types.SimpleNamespace"
            | "functools.partial"
            | "weakref.ReferenceType"
            | "frame"
            | "traceback" => Ok(()),
            _ if self.is_iterator(object) => {
                self.state.write(
                    object,
                    "it takes something from an iterator that it did not make",
                );
                self.sources(object, Purpose::Moved, false, 0)
            }
            _ => {
                if cpython::is_of_program(&kind) {
                    for method in CONVERSIONS {
                        let method = PyString::intern(self.py, method);
                        self.state.reads.lookup(&kind, &method);
                    }
                }
                let mut is_known = true;
                for method in [
                    intern!(self.py, "__bool__"),
                    intern!(self.py, "__len__"),
                    intern!(self.py, "__iter__"),
                ] {
                    is_known &= self.special(object, method) != Some(false);
                }
                if !is_known {
                    self.state
                        .opaque(format!("it reads what a {} holds", full_name(&kind)));
                }
                Ok(())
            }
        }
    }

    pub(super) fn is_iterator(&self, object: &Bound<'py, PyAny>) -> bool {
        let kind = object.get_type();
        let next = cpython::lookup(&kind, intern!(self.py, "__next__"));
        next.is_some_and(|own| !is_in_python(&own))
    }

    /// Records a deep read of a value: it is compared, or converted to text.
    pub(super) fn deep(
        &mut self,
        object: &Bound<'py, PyAny>,
        depth: usize,
        purpose: Purpose,
    ) -> Step {
        if is_constant(object) || is_class(object) {
            return Ok(());
        }
        if self.is_tensor(object) {
            // Elements of containers are compared by operators that are recorded, if they are.
            if depth == 0 {
                self.torch(|| purpose.to_string());
            }
            return Ok(());
        }
        if depth > DEEPEST {
            self.state.opaque(format!("{purpose} of deep containers"));
            return Ok(());
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            for own in tuple {
                self.deep(&own, depth + 1, purpose)?;
            }
            return Ok(());
        }
        if let Ok(dict) = object.cast::<PyDict>() {
            self.contents(object)?;
            for (key, value) in dict {
                self.deep(&key, depth + 1, purpose)?;
                self.deep(&value, depth + 1, purpose)?;
            }
            return Ok(());
        }
        // C reads the elements of a list directly, even if its class defines another iteration.
        let listed = object.cast::<PyList>().map(|own| own.iter().collect());
        if let Some(parts) = listed.map_or_else(|_| parts(object), |own| Ok(Some(own)))? {
            self.contents(object)?;
            return parts
                .iter()
                .try_for_each(|own| self.deep(own, depth + 1, purpose));
        }
        if object.is_instance_of::<PySet>() || cpython::is_queue(object) {
            return self.contents(object);
        }
        match &*name_in_c(&object.get_type()) {
            PROXY => {
                self.contents(object)?;
                return match cpython::viewed(object) {
                    Some(dict) => self.deep(dict.as_any(), depth, purpose),
                    None => Ok(()),
                };
            }
            "weakref.ReferenceType" => {
                self.state.opaque(format!("{purpose} of weak references"));
                return Ok(());
            }
            "builtin_function_or_method" | "function" | "module" | "method"
                if purpose == Purpose::Compared =>
            {
                return Ok(());
            }
            _ if self.is_iterator(object) => {
                self.contents(object)?;
                return self.sources(object, purpose, false, depth);
            }
            _ => {}
        }
        // Parts of an object that C compares or prints.
        if object.is_instance(self.effects.namespace.bind(self.py))? {
            if let Some(own) = self.state.attributes(object) {
                self.deep(own.as_any(), depth + 1, purpose)?;
            }
        } else if object.is_instance_of::<pyo3::exceptions::PyBaseException>() {
            let args = object.getattr(intern!(self.py, "args"))?;
            self.deep(&args, depth + 1, purpose)?;
        }
        self.instance(object, purpose)
    }

    /// Records the use of an object whose class defines how it is compared, printed or computed
    /// with.
    pub(super) fn instance(&mut self, object: &Bound<'py, PyAny>, purpose: Purpose) -> Step {
        let kind = object.get_type();
        self.state.reads.kind(object);
        // Reads keep the class.
        if cpython::is_of_program(&kind) && self.state.computed.insert(address(&kind)) {
            for name in op::methods_of_operators() {
                self.method(&kind, &PyString::intern(self.py, name));
            }
        }
        let is_exception = object.is_instance_of::<pyo3::exceptions::PyBaseException>();
        if !is_exception && Slots::of(&kind).new != 0 && self.effects.of_class(&kind).is_none() {
            self.state
                .opaque(format!("{purpose} of a {}", full_name(&kind)));
            return Ok(());
        }
        if purpose == Purpose::Printed && !is_exception {
            let shown = ["__repr__", "__str__", "__format__"]
                .map(|name| self.special(object, &PyString::intern(self.py, name)) == Some(true));
            if !shown.contains(&true) {
                // Its address is in the text.
                self.state
                    .opaque(format!("it makes a text of a {}", full_name(&kind)));
            }
            return Ok(());
        }
        // Without such a method, it is equal only to itself.
        self.state.strict.push(object.clone().unbind());
        self.state.reads.whole_class(&kind);
        Ok(())
    }

    /// Records a read of `container[key]`.
    pub(super) fn item(&mut self, container: &Bound<'py, PyAny>, key: &Bound<'py, PyAny>) -> Step {
        if self.is_tensor(container) || self.is_tensor(key) {
            self.state
                .reads
                .lookup(&container.get_type(), intern!(self.py, "__getitem__"));
            self.torch(|| "indexing".to_owned());
            return self.contents_of_key(key);
        }
        if is_class(container) {
            let class = container.cast::<PyType>()?;
            self.state
                .reads
                .lookup(class, intern!(self.py, "__class_getitem__"));
            let meta = class.get_type();
            self.state
                .reads
                .lookup(&meta, intern!(self.py, "__getitem__"));
            return Ok(());
        }
        if is_constant(container) {
            return Ok(());
        }
        let is_builtin = container.is_exact_instance_of::<PyTuple>()
            || container.is_exact_instance_of::<PyList>()
            || container.is_exact_instance_of::<PyDict>();
        if !is_builtin && self.special(container, intern!(self.py, "__getitem__")) == Some(true) {
            return Ok(());
        }
        if container.is_instance_of::<PyTuple>() || container.is_instance_of::<PyString>() {
            return Ok(());
        }
        if let Ok(dict) = container.cast::<PyDict>() {
            return self.entry(dict, key);
        }
        let name = name_in_c(&container.get_type());
        if name == PROXY
            && let Some(dict) = cpython::viewed(container)
        {
            return self.entry(&dict, key);
        }
        if container.is_instance_of::<PyList>() || cpython::is_queue(container) {
            return self.contents(container);
        }
        let name = full_name(&container.get_type());
        self.state.opaque(format!("it reads an item of a {name}"));
        Ok(())
    }

    /// Records the reads of an index of a tensor, which may contain lists.
    pub(super) fn contents_of_key(&mut self, key: &Bound<'py, PyAny>) -> Step {
        if let Ok(tuple) = key.cast::<PyTuple>() {
            for own in tuple {
                self.contents_of_key(&own)?;
            }
        } else if key.is_instance_of::<PyList>() {
            self.deep(key, 0, Purpose::Compared)?;
        }
        Ok(())
    }

    pub(super) fn entry(&mut self, dict: &Bound<'py, PyDict>, key: &Bound<'py, PyAny>) -> Step {
        if !self.is_key(key, 0) {
            self.state.opaque(format!(
                "a {} is a key of a dictionary",
                full_name(&key.get_type())
            ));
            return Ok(());
        }
        let found = self.state.reads.entry(dict, key)?;
        self.number_read(dict.as_any(), key, found.as_ref())?;
        if found.is_none()
            && !dict.is_exact_instance_of::<PyDict>()
            && self.special(dict.as_any(), intern!(self.py, "__missing__")) == Some(false)
        {
            self.contents(dict.as_any())?;
            self.made_by_factory(dict.as_any())?;
        }
        Ok(())
    }

    /// Records that a dictionary may call its factory for a missing entry.
    pub(super) fn made_by_factory(&mut self, dict: &Bound<'py, PyAny>) -> Step {
        let name = intern!(self.py, "default_factory");
        if let Some(factory) = dict.getattr_opt(name)?.filter(|own| !own.is_none()) {
            self.state.reads.attribute(dict, name);
            self.called_by_c(&factory, Purpose::Moved)?;
        }
        Ok(())
    }

    /// Whether looking a key up runs no Python code.
    pub(super) fn is_key(&mut self, key: &Bound<'py, PyAny>, depth: usize) -> bool {
        if is_constant(key) || is_class(key) {
            return true;
        }
        if self.is_tensor(key) {
            // They are found by identity, which differs between calls where they are results.
            self.state.identities.push(key.clone().unbind());
            return true;
        }
        if let Ok(tuple) = key.cast::<PyTuple>() {
            return depth < DEEPEST && tuple.iter().all(|own| self.is_key(&own, depth + 1));
        }
        let kind = key.get_type();
        self.state.strict.push(key.clone().unbind());
        let hash = cpython::lookup(&kind, intern!(self.py, "__hash__"));
        let plain = cpython::lookup(
            &self.py.get_type::<pyo3::PyAny>(),
            intern!(self.py, "__hash__"),
        );
        match (hash, plain) {
            (Some(own), Some(plain)) => {
                own.is(&plain)
                    || key.is_instance_of::<PyFunction>()
                    || key.is_instance_of::<PyString>()
                    || key.is_instance_of::<PyInt>()
                    // Members of enumerations, and other keys hashed by a Python method, which is
                    // seen.
                    || is_in_python(&own)
                    || key.is_instance_of::<PyFrozenSet>()
            }
            _ => false,
        }
    }

    /// Records a check of `item in container`.
    pub(super) fn contains(
        &mut self,
        container: &Bound<'py, PyAny>,
        item: &Bound<'py, PyAny>,
    ) -> Step {
        let is_hashed = container.is_instance_of::<PyDict>()
            || container.is_instance_of::<PySet>()
            || container.is_instance_of::<PyFrozenSet>();
        if self.is_tensor(container) || (self.is_tensor(item) && !is_hashed) {
            self.torch(|| "in".to_owned());
            return self.contents(container);
        }
        if self.special(container, intern!(self.py, "__contains__")) == Some(true) {
            return Ok(());
        }
        let proxied = match name_in_c(&container.get_type()) == PROXY {
            true => cpython::viewed(container),
            false => container.cast::<PyDict>().ok().cloned(),
        };
        if let Some(dict) = &proxied {
            if !self.is_key(item, 0) {
                self.state.opaque(format!(
                    "a {} is a key of a dictionary",
                    full_name(&item.get_type())
                ));
                return Ok(());
            }
            self.state.reads.entry(dict, item)?;
            return Ok(());
        }
        // A set asks for its hash.
        if !self.is_tensor(item) || !self.is_key(item, 0) {
            self.deep(item, 0, Purpose::Compared)?;
        }
        self.deep(container, 0, Purpose::Compared)
    }

    /// Records the use of a Python operator: a comparison, arithmetic. `names` are those of its
    /// methods.
    pub(super) fn operator(&mut self, operands: &[Bound<'py, PyAny>], names: &[&str]) -> Step {
        for own in operands {
            if is_constant(own) {
                continue;
            }
            let kind = own.get_type();
            if !self.is_tensor(own) && Slots::of(&kind).new != 0 {
                self.state.reads.kind(own);
            }
            for name in names {
                let name = PyString::intern(self.py, name);
                self.state.reads.lookup(&kind, &name);
            }
        }
        if operands.iter().any(|own| self.is_tensor(own)) {
            self.torch(|| "an operator".to_owned());
            return Ok(());
        }
        for own in operands {
            self.deep(own, 0, Purpose::Compared)?;
        }
        Ok(())
    }

    /// Records shallow reads of the containers among arguments.
    pub(super) fn uses(&mut self, arguments: &[Bound<'py, PyAny>]) -> Step {
        for own in arguments {
            if !self.is_tensor(own) {
                self.contents(own)?;
            }
        }
        Ok(())
    }

    /// Records that one element is taken from an iterator.
    pub(super) fn advance(&mut self, iterator: &Bound<'py, PyAny>) -> Step {
        self.state.write(
            iterator,
            "it takes something from an iterator that it did not make",
        );
        match self.is_iterator(iterator) {
            true => self.sources(iterator, Purpose::Moved, true, 0),
            false => Ok(()),
        }
    }

    /// Records a change of a container, or of an object's attributes. In the end it has to be as it
    /// was, unless the program has made it: its contents are read now, and compared then.
    pub(super) fn write(&mut self, object: &Bound<'py, PyAny>, what: &str) -> Step {
        let kind = object.get_type();
        if object.is_instance_of::<PyDict>()
            || object.is_instance_of::<PyList>()
            || object.is_instance_of::<PySet>()
            || cpython::is_queue(object)
        {
            return self.contents(object);
        }
        if let Ok(class) = object.cast::<PyType>() {
            self.state.reads.whole_class(class);
            return Ok(());
        }
        self.state.write(
            object,
            &format!("it changes a {}: {what}", full_name(&kind)),
        );
        Ok(())
    }

    /// Records that an element is put at the end of a list or a queue.
    pub(super) fn append(&mut self, object: &Bound<'py, PyAny>) -> Step {
        match object.len()? > MOST {
            true => self.contents(object),
            false => self.state.reads.sequence(object, false),
        }
    }

    /// Records that a value is converted to text.
    pub(super) fn text(&mut self, value: &Bound<'py, PyAny>) -> Step {
        self.deep(value, 0, Purpose::Printed)
    }

    /// Records a read of the truth value or the length of an object.
    pub(super) fn truth(&mut self, own: &Bound<'py, PyAny>) -> Step {
        if self.is_iterator(own) {
            return Ok(());
        }
        if own.is_instance_of::<PyModule>() {
            return Ok(());
        }
        self.contents(own)
    }
}
