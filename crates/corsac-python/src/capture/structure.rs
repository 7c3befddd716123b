//! Structures of arguments and of state that programs replace: compared by contents, not by
//! identity.
//!
//! Most reads of programs are guarded by identity ([`super::guards`]). Caches that are made for
//! each text, lists of tensors, or a hidden state that each call replaces are other objects in each
//! call. A [`Structure`] holds the parts of one that a program has read: classes, keys, lengths and
//! constants have to be the same, tensors are inputs.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use rustc_hash::FxHashMap;

use super::cpython;
use super::guards::{address, is_same, items_of};

/// Expected value of a place.
pub(super) enum Structure {
    /// A constant, or a known object.
    Same(Py<PyAny>),
    /// A tensor.
    Tensor,
    /// Any number of a type, and its name in expressions.
    Number {
        name: String,
        kind: Py<PyType>,
    },
    /// The object with this number, again.
    Again(usize),
    Tuple {
        kind: Py<PyType>,
        items: Vec<Structure>,
    },
    Object(Box<Object>),
}

/// Expected parts of a mutable object, as far as they were read.
pub(super) struct Object {
    pub(super) kind: Py<PyType>,
    /// Elements of a list, a set or a queue.
    pub(super) items: Option<Vec<Structure>>,
    /// Entries of a dictionary.
    pub(super) entries: Option<Entries>,
    /// Entries of the dictionary of its attributes, which is an object with a number, too.
    pub(super) attributes: Option<Entries>,
    /// Attributes elsewhere; None for missing ones.
    pub(super) slots: Vec<(Py<PyString>, Option<Structure>)>,
    /// Content of a cell; None if it is empty.
    pub(super) content: Option<Option<Structure>>,
}

/// Expected entries of a dictionary.
pub(super) struct Entries {
    /// Keys and values, None for missing ones.
    pub(super) entries: Vec<(Py<PyAny>, Option<Structure>)>,
    /// Whether these are all entries, in this order.
    pub(super) all: bool,
}

/// Tensors and objects found in structures.
#[derive(Default)]
pub(super) struct Met<'py> {
    /// Tensors, in the order of their places; one may occur several times.
    pub(super) tensors: Vec<Bound<'py, PyAny>>,
    /// Objects by their numbers.
    pub(super) objects: Vec<Bound<'py, PyAny>>,
    /// Numbers that may differ, by their names.
    pub(super) counted: FxHashMap<String, Bound<'py, PyAny>>,
    numbers: FxHashMap<usize, usize>,
}

impl<'py> Met<'py> {
    /// Gives an object the next number; returns false if it has one.
    fn add(&mut self, object: &Bound<'py, PyAny>) -> bool {
        let number = self.objects.len();
        if self.numbers.insert(address(object), number).is_some() {
            return false;
        }
        self.objects.push(object.clone());
        true
    }
}

impl Structure {
    /// Compares a value, and collects the tensors and objects in it. Returns whether it is as
    /// expected.
    pub(super) fn matches<'py>(
        &self,
        own: &Bound<'py, PyAny>,
        tensor: &Bound<'py, PyType>,
        met: &mut Met<'py>,
    ) -> PyResult<bool> {
        let py = own.py();
        match self {
            Self::Same(then) => Ok(is_same(own, then.bind(py))),
            Self::Tensor => {
                met.tensors.push(own.clone());
                own.is_instance(tensor)
            }
            Self::Number { name, kind } => {
                met.counted.insert(name.clone(), own.clone());
                Ok(own.get_type().is(kind))
            }
            Self::Again(number) => Ok(met.objects.get(*number).is_some_and(|then| then.is(own))),
            Self::Tuple { kind, items } => {
                let Ok(tuple) = own.cast::<PyTuple>() else {
                    return Ok(false);
                };
                if !own.get_type().is(kind) || tuple.len() != items.len() {
                    return Ok(false);
                }
                met.objects.push(own.clone());
                for (now, then) in tuple.iter().zip(items) {
                    if !then.matches(&now, tensor, met)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Object(object) => object.matches(own, tensor, met),
        }
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Same(then) => visit.call(then),
            Self::Tensor | Self::Again(_) => Ok(()),
            Self::Number { kind, .. } => visit.call(kind),
            Self::Tuple { kind, items } => {
                visit.call(kind)?;
                items.iter().try_for_each(|own| own.traverse(visit))
            }
            Self::Object(object) => object.traverse(visit),
        }
    }
}

/// Whether a value, or the lack of one, is as expected.
fn option_matches<'py>(
    now: Option<&Bound<'py, PyAny>>,
    then: Option<&Structure>,
    tensor: &Bound<'py, PyType>,
    met: &mut Met<'py>,
) -> PyResult<bool> {
    match (now, then) {
        (None, None) => Ok(true),
        (Some(now), Some(then)) => then.matches(now, tensor, met),
        _ => Ok(false),
    }
}

impl Object {
    pub(super) fn matches<'py>(
        &self,
        own: &Bound<'py, PyAny>,
        tensor: &Bound<'py, PyType>,
        met: &mut Met<'py>,
    ) -> PyResult<bool> {
        // Different objects have to be different again.
        if !own.get_type().is(&self.kind) || !met.add(own) {
            return Ok(false);
        }
        if let Some(items) = &self.items {
            if own.len()? != items.len() {
                return Ok(false);
            }
            for (now, then) in own.try_iter()?.zip(items) {
                if !then.matches(&now?, tensor, met)? {
                    return Ok(false);
                }
            }
        }
        if let Some(entries) = &self.entries
            && !entries.matches(own.cast::<PyDict>()?, tensor, met)?
        {
            return Ok(false);
        }
        if let Some(attributes) = &self.attributes {
            let Some(store) = cpython::attributes(own, true) else {
                return Ok(false);
            };
            if !met.add(store.as_any()) || !attributes.matches(&store, tensor, met)? {
                return Ok(false);
            }
        }
        for (name, then) in &self.slots {
            let now = own.getattr(name).ok();
            if !option_matches(now.as_ref(), then.as_ref(), tensor, met)? {
                return Ok(false);
            }
        }
        match &self.content {
            None => Ok(true),
            Some(then) => {
                let now = cpython::cell_content(own);
                option_matches(now.as_ref(), then.as_ref(), tensor, met)
            }
        }
    }

    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.kind)?;
        for own in self.items.iter().flatten() {
            own.traverse(visit)?;
        }
        for own in [&self.entries, &self.attributes].into_iter().flatten() {
            for (key, value) in &own.entries {
                visit.call(key)?;
                value.iter().try_for_each(|own| own.traverse(visit))?;
            }
        }
        for (name, value) in &self.slots {
            visit.call(name)?;
            value.iter().try_for_each(|own| own.traverse(visit))?;
        }
        for own in self.content.iter().flatten() {
            own.traverse(visit)?;
        }
        Ok(())
    }
}

impl Entries {
    fn matches<'py>(
        &self,
        store: &Bound<'py, PyDict>,
        tensor: &Bound<'py, PyType>,
        met: &mut Met<'py>,
    ) -> PyResult<bool> {
        let py = store.py();
        if self.all {
            if store.len() != self.entries.len() {
                return Ok(false);
            }
            for ((key, now), (then_key, then)) in items_of(store)?.into_iter().zip(&self.entries) {
                let now = now.into_bound(py);
                if !is_same(key.bind(py), then_key.bind(py))
                    || !option_matches(Some(&now), then.as_ref(), tensor, met)?
                {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        for (key, then) in &self.entries {
            let now = store.get_item(key)?;
            if !option_matches(now.as_ref(), then.as_ref(), tensor, met)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
