//! Uses that C code makes of elements of iterables, and of results of functions that it calls.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyDict, PyFrozenSet, PyFunction, PyList, PyRange, PySet, PyString, PyTuple, PyType,
};

use super::cpython::{self, Frame, name_in_c};
use super::effects::{Effect, Purpose};
use super::getters::is_getter;
use super::guards::address;
use super::look::{Look, Step, full_name, is_class, is_constant, is_in_python};
use super::state::DEEPEST;

/// Iterators that give tuples of the elements that they take: shallow reads of those do not read
/// the elements.
const PAIRING: &[&str] = &[
    "zip",
    "enumerate",
    "itertools.zip_longest",
    "itertools.product",
    "itertools.combinations",
    "itertools.permutations",
    "itertools.pairwise",
];

impl<'py> Look<'_, 'py> {
    /// Handles C code that calls `callable` with unknown arguments, and uses the results for
    /// `results`. Returns the use that C functions make of the arguments; that of Python functions
    /// is seen.
    pub(super) fn called_by_c(
        &mut self,
        callable: &Bound<'py, PyAny>,
        results: Purpose,
    ) -> PyResult<Purpose> {
        let before = self.by_c.replace(Purpose::Moved);
        let called = self.call(callable, &[], 1);
        let after = std::mem::replace(&mut self.by_c, before);
        called?;
        self.given_by(callable, results, 0)?;
        Ok(after.unwrap_or(Purpose::Moved))
    }

    /// Records that the results of `callable` are used for `purpose`.
    pub(super) fn given_by(
        &mut self,
        callable: &Bound<'py, PyAny>,
        purpose: Purpose,
        depth: usize,
    ) -> Step {
        if purpose == Purpose::Moved || depth > DEEPEST {
            return Ok(());
        }
        let py = self.py;
        if callable.is_instance_of::<PyFunction>() {
            let code = callable.getattr(intern!(py, "__code__"))?;
            self.state.consumed.insert((address(&code), purpose));
            return Ok(());
        }
        match &*name_in_c(&callable.get_type()) {
            "method" | "staticmethod" => {
                self.given_by(&callable.getattr(intern!(py, "__func__"))?, purpose, depth)
            }
            "functools.partial" => {
                // C functions may return their arguments.
                self.elements(&callable.getattr(intern!(py, "args"))?, purpose)?;
                self.given_by(&callable.getattr(intern!(py, "func"))?, purpose, depth + 1)
            }
            "builtin_function_or_method" | "method-wrapper" => {
                let owner = callable.getattr_opt(intern!(py, "__self__"))?;
                owner.map_or(Ok(()), |own| self.elements(&own, purpose))
            }
            _ if is_class(callable) => Ok(()),
            _ => match cpython::lookup(&callable.get_type(), intern!(py, "__call__")) {
                Some(call) if is_in_python(&call) => self.given_by(&call, purpose, depth + 1),
                _ => Ok(()),
            },
        }
    }

    /// Records that C code uses a value for `purpose`.
    pub(super) fn used(&mut self, own: &Bound<'py, PyAny>, purpose: Purpose) -> Step {
        match purpose {
            _ if self.is_tensor(own) => Ok(()),
            Purpose::Moved => Ok(()),
            Purpose::Read => self.contents(own),
            Purpose::Compared | Purpose::Printed => self.deep(own, 1, purpose),
        }
    }

    /// The same for all elements of an iterable, whose own contents have been read.
    pub(super) fn elements(&mut self, iterable: &Bound<'py, PyAny>, purpose: Purpose) -> Step {
        if is_constant(iterable) || self.is_tensor(iterable) {
            return Ok(());
        }
        if self.is_iterator(iterable) {
            return self.sources(iterable, purpose, false, 0);
        }
        if purpose == Purpose::Moved {
            return Ok(());
        }
        if let Some(parts) = parts(iterable)? {
            return parts.iter().try_for_each(|own| self.used(own, purpose));
        }
        // Python methods return them.
        for name in ["__iter__", "__next__", "__getitem__"] {
            let name = PyString::intern(self.py, name);
            if let Some(found) = cpython::lookup(&iterable.get_type(), &name)
                && is_in_python(&found)
            {
                self.given_by(&found, purpose, 0)?;
            }
        }
        Ok(())
    }

    /// Records that the elements left in an iterator are used for `purpose`, with the calls that it
    /// makes for them. `next_only` if one element is taken.
    pub(super) fn sources(
        &mut self,
        iterator: &Bound<'py, PyAny>,
        purpose: Purpose,
        next_only: bool,
        depth: usize,
    ) -> Step {
        let py = self.py;
        let kind = iterator.get_type();
        let name = name_in_c(&kind);
        if name == "generator" {
            let code = iterator.getattr(intern!(py, "gi_code"))?;
            if purpose > Purpose::Moved {
                self.state.consumed.insert((address(&code), purpose));
            }
            return Ok(());
        }
        let purpose = match PAIRING.contains(&&*name) && purpose == Purpose::Read {
            true => Purpose::Moved,
            false => purpose,
        };
        let effect = self.effects.of_class(&kind);
        if purpose == Purpose::Moved && effect.is_none() {
            return Ok(());
        }
        let is_of_program = cpython::is_of_program(&kind);
        let left = match is_of_program || depth > DEEPEST {
            true => None,
            false => Remaining::of(iterator),
        };
        let Some(left) = left else {
            if is_of_program || purpose > Purpose::Moved {
                let name = full_name(&kind);
                self.state
                    .opaque(format!("{purpose} of what a {name} gives"));
            }
            return Ok(());
        };
        if next_only && let Some((sequence, at)) = left.place() {
            return match sequence.get_item(at) {
                Ok(next) => self.used(&next, purpose),
                Err(_) => Ok(()),
            };
        }
        // Grouping compares, whatever the use of the groups.
        let mut purposes = vec![purpose, self.effects.purpose(kind.as_any(), Effect::Uses)];
        let Remaining { mut given, state } = left;
        if effect == Some(Effect::Calls) && !given.is_empty() {
            let function = given.remove(0);
            purposes.push(self.mapped(&kind, &function, &given, purpose)?);
        }
        if let Some(state) = state {
            match (&*name, state.cast::<PyTuple>()) {
                ("itertools.chain", Ok(state)) => {
                    given = self.chained(state, purpose, next_only, depth)?;
                }
                (_, Ok(state)) => given.extend(state),
                _ => given.push(state),
            }
        }
        for own in &given {
            for purpose in &purposes {
                match self.is_iterator(own) {
                    true => self.sources(own, *purpose, next_only, depth + 1)?,
                    false if own.is_instance_of::<PyFunction>() => {
                        self.given_by(own, *purpose, 0)?;
                    }
                    false => self.elements(own, *purpose)?,
                }
            }
        }
        Ok(())
    }

    /// Iterables left in an `itertools.chain`, whose state has an iterator of them and the one that
    /// elements are being taken from.
    fn chained(
        &mut self,
        state: &Bound<'py, PyTuple>,
        purpose: Purpose,
        next_only: bool,
        depth: usize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut given: Vec<_> = state.iter().skip(1).collect();
        let left = state.get_item(0)?;
        if name_in_c(&left.get_type()) == "tuple_iterator" {
            let left = Remaining::of(&left).map_or_else(Vec::new, |own| own.given);
            for iterables in left {
                given.extend(parts(&iterables)?.unwrap_or_default());
            }
        } else {
            // All elements of the iterables that it has left are used.
            let purpose = match purpose {
                Purpose::Moved => Purpose::Read,
                _ => Purpose::Compared.max(purpose),
            };
            self.sources(&left, purpose, next_only, depth + 1)?;
        }
        Ok(given)
    }

    /// Handles a class of C whose instances call `function` with the elements of `iterables`, and
    /// whose results are used for `purpose`. Returns the use made of those elements.
    pub(super) fn mapped(
        &mut self,
        class: &Bound<'py, PyType>,
        function: &Bound<'py, PyAny>,
        iterables: &[Bound<'py, PyAny>],
        purpose: Purpose,
    ) -> PyResult<Purpose> {
        let (results, arguments) = match &*name_in_c(class) {
            "map" => (purpose, Purpose::Moved),
            // Each element has the arguments in it.
            "itertools.starmap" => (purpose, Purpose::Read),
            // Filtering reads truth values.
            _ => (Purpose::Read, Purpose::Moved),
        };
        if function.is_none() {
            return Ok(Purpose::Read);
        }
        if is_getter(function)
            && let [iterable] = iterables
        {
            self.got(function, iterable, results)?;
            return Ok(results.max(arguments));
        }
        let taken = self.called_by_c(function, results)?;
        Ok(taken.max(arguments))
    }

    /// Records that a frame returns or yields a value to C code, which may use it.
    pub(super) fn gives(&mut self, frame: &Frame<'py>, own: &Bound<'py, PyAny>) -> Step {
        if is_constant(own) || self.is_tensor(own) {
            return Ok(());
        }
        if frame.is_called_by_c()
            && let Some(caller) = self.state.frames.iter().rev().nth(1)
        {
            self.used(own, caller.purpose)?;
        }
        if !self.state.consumed.is_empty() {
            let code = frame.code_address();
            for purpose in [Purpose::Read, Purpose::Compared, Purpose::Printed] {
                if self.state.consumed.contains(&(code, purpose)) {
                    self.used(own, purpose)?;
                }
            }
        }
        Ok(())
    }
}

