//! Numbers in Python's state that each call replaces: counters, running sums.
//!
//! The first recording of a program finds a number and sets another one. If the next call finds
//! another one, the program is recorded with symbols for such numbers ([`super::symbols`]), and
//! must not depend on their values.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;

use super::changes::{Change, Edit};
use super::guards::{Address, Reads, address, is_same};
use super::look::{Look, Step};
use super::opcode as op;
use super::symbols::{Number, Pending, Symbols};

/// A dictionary and a key; or a cell, twice.
pub(super) type Counter = (Py<PyAny>, Py<PyAny>);

/// Places of numbers, and the numbers that the program has found there.
#[derive(Default)]
pub(super) struct Counters {
    /// Places that may hold another number, without those whose number itself the program has got.
    places: FxHashMap<(Address, Address), Counter>,
    /// Numbers that the program has got as symbols.
    found: FxHashMap<(Address, Address), Py<PyAny>>,
}

/// Name in expressions of the number in a place, for as long as guards keep its container.
pub(super) fn name_of(place: (Address, Address)) -> String {
    format!("state {:x} {:x}", place.0, place.1)
}

impl Counters {
    pub(super) fn new(places: Vec<Counter>) -> Self {
        let places = places.into_iter();
        Self {
            places: places
                .map(|own| ((own.0.as_ptr() as Address, own.1.as_ptr() as Address), own))
                .collect(),
            found: FxHashMap::default(),
        }
    }

    /// Whether the program does the same for any number in a place, apart from conditions: it has
    /// got symbols only.
    pub(super) fn is_any(&self, place: (Address, Address)) -> bool {
        self.places.contains_key(&place) && self.found.contains_key(&place)
    }

    /// The numbers that the program got as symbols, by their names.
    pub(super) fn used<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<FxHashMap<String, Bound<'py, PyAny>>> {
        let named = self
            .found
            .iter()
            .map(|(place, value)| (name_of(*place), value.bind(py).clone()));
        Ok(named.collect())
    }
}

impl<'py> Look<'_, 'py> {
    /// Records that the instruction reads a number in a place that may hold another one in the next
    /// call.
    pub(super) fn number_read(
        &mut self,
        container: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        found: Option<&Bound<'py, PyAny>>,
    ) -> Step {
        self.number_in_place(container, key, found, true)
    }

    /// The same; unless `is_given`, the instruction may give something else than the content of the
    /// place.
    pub(super) fn number_in_place(
        &mut self,
        container: &Bound<'py, PyAny>,
        key: &Bound<'py, PyAny>,
        found: Option<&Bound<'py, PyAny>>,
        is_given: bool,
    ) -> Step {
        let place = (address(container), address(key));
        let Some(found) = found.filter(|_| self.state.counters.places.contains_key(&place)) else {
            return Ok(());
        };
        // A number that the program itself has put there needs no symbol.
        let reads = &self.state.reads;
        let read = match container.is_instance_of::<PyDict>() {
            true => reads
                .dicts
                .get(&place.0)
                .and_then(|own| own.entries.get(&place.1)),
            false => reads.cells.get(&place.0),
        };
        let before = read
            .filter(|own| !own.written)
            .and_then(|own| own.before.as_ref());
        let is_new = before.is_none_or(|before| !found.is(before));
        let Some(value) = Number::of(found).filter(|_| !is_new && !self.state.symbols.has(found))
        else {
            return Ok(());
        };
        let is_seen = is_given
            && matches!(
                self.opcode,
                op::LOAD_ATTR | op::LOAD_GLOBAL | op::LOAD_DEREF | op::BINARY_SUBSCR
            );
        let counters = &mut self.state.counters;
        let Some(frame) = self.state.frames.last_mut().filter(|_| is_seen) else {
            // Uses by a function of C are not seen.
            counters.places.remove(&place);
            return Ok(());
        };
        frame.pending = Some(Pending::value(self.py, &name_of(place), value)?);
        counters.found.insert(place, found.clone().unbind());
        Ok(())
    }
}

/// Places of numbers that a program has replaced by others of their type.
pub(super) fn changed_numbers(
    py: Python<'_>,
    reads: &Reads,
    changes: &[Change],
    symbols: &Symbols,
) -> PyResult<Vec<Counter>> {
    let mut found = Vec::new();
    let is_number = |before: Option<&Py<PyAny>>, now: &Py<PyAny>| {
        let (Some(before), now) = (before.map(|own| own.bind(py)), now.bind(py)) else {
            return false;
        };
        Number::of(before).is_some()
            && before.get_type().is(now.get_type())
            && (symbols.has(now) || !is_same(now, before))
    };
    for change in changes {
        let container = change.container.bind(py);
        let read = reads.dicts.get(&address(container));
        for edit in &change.edits {
            match edit {
                Edit::Set(key, now) => {
                    let place = read.and_then(|own| own.entries.get(&address(key.bind(py))));
                    if place.is_some_and(|own| own.read && is_number(own.before.as_ref(), now)) {
                        found.push((change.container.clone_ref(py), key.clone_ref(py)));
                    }
                }
                Edit::Fill(now) => {
                    let place = reads.cells.get(&address(container));
                    if place.is_some_and(|own| own.read && is_number(own.before.as_ref(), now)) {
                        let cell = &change.container;
                        found.push((cell.clone_ref(py), cell.clone_ref(py)));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(found)
}
