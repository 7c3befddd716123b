//! Changes that a program has made to existing state, as edits that can be made again.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyString};
use rustc_hash::FxHashMap;

use super::counters::Counters;
use super::cpython::{self, name_in_c};
use super::guards::{
    Address, DictRead, Place, Reads, SequenceRead, address, is_same, is_same_option, items_of,
};
use super::look::full_name;
use super::symbols::Symbols;

/// One container, and the edits to it.
pub(super) struct Change {
    /// A dictionary, a list, a set, a queue or a cell; or an object with attributes outside its
    /// dictionary.
    pub(super) container: Py<PyAny>,
    pub(super) edits: Vec<Edit>,
}

/// One edit.
pub(super) enum Edit {
    /// An entry is set.
    Set(Py<PyAny>, Py<PyAny>),
    /// An entry is deleted.
    Delete(Py<PyAny>),
    /// All elements are replaced.
    Replace(Vec<Py<PyAny>>),
    /// Elements are put at the end.
    Append(Vec<Py<PyAny>>),
    /// A cell is filled.
    Fill(Py<PyAny>),
    /// An attribute that is not in a dictionary is set.
    SetAttribute(Py<PyAny>, Py<PyAny>),
}

/// All changes, or a description of one that no edit can make again.
pub(super) type Changes = Result<Vec<Change>, String>;

/// Changes by the program that has read `reads` and has run to its end.
///
/// Places that were set to the values that they had already count as read from now on.
pub(super) fn changes(
    py: Python<'_>,
    reads: &mut Reads,
    symbols: &Symbols,
    counters: &Counters,
) -> PyResult<Changes> {
    let mut found = Vec::new();
    for (object, kind) in reads.kinds.values() {
        if !object.bind(py).get_type().is(kind) {
            return Ok(Err("the class of an object".to_owned()));
        }
    }
    for own in reads.dicts.values_mut() {
        match own.edits(py, symbols, counters)? {
            Ok(edits) => add(&mut found, own.store.bind(py).as_any(), edits),
            Err(text) => return Ok(Err(text)),
        }
    }
    for own in reads.sequences.values_mut() {
        match own.edits(py, symbols)? {
            Ok(edits) => add(&mut found, own.object.bind(py), edits),
            Err(text) => return Ok(Err(text)),
        }
    }
    for own in reads.cells.values_mut() {
        let cell = own.key.bind(py).clone();
        let now = cpython::cell_content(&cell);
        let at = address(&cell);
        if own.is_changed(now.as_ref(), symbols) || own.is_set(counters, (at, at)) {
            let Some(now) = now else {
                return Ok(Err("a variable, which is deleted".to_owned()));
            };
            add(&mut found, &cell, vec![Edit::Fill(now.unbind())]);
        }
    }
    for own in reads.attributes.values_mut() {
        let object = own.object.bind(py);
        let name = own.place.key.bind(py).cast::<PyString>()?.clone();
        let now = object.getattr(&name).ok();
        if own.place.is_changed(now.as_ref(), symbols) {
            let of_class = cpython::lookup(&object.get_type(), &name);
            let is_slot =
                of_class.is_some_and(|own| name_in_c(&own.get_type()) == "member_descriptor");
            let (true, Some(now)) = (is_slot, now) else {
                return Ok(Err(format!("attribute {name}")));
            };
            let edit = Edit::SetAttribute(name.into_any().unbind(), now.unbind());
            add(&mut found, object, vec![edit]);
        }
    }
    Ok(Ok(found))
}

fn add(found: &mut Vec<Change>, container: &Bound<'_, PyAny>, edits: Vec<Edit>) {
    if !edits.is_empty() {
        found.push(Change {
            container: container.clone().unbind(),
            edits,
        });
    }
}

/// Whether a value is a symbol, which was not there before the program ran.
fn is_new_symbol(now: Option<&Bound<'_, PyAny>>, symbols: &Symbols) -> bool {
    now.is_some_and(|own| symbols.has(own))
}

impl Place {
    /// Whether another value is there now.
    pub(super) fn is_changed(&mut self, now: Option<&Bound<'_, PyAny>>, symbols: &Symbols) -> bool {
        let is_same = is_same_option(now, self.before.as_ref()) && !is_new_symbol(now, symbols);
        self.read |= is_same;
        !is_same
    }

    /// Whether the program has set the number in a place that may hold another one in the next
    /// call.
    fn is_set(&self, counters: &Counters, place: (Address, Address)) -> bool {
        self.written && counters.is_any(place)
    }
}