/// Elements left in an iterable of C, perhaps with those taken already; None if they are not known.
pub(super) fn elements_left<'py>(
    iterable: &Bound<'py, PyAny>,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let name = name_in_c(&iterable.get_type());
    if !name.ends_with("iterator") || name == "callable_iterator" {
        return parts(iterable);
    }
    match Remaining::of(iterable).and_then(|own| own.given.into_iter().next()) {
        Some(sequence) => parts(&sequence),
        None => Ok(None),
    }
}

/// State of an iterator of C according to `__reduce__`, without anything being taken.
pub(super) struct Remaining<'py> {
    /// Arguments that make an equal iterator.
    pub(super) given: Vec<Bound<'py, PyAny>>,
    /// Position of that iterator.
    state: Option<Bound<'py, PyAny>>,
}

impl<'py> Remaining<'py> {
    /// None if the iterator cannot be reduced.
    pub(super) fn of(iterator: &Bound<'py, PyAny>) -> Option<Self> {
        let said = iterator
            .call_method0(intern!(iterator.py(), "__reduce__"))
            .ok()?
            .cast_into::<PyTuple>()
            .ok()?;
        let given = said.get_item(1).ok()?.cast_into::<PyTuple>().ok()?;
        Some(Self {
            given: given.iter().collect(),
            state: said.get_item(2).ok(),
        })
    }

