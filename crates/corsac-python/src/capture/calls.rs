//! Calls that programs make.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyCFunction, PyComplex, PyDict, PyFloat, PyFunction, PyInt, PyList, PyModule, PyString,
    PyTuple, PyType,
};

use super::cpython::{self, Frame, Slots, name_in_c};
use super::effects::{Effect, Purpose};
use super::guards::address;
use super::iteration::parts;
use super::look::{
    Look, Step, called_name, full_name, is_atom, is_class, is_constant, is_in_python,
    is_number_class_of_numpy, short_name,
};
use super::state::{DEEPEST, Kind};

impl<'py> Look<'_, 'py> {
    /// Records a check whether an object is an instance of a class, or derived from it.
    pub(super) fn class_question(
        &mut self,
        object: &Bound<'py, PyAny>,
        class: &Bound<'py, PyAny>,
    ) -> Step {
        if !is_atom(object) && !self.is_tensor(object) {
            self.state.reads.kind(object);
        }
        let kind = match object.cast::<PyType>() {
            Ok(class) => class.clone(),
            Err(_) => object.get_type(),
        };
        self.state
            .reads
            .lookup(&kind, intern!(self.py, "__class__"));
        if let Ok(classes) = class.cast::<PyTuple>() {
            for own in classes {
                self.class_question(object, &own)?;
            }
            return Ok(());
        }
        if name_in_c(&class.get_type()) == "types.UnionType" {
            return Ok(());
        }
        let meta = class.get_type();
        for name in [
            intern!(self.py, "__instancecheck__"),
            intern!(self.py, "__subclasscheck__"),
        ] {
            self.state.reads.lookup(&meta, name);
        }
        Ok(())
    }

    /// Handles a call of `callable` with these arguments.
    pub(super) fn call(
        &mut self,
        callable: &Bound<'py, PyAny>,
        arguments: &[Bound<'py, PyAny>],
        depth: usize,
    ) -> Step {
        if callable.is_instance_of::<PyFunction>() {
            let mark = callable.getattr_opt(intern!(self.py, "_dynamo_marked_constant"))?;
            if mark.is_some_and(|own| own.is_truthy().unwrap_or(false)) {
                let code = callable.getattr(intern!(self.py, "__code__"))?;
                self.state.assumed = Some(address(&code));
            }
            return self.state.reads.function(callable);
        }
        if depth > DEEPEST {
            self.state.opaque("a call of a call of a call");
            return Ok(());
        }
        if let Ok(class) = callable.cast::<PyType>() {
            return self.construct(class, arguments);
        }
        let py = self.py;
        let kind = callable.get_type();
        if depth == 0 && self.is_item(callable)? {
            self.state.makes_number = true;
        }
        match &*name_in_c(&kind) {
            "method" => {
                let function = callable.getattr(intern!(py, "__func__"))?;
                let owner = callable.getattr(intern!(py, "__self__"))?;
                let mut all = vec![owner];
                all.extend_from_slice(arguments);
                self.call(&function, &all, depth + 1)
            }
            "method_descriptor" | "wrapper_descriptor" | "classmethod_descriptor" => {
                self.effect(callable, callable, arguments)
            }
            "builtin_function_or_method" | "method-wrapper" => {
                let owner = callable.getattr_opt(intern!(py, "__self__"))?;
                if let Some(owner) = &owner
                    && !owner.is_none()
                    && !owner.is_instance_of::<PyModule>()
                    && name_in_c(&owner.get_type()) != "PyCapsule"
                    && let Some(found) = self.unbound(callable, owner)?
                {
                    let mut all = vec![owner.clone()];
                    all.extend_from_slice(arguments);
                    return self.effect(&found, callable, &all);
                }
                self.effect(callable, callable, arguments)
            }
            "functools.partial" => {
                for name in [
                    intern!(py, "func"),
                    intern!(py, "args"),
                    intern!(py, "keywords"),
                ] {
                    self.state.reads.attribute(callable, name);
                }
                let keywords = callable.getattr(intern!(py, "keywords"))?;
                self.contents(&keywords)?;
                if let Some(watched) = self.state.frames.last_mut()
                    && keywords.len()? > 0
                {
                    // They come after those of the call.
                    (watched.keywords, watched.names) = (true, None);
                }
                let mut all: Vec<_> = callable
                    .getattr(intern!(py, "args"))?
                    .try_iter()?
                    .collect::<PyResult<_>>()?;
                all.extend_from_slice(arguments);
                all.extend(
                    keywords
                        .call_method0("values")?
                        .try_iter()?
                        .collect::<PyResult<Vec<_>>>()?,
                );
                let function = callable.getattr(intern!(py, "func"))?;
                self.call(&function, &all, depth + 1)
            }
            "functools._lru_cache_wrapper" => {
                // Its cached results may be dropped, and computed anew from the state that it
                // reads.
                self.symbols_used(arguments, false)?;
                if self.by_c.is_none()
                    && let Some(names) = self.names_of_arguments()
                    && arguments.iter().all(|own| self.is_key(own, 0))
                {
                    let arguments = PyTuple::new(py, arguments)?;
                    let unrecorded = self
                        .state
                        .unrecorded
                        .as_ref()
                        .map(|own| own.bind(py).clone());
                    self.state.reads.call_unrecorded(
                        callable,
                        &arguments,
                        &names,
                        unrecorded.as_ref(),
                    )
                } else {
                    self.state
                        .opaque("a function that remembers results, of values that differ");
                    Ok(())
                }
            }
            "numpy.ufunc" | "numpy._ArrayFunctionDispatcher"
                if self.is_of_numbers(callable, arguments) =>
            {
                // A function of numbers, in Python and in C, which touches no state of the program.
                self.symbols_used(arguments, false)?;
                for own in arguments {
                    self.deep(own, 0, Purpose::Compared)?;
                }
                self.state.is_skipping = true;
                Ok(())
            }
            "operator.itemgetter" | "operator.attrgetter" | "operator.methodcaller" => {
                self.getter(callable, arguments, Purpose::Moved)
            }
            // The sorting function calls its comparison.
            "functools.KeyWrapper" => Ok(()),
            "weakref.ReferenceType" if self.by_c.is_none() => {
                self.state.reads.call(callable, &PyTuple::empty(py))
            }
            "staticmethod" => {
                let function = callable.getattr(intern!(py, "__func__"))?;
                self.call(&function, arguments, depth + 1)
            }
            _ => {
                self.state.reads.kind(callable);
                let found = self.state.reads.lookup(&kind, intern!(py, "__call__"));
                match found {
                    Some(found) if Slots::of(&kind).call == self.effects.in_python.call => {
                        let mut all = vec![callable.clone()];
                        all.extend_from_slice(arguments);
                        self.call(&found, &all, depth + 1)
                    }
                    _ => {
                        self.state.unknown("calls a", &full_name(&kind));
                        Ok(())
                    }
                }
            }
        }
    }

    /// Whether a callable is `Tensor.item`, bound or not.
    fn is_item(&self, callable: &Bound<'py, PyAny>) -> PyResult<bool> {
        let name = intern!(self.py, "item");
        let of_tensor = cpython::lookup(self.effects.tensor.bind(self.py).cast()?, name);
        if of_tensor.is_some_and(|own| own.is(callable)) {
            return Ok(true);
        }
        if !callable.is_exact_instance_of::<PyCFunction>() {
            return Ok(false);
        }
        let owner = callable.getattr(intern!(self.py, "__self__"))?;
        Ok(self.is_tensor(&owner) && short_name(callable) == "item")
    }

    /// Whether a function of NumPy gets only numbers, texts and containers of them, to compute
    /// another one; it does not read or write files.
    fn is_of_numbers(&self, function: &Bound<'py, PyAny>, arguments: &[Bound<'py, PyAny>]) -> bool {
        const FILES: [&str; 6] = ["save", "load", "memmap", "genfrom", "from", "to"];
        let name = short_name(function);
        self.by_c.is_none()
            && !FILES.iter().any(|own| name.starts_with(own))
            && arguments.iter().all(|own| self.is_number(own, 0))
    }

    fn is_number(&self, own: &Bound<'py, PyAny>, depth: usize) -> bool {
        let is_container = own.is_instance_of::<PyTuple>() || own.is_exact_instance_of::<PyList>();
        if is_container && depth < DEEPEST {
            let parts = own
                .try_iter()
                .map(|parts| parts.collect::<PyResult<Vec<_>>>());
            return matches!(parts, Ok(Ok(parts)) if parts.iter().all(|own| self.is_number(own, depth + 1)));
        }
        is_constant(own) || is_class(own)
    }

    /// Names of the keyword arguments of the current call, which come last; None if they are not
    /// known.
    pub(super) fn names_of_arguments(&self) -> Option<Bound<'py, PyTuple>> {
        let watched = self.state.frames.last().filter(|own| own.keywords);
        let Some(watched) = watched else {
            return Some(PyTuple::empty(self.py));
        };
        let names = watched.names.as_ref()?.bind(self.py);
        names.cast::<PyTuple>().ok().cloned()
    }

    /// The unbound method of a bound method of C, from the class that defines it.
    pub(super) fn unbound(
        &self,
        bound: &Bound<'py, PyAny>,
        owner: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let name = bound
            .getattr(intern!(self.py, "__name__"))?
            .cast_into::<PyString>()?;
        if let Some(class) = bound.getattr_opt(intern!(self.py, "__objclass__"))?
            && let Ok(class) = class.cast_into::<PyType>()
        {
            return Ok(cpython::lookup(&class, &name));
        }
        let kind = match owner.cast::<PyType>() {
            Ok(class) => class.clone(),
            Err(_) => owner.get_type(),
        };
        for class in kind.mro().iter().chain(owner.get_type().mro()) {
            let class = class.cast_into::<PyType>()?;
            let found = cpython::class_dict(&class)
                .map(|own| own.get_item(&name))
                .transpose()?
                .flatten();
            if let Some(found) = found
                && matches!(
                    &*name_in_c(&found.get_type()),
                    "method_descriptor" | "classmethod_descriptor"
                )
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Handles a call of a function of C.
    pub(super) fn effect(
        &mut self,
        function: &Bound<'py, PyAny>,
        called: &Bound<'py, PyAny>,
        arguments: &[Bound<'py, PyAny>],
    ) -> Step {
        let py = self.py;
        if self.state.refused.contains(&address(function)) {
            self.state
                .refuse(Kind::Torch, format!("it calls {}", called_name(called)));
            return Ok(());
        }
        let Some(effect) = self.effects.of(function)? else {
            self.state
                .opaque(format!("it calls {}", called_name(called)));
            return Ok(());
        };
        let short = &*short_name(called);
        if self.by_c.is_some()
            && (!effect.is_reading() || matches!(short, "hash" | "is_" | "is_not"))
        {
            let name = called_name(called);
            self.state.opaque(format!("something else calls {name}"));
            return Ok(());
        }
        let purpose = self.effects.purpose(function, effect);
        self.uses_for(effect, purpose, self.effects.moves(function));
        // With two arguments, `iter` compares.
        let compares = short == "iter" && arguments.len() > 1;
        let moves = matches!(effect, Effect::Torch | Effect::Prints)
            || (self.effects.moves(function) && !compares);
        let used = match arguments {
            // A length is that of a container, whatever is in it.
            _ if short == "len" => &[],
            // The element found is the one that was stored.
            [_, key, ..] if effect == Effect::Item => std::slice::from_ref(key),
            _ => arguments,
        };
        self.symbols_used(used, moves)?;
        let first = arguments.first();
        if self.effects.calls_arguments(function) || compares {
            self.called_among(arguments)?;
        }
        if effect != Effect::ReadsAll && effect != Effect::Item {
            arguments
                .iter()
                .try_for_each(|own| self.elements(own, purpose))?;
        }
        match effect {
            Effect::Torch => self.torch(|| called_name(called)),
            Effect::Nothing => {}
            Effect::Reads => {
                for own in arguments {
                    self.contents(own)?;
                }
            }
            Effect::Uses => self.uses(arguments)?,
            Effect::ReadsAll => {
                if let ("is_" | "is_not", [left, right]) = (short, arguments) {
                    let pair = (left.clone().unbind(), right.clone().unbind());
                    self.state.compared.push(pair);
                }
                for own in arguments {
                    self.deep(own, 0, purpose)?;
                }
                if short == "hash"
                    && let Some(first) = first
                    && !is_constant(first)
                    && !first.is_instance_of::<PyTuple>()
                {
                    self.state.opaque("it asks for the hash of an object");
                }
            }
            Effect::Item => match arguments {
                [container, key, ..] => self.item_of_any(container, key)?,
                // The key is not known.
                [container] => {
                    self.deep(container, 0, Purpose::Compared)?;
                    if short == "__getitem__" {
                        self.made_by_factory(container)?;
                    }
                }
                [] => self.state.opaque("something else reads items"),
            },
            Effect::Attribute => {
                if short == "vars" {
                    match first {
                        Some(own) if !is_class(own) && !own.is_instance_of::<PyModule>() => {
                            self.attribute(own, intern!(py, "__dict__"))?;
                        }
                        _ => self.state.opaque("it asks for variables"),
                    }
                } else if let [object, name, ..] = arguments
                    && let Ok(name) = name.cast::<PyString>()
                {
                    match short == "__getattribute__" && !self.is_tensor(object) {
                        // Not called by the class's own `__getattribute__`, which reads in another
                        // way.
                        true if object.is_instance_of::<PyType>() => {
                            self.state
                                .opaque("it reads an attribute of a class as of an object");
                        }
                        true => self.instance_attribute(object, &object.get_type(), name)?,
                        false => self.attribute(object, name)?,
                    }
                }
            }
            Effect::Class => {
                if let [object, class, ..] = arguments {
                    self.class_question(object, class)?;
                }
            }
            Effect::ClassOf => {
                if let [class, object, ..] = arguments {
                    self.class_question(object, class)?;
                }
            }
            Effect::Copies => {
                if let Some(first) = first {
                    self.state.reads.kind(first);
                    self.state.reads.whole_class(&first.get_type());
                    if let Some(own) = self.state.attributes(first) {
                        self.state.reads.contents(&own)?;
                    }
                }
            }
            Effect::Identity => {
                if let Some(first) = first.filter(|_| !self.copies) {
                    self.state.identities.push(first.clone().unbind());
                }
            }
            Effect::Writes => {
                if let Some(first) = first {
                    let name = arguments.get(1).and_then(|own| own.cast::<PyString>().ok());
                    let is_attribute = short.ends_with("attr") || short.ends_with("attr__");
                    match name {
                        _ if self.is_tensor(first) && !is_attribute => {
                            self.torch(|| called_name(called));
                        }
                        Some(name) if is_attribute => {
                            let is_raw = short.ends_with("attr__");
                            let deletes = short == "__delattr__";
                            match is_raw && !self.is_tensor(first) {
                                true => self.write_attribute(first, name, deletes)?,
                                false => self.attribute_is_written(first, name, short)?,
                            }
                        }
                        _ => self.write(first, &called_name(called))?,
                    }
                }
                self.uses(arguments.get(1..).unwrap_or_default())?;
            }
            Effect::Appends => {
                if let Some(first) = first {
                    self.append(first)?;
                }
            }
            Effect::Advances => {
                if let Some(first) = first {
                    self.advance(first)?;
                }
            }
            Effect::Asked => {
                if arguments.iter().any(|own| self.is_tensor(own)) {
                    self.torch(|| called_name(called));
                } else if arguments.len() > 2 {
                    self.state
                        .opaque(format!("it calls {}", called_name(called)));
                } else {
                    self.state
                        .reads
                        .call(function, &PyTuple::new(py, arguments)?)?;
                }
            }
            Effect::Context => {
                self.variable_of_context(arguments, short)?;
            }
            Effect::Registered => {
                for own in arguments {
                    if let Ok(class) = own.cast::<PyType>() {
                        self.state.reads.lookup(class, intern!(py, "__class__"));
                    } else if !is_constant(own) && !self.is_tensor(own) {
                        self.state.reads.kind(own);
                        self.state
                            .reads
                            .lookup(&own.get_type(), intern!(py, "__class__"));
                    }
                }
                let token = self.effects.cache_token.bind(py).clone();
                self.state.reads.call(&token, &PyTuple::empty(py))?;
            }
            Effect::Calls => {
                let Some((first, rest)) = arguments.split_first() else {
                    return Ok(());
                };
                if short == "call" {
                    return self.call(first, rest, 1);
                }
                self.symbols_taken(None);
                self.uses(rest)?;
                let taken = self.called_by_c(first, Purpose::Moved)?;
                rest.iter().try_for_each(|own| self.elements(own, taken))?;
            }
            Effect::Prints => self.print(called, arguments)?,
        }
        Ok(())
    }

    /// Records the use that C code of this instruction makes of results of Python functions; and
    /// where other C code calls it, the use that it makes of its arguments.
    fn uses_for(&mut self, effect: Effect, purpose: Purpose, moves: bool) {
        let least = match effect {
            Effect::Reads | Effect::Uses | Effect::Class | Effect::ClassOf | Effect::Writes => {
                Purpose::Read
            }
            _ => Purpose::Moved,
        };
        match &mut self.by_c {
            // It reads the contents of its arguments, which are elements themselves.
            Some(taken) if purpose > Purpose::Moved => {
                *taken = purpose.max(Purpose::Compared).max(*taken);
            }
            Some(taken) => *taken = least.max(*taken),
            None => {
                if let Some(watched) = self.state.frames.last_mut() {
                    let least = if moves { Purpose::Moved } else { least };
                    watched.purpose = purpose.max(least).max(watched.purpose);
                }
            }
        }
    }

    /// Handles a call that prints, which may be done later.
    fn print(&mut self, called: &Bound<'py, PyAny>, arguments: &[Bound<'py, PyAny>]) -> Step {
        let owner = called.getattr_opt(intern!(self.py, "__self__"))?;
        let is_method = owner.is_some_and(|own| !own.is_instance_of::<PyModule>());
        // A method has its object already.
        let given = if is_method {
            &arguments[1..]
        } else {
            arguments
        };
        let given = PyTuple::new(self.py, given)?;
        let Some(prints) = &self.state.prints else {
            return Ok(());
        };
        let why: Option<String> = prints
            .call1(self.py, (called, given, self.names_of_arguments()))?
            .extract(self.py)?;
        self.state.is_skipping = why.is_none();
        if let Some(why) = why {
            self.state.refuse(Kind::Prints, why);
        }
        Ok(())
    }

    /// Records that a context variable is read, perhaps with a default, or set. One that has been
    /// set has to have its old value again in the end.
    pub(super) fn variable_of_context(
        &mut self,
        arguments: &[Bound<'py, PyAny>],
        method: &str,
    ) -> Step {
        let Some(variable) = arguments.first() else {
            return Ok(());
        };
        let asked = match method {
            "get" => arguments,
            _ => std::slice::from_ref(variable),
        };
        if !self.state.variables.contains(&address(variable))
            && let Some(get) = cpython::lookup(&variable.get_type(), intern!(self.py, "get"))
        {
            let asked = PyTuple::new(self.py, asked)?;
            self.state.reads.call(&get, &asked)?;
        }
        if method != "get" {
            self.state.variables.insert(address(variable));
        }
        Ok(())
    }

    /// Records a read of an item by a function that takes any container.
    pub(super) fn item_of_any(
        &mut self,
        container: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
    ) -> Step {
        match container.cast::<PyDict>() {
            Ok(dict) => self.entry(dict, key),
            Err(_) => self.item(container, key),
        }
    }

    /// Handles the creation of an instance of a class.
    pub(super) fn construct(
        &mut self,
        class: &Bound<'py, PyType>,
        arguments: &[Bound<'py, PyAny>],
    ) -> Step {
        let py = self.py;
        let meta = class.get_type();
        let made_by = self.state.reads.lookup(&meta, intern!(py, "__call__"));
        if made_by.is_some_and(|own| is_in_python(&own)) {
            return Ok(());
        }
        if class.is(py.get_type::<PyType>()) {
            match arguments {
                [object] => {
                    if !is_atom(object) && !self.is_tensor(object) {
                        self.state.reads.kind(object);
                    }
                }
                _ => self.state.opaque("it makes a class"),
            }
            return Ok(());
        }
        let is_number = class.is(py.get_type::<PyInt>())
            || class.is(py.get_type::<PyFloat>())
            || class.is(py.get_type::<PyBool>())
            || class.is(py.get_type::<PyComplex>());
        if let [own] = arguments {
            self.state.makes_number = is_number && self.is_tensor(own);
        }
        // An enumeration may begin with a number.
        let moves = match &*name_in_c(class) {
            // Of an integer it is that integer.
            "int" => matches!(arguments, [own] if own.is_exact_instance_of::<PyInt>()),
            "enumerate" => arguments.len() == 1,
            _ => self.effects.makes_of_values(class),
        };
        self.symbols_used(arguments, moves)?;
        let effect = self.effects.of_class(class);
        let purpose = self.effects.purpose(class, Effect::Uses);
        if let Some(effect) = effect {
            self.uses_for(effect, purpose, moves);
        }
        if class.is_subclass_of::<PyString>()? {
            arguments
                .iter()
                .try_for_each(|own| self.deep(own, 0, Purpose::Printed))?;
        }
        for name in [intern!(py, "__new__"), intern!(py, "__init__")] {
            self.state.reads.lookup(class, name);
        }
        match effect {
            Some(Effect::Calls) if self.by_c.is_some() => {
                let name = full_name(class);
                self.state.opaque(format!("something else makes a {name}"));
            }
            Some(Effect::Calls) => {
                // Filtering reads truth values.
                let maps = ["map", "itertools.starmap"].contains(&&*name_in_c(class));
                self.symbols_taken(arguments.first().filter(|_| maps));
                let Some((first, rest)) = arguments.split_first() else {
                    return Ok(());
                };
                self.uses(rest)?;
                let taken = self.mapped(class, first, rest, Purpose::Moved)?;
                rest.iter().try_for_each(|own| self.elements(own, taken))?;
            }
            Some(_) => {
                if self.effects.calls_arguments(class.as_any()) {
                    self.called_among(arguments)?;
                }
                for own in arguments {
                    if is_number || !self.is_tensor(own) {
                        self.contents(own)?;
                        self.elements(own, purpose)?;
                    }
                }
            }
            None if is_number_class_of_numpy(class)
                && arguments.iter().all(|own| self.is_number(own, 0)) => {}
            None => self
                .state
                .opaque(format!("it makes a {}", full_name(class))),
        }
        Ok(())
    }

    pub(super) fn called(&mut self, frame: &Frame<'py>, count: usize) -> Step {
        let mut arguments: Vec<_> = (1..=count)
            .rev()
            .filter_map(|depth| frame.stack(depth))
            .collect();
        let below = frame.stack(count + 1);
        // A method with its object, or nothing with a function.
        let (callable, owner) = match frame.stack(count + 2) {
            Some(method) => (Some(method), below),
            None => (below, None),
        };
        if let Some(owner) = owner {
            arguments.insert(0, owner);
        }
        match callable {
            Some(callable) => self.call(&callable, &arguments, 0),
            None => Ok(()),
        }
    }

    pub(super) fn called_with_all(&mut self, frame: &Frame<'py>, flags: usize) -> Step {
        let has_keywords = flags & 1 == 1;
        let depth = if has_keywords { 2 } else { 1 };
        let (Some(positional), Some(callable)) = (frame.stack(depth), frame.stack(depth + 1))
        else {
            return Ok(());
        };
        let mut arguments = Vec::new();
        // The elements of an iterator are unknown until they are taken.
        let mut is_known = true;
        match positional.cast::<PyTuple>() {
            Ok(tuple) => arguments.extend(tuple),
            Err(_) => {
                self.contents(&positional)?;
                match parts(&positional)? {
                    Some(given) => arguments.extend(given),
                    None => is_known = false,
                }
            }
        }
        if has_keywords && let Some(keywords) = frame.stack(1) {
            if let Ok(keywords) = keywords.cast::<PyDict>() {
                if let Some(watched) = self.state.frames.last_mut() {
                    watched.keywords = !keywords.is_empty();
                }
                self.state.reads.contents(keywords)?;
                arguments.extend(keywords.iter().map(|(_, value)| value));
            } else {
                self.state
                    .opaque("keywords in something else than a dictionary");
            }
        }
        match is_known {
            true => self.call(&callable, &arguments, 0)?,
            false => {
                let taken = self.called_by_c(&callable, Purpose::Moved)?;
                if taken > Purpose::Moved {
                    self.state.symbols.fix(&positional, 0)?;
                }
                self.elements(&positional, taken)?;
                arguments.iter().try_for_each(|own| self.used(own, taken))?;
            }
        }
        if let Some(watched) = self.state.frames.last_mut() {
            watched.keywords = false;
        }
        Ok(())
    }

    pub(super) fn import(
        &mut self,
        frame: &Frame<'py>,
        name: &Bound<'py, PyString>,
        level: &Bound<'py, PyAny>,
    ) -> Step {
        let py = self.py;
        let (Some(globals), Some(builtins)) = (frame.globals(), frame.builtins()) else {
            return Ok(());
        };
        self.state
            .reads
            .entry(&builtins, intern!(py, "__import__").as_any())?;
        let mut full = name.to_cow()?.into_owned();
        let level: usize = level.extract()?;
        if level > 0 {
            let package = self
                .state
                .reads
                .entry(&globals, intern!(py, "__package__").as_any())?;
            let Some(package) = package.and_then(|own| own.extract::<String>().ok()) else {
                self.state.opaque("a relative import");
                return Ok(());
            };
            let mut parts: Vec<&str> = package.split('.').collect();
            parts.truncate(parts.len().saturating_sub(level - 1));
            let package = parts.join(".");
            full = if full.is_empty() {
                package
            } else {
                format!("{package}.{full}")
            };
        }
        let modules = py.import("sys")?.getattr("modules")?;
        let modules = modules.cast::<PyDict>()?;
        let first = full.split('.').next().unwrap_or_default().to_owned();
        for own in [full, first] {
            let key = PyString::intern(py, &own);
            if self.state.reads.entry(modules, key.as_any())?.is_none() {
                self.state.refuse(Kind::Prints, format!("it imports {own}"));
            }
        }
        Ok(())
    }
}