impl DictRead {
    fn edits(
        &mut self,
        py: Python<'_>,
        symbols: &Symbols,
        counters: &Counters,
    ) -> PyResult<Result<Vec<Edit>, String>> {
        let store = self.store.bind(py).clone();
        let at = address(store.as_any());
        let Some(before) = &self.contents else {
            let mut edits = Vec::new();
            let mut added = FxHashMap::default();
            for own in self.entries.values_mut() {
                let now = store.get_item(&own.key)?;
                // An entry that was deleted and set again comes after the others.
                let is_moved = own.deleted && own.before.is_some() && now.is_some();
                let is_set = own.is_set(counters, (at, address(own.key.bind(py))));
                if own.is_changed(now.as_ref(), symbols) || is_moved || is_set {
                    let key = own.key.clone_ref(py);
                    if now.is_none() || is_moved {
                        edits.push(Edit::Delete(key.clone_ref(py)));
                    }
                    if let Some(now) = now {
                        added.insert(address(key.bind(py)), (key, now.unbind()));
                    }
                }
            }
            if added.len() > 1 {
                for (key, _) in items_of(&store)? {
                    let found = added.remove(&address(key.bind(py)));
                    edits.extend(found.map(|(key, value)| Edit::Set(key, value)));
                }
            }
            // Keys that are equal to those that are there.
            edits.extend(
                added
                    .into_values()
                    .map(|(key, value)| Edit::Set(key, value)),
            );
            return Ok(Ok(edits));
        };
        let now = items_of(&store)?;
        let then = PyDict::new(py);
        for (key, value) in before {
            then.set_item(key, value)?;
        }
        let mut edits = Vec::new();
        for (key, _) in before {
            if !store.contains(key)? {
                edits.push(Edit::Delete(key.clone_ref(py)));
            }
        }
        // Old entries keep their order, and new ones come after them. An entry that has moved is
        // inserted anew, with all that follow it.
        let kept: Vec<_> = before
            .iter()
            .filter(|(key, _)| store.contains(key).unwrap_or(false))
            .map(|(key, _)| key)
            .collect();
        let in_order = now
            .iter()
            .zip(&kept)
            .take_while(|(own, then)| own.0.is(*then));
        let in_order = in_order.count();
        let moved = kept.iter().skip(in_order);
        edits.extend(moved.map(|key| Edit::Delete(key.clone_ref(py))));
        for (at, (key, value)) in now.iter().enumerate() {
            let was = then.get_item(key)?.filter(|_| at < in_order);
            let is_kept = was.is_some_and(|was| is_same(value.bind(py), &was));
            let key_at = address(key.bind(py));
            let place = self.entries.get(&key_at);
            let is_set = place.is_some_and(|own| own.is_set(counters, (at, key_at)));
            if !is_kept || is_set || symbols.has(value.bind(py)) {
                edits.push(Edit::Set(key.clone_ref(py), value.clone_ref(py)));
            }
        }
        if self.deleted_before {
            return Ok(Err("a dictionary of which it reads all".to_owned()));
        }
        Ok(Ok(edits))
    }
}

impl SequenceRead {
    fn edits(&mut self, py: Python<'_>, symbols: &Symbols) -> PyResult<Result<Vec<Edit>, String>> {
        let object = self.object.bind(py);
        let now: Vec<Py<PyAny>> = object
            .try_iter()?
            .map(|own| Ok(own?.unbind()))
            .collect::<PyResult<_>>()?;
        let is_kept = |count: usize| {
            now.iter().zip(&self.items).take(count).all(|(now, then)| {
                is_same(now.bind(py), then.bind(py)) && !symbols.has(now.bind(py))
            })
        };
        let count = self.items.len();
        if now.len() == count && is_kept(count) {
            self.read = true;
            return Ok(Ok(Vec::new()));
        }
        let is_queue = cpython::is_queue(object);
        if !(object.is_instance_of::<PyList>() || object.is_instance_of::<PySet>() || is_queue) {
            return Ok(Err(format!("a {}", full_name(&object.get_type()))));
        }
        let is_bounded = is_queue && !object.getattr(intern!(py, "maxlen"))?.is_none();
        if !object.is_instance_of::<PySet>() && !is_bounded && now.len() > count && is_kept(count) {
            let added = now[count..].iter().map(|own| own.clone_ref(py)).collect();
            return Ok(Ok(vec![Edit::Append(added)]));
        }
        self.read = true;
        Ok(Ok(vec![Edit::Replace(now)]))
    }

    /// Whether another element is now at this index. A set is replaced as a whole.
    pub(super) fn is_replaced(&self, py: Python<'_>, number: usize) -> bool {
        let object = self.object.bind(py);
        if object.is_instance_of::<PySet>() {
            return false;
        }
        let now = object.get_item(number);
        !now.is_ok_and(|now| is_same(&now, self.items[number].bind(py)))
    }
}