    /// The list or tuple that it takes elements from, and the index of the next one.
    fn place(&self) -> Option<(&Bound<'py, PyAny>, usize)> {
        let [sequence] = &self.given[..] else {
            return None;
        };
        let is_plain =
            sequence.is_exact_instance_of::<PyList>() || sequence.is_exact_instance_of::<PyTuple>();
        let at = self.state.as_ref().filter(|_| is_plain)?.extract().ok()?;
        Some((sequence, at))
    }
}

/// Elements of a container of C, in order; None for other objects.
pub(super) fn parts<'py>(own: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let is_container = own.is_instance_of::<PyTuple>()
        || own.is_instance_of::<PyList>()
        || own.is_instance_of::<PyDict>()
        || own.is_instance_of::<PySet>()
        || own.is_instance_of::<PyFrozenSet>()
        || own.is_instance_of::<PyRange>()
        || cpython::is_queue(own)
        || cpython::is_view(own);
    // Another iteration that is defined in Python is used there.
    let iter = cpython::lookup(&own.get_type(), intern!(own.py(), "__iter__"));
    if !is_container || iter.is_some_and(|own| is_in_python(&own)) {
        return Ok(None);
    }
    let all: PyResult<Vec<_>> = own.try_iter()?.collect();
    Ok(Some(all?))
}
