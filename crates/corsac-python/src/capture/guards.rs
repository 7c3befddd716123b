//! State that a program reads besides its arguments, and checks that it is unchanged.
//!
//! A read is a place and the value found there: an entry of a dictionary, an attribute found in a
//! class, the elements of a list. A program that finds the same in every place that it reads takes
//! the same path; each of the places is reached through others that are guarded, so that no paths
//! from the arguments are needed.

use indexmap::IndexMap;
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::counters::Counter;
use super::cpython;
use super::effects::Effects;
use super::flat::Flat;
use super::guard_text::{Failed, Guard, GuardText};
use super::roots::Root;
use super::sites::{Family, Sites};
use super::structure::{Met, Structure};

pub(super) type Map<K, V> = IndexMap<K, V, FxBuildHasher>;
pub(super) type Address = usize;
/// A name or key, and the value there.
type Entry = (Py<PyAny>, Option<Py<PyAny>>);

pub(super) fn address(object: &Bound<'_, PyAny>) -> Address {
    object.as_ptr() as Address
}

/// Whether programs cannot tell two values apart: numbers and texts are the same if they are equal,
/// all else only if it is one object.
pub(crate) fn is_same(now: &Bound<'_, PyAny>, then: &Bound<'_, PyAny>) -> bool {
    if now.is(then) {
        return true;
    }
    if !now.get_type().is(then.get_type()) {
        return false;
    }
    if let (Ok(now), Ok(then)) = (now.cast_exact::<PyFloat>(), then.cast_exact::<PyFloat>()) {
        // Zero has two signs.
        return now.value().to_bits() == then.value().to_bits();
    }
    let is_plain = now.is_exact_instance_of::<PyInt>()
        || now.is_exact_instance_of::<PyString>()
        || now.is_exact_instance_of::<PyBytes>()
        || now.is_exact_instance_of::<PyBool>();
    if is_plain {
        return now.eq(then).unwrap_or(false);
    }
    match (now.cast::<PyTuple>(), then.cast::<PyTuple>()) {
        (Ok(items), Ok(then)) => {
            // Named tuples and sizes of tensors are compared by elements, unless they have
            // attributes.
            cpython::attributes(now, false).is_none()
                && items.len() == then.len()
                && items
                    .iter()
                    .zip(then)
                    .all(|(now, then)| is_same(&now, &then))
        }
        // Each tensor makes a new one.
        _ => is_device(now) && now.eq(then).unwrap_or(false),
    }
}

fn is_device(own: &Bound<'_, PyAny>) -> bool {
    static DEVICE: pyo3::sync::PyOnceLock<Py<PyType>> = pyo3::sync::PyOnceLock::new();
    let class = DEVICE.import(own.py(), "torch", "device");
    class.is_ok_and(|class| own.get_type().is(class))
}

pub(super) fn is_same_option(now: Option<&Bound<'_, PyAny>>, then: Option<&Py<PyAny>>) -> bool {
    match (now, then) {
        (None, None) => true,
        (Some(now), Some(then)) => is_same(now, then.bind(now.py())),
        _ => false,
    }
}

/// A place that programs read and write: an entry, an attribute, a variable.
pub(super) struct Place {
    /// Its key or name.
    pub(super) key: Py<PyAny>,
    /// The value there before the program ran.
    pub(super) before: Option<Py<PyAny>>,
    /// Whether the program has read that value; it may have only written the place.
    pub(super) read: bool,
    /// Whether the program has written the place, perhaps with the same value.
    pub(super) written: bool,
    /// Whether the program has deleted it, if it is an entry of a dictionary.
    pub(super) deleted: bool,
}

/// Keys and values, in their order.
type Items = Vec<(Py<PyAny>, Py<PyAny>)>;

/// Reads of a dictionary.
pub(super) struct DictRead {
    pub(super) store: Py<PyDict>,
    /// Version at the first read.
    pub(super) version: u64,
    pub(super) entries: Map<Address, Place>,
    /// All entries in order, if they were read.
    pub(super) contents: Option<Items>,
    /// Whether an entry was deleted before all of them were read: its position is unknown.
    pub(super) deleted_before: bool,
}

/// Contents of a list, a set or a queue.
pub(super) struct SequenceRead {
    pub(super) object: Py<PyAny>,
    pub(super) items: Vec<Py<PyAny>>,
    /// Whether the program has read them; it may have only appended.
    pub(super) read: bool,
}

/// Lookups in a class.
pub(super) struct ClassRead {
    pub(super) kind: Py<PyType>,
    /// Version at the first lookup.
    pub(super) version: u32,
    bases: Py<PyAny>,
    pub(super) names: Map<Address, Entry>,
    /// Whether all attributes of the class matter.
    pub(super) whole: bool,
}

pub(super) struct FunctionRead {
    pub(super) function: Py<PyAny>,
    pub(super) parts: [Option<Py<PyAny>>; 3],
}

/// A call and its result; the guard calls again.
pub(super) struct CallRead {
    pub(super) callable: Py<PyAny>,
    pub(super) arguments: Py<PyTuple>,
    /// Names of the keyword arguments, which come last.
    names: Py<PyTuple>,
    /// None if it raised an exception.
    pub(super) result: Option<Py<PyAny>>,
}

/// An attribute of an object that C computes.
pub(super) struct AttributeRead {
    pub(super) object: Py<PyAny>,
    pub(super) place: Place,
}

/// All reads of a program so far.
#[derive(Default)]
pub(super) struct Reads {
    pub(super) dicts: Map<Address, DictRead>,
    pub(super) classes: Map<Address, ClassRead>,
    pub(super) kinds: Map<Address, (Py<PyAny>, Py<PyType>)>,
    pub(super) sequences: Map<Address, SequenceRead>,
    /// Cells are their own keys.
    pub(super) cells: Map<Address, Place>,
    pub(super) functions: Map<Address, FunctionRead>,
    pub(super) attributes: Map<(Address, Address), AttributeRead>,
    pub(super) calls: Vec<CallRead>,
    pub(super) sites: Sites,
    asked: FxHashSet<(Address, Vec<Address>)>,
}

impl Place {
    fn new(key: &Bound<'_, PyAny>, before: Option<&Bound<'_, PyAny>>) -> Self {
        Self {
            key: key.clone().unbind(),
            before: before.map(|own| own.clone().unbind()),
            read: false,
            written: false,
            deleted: false,
        }
    }

    /// Marks the place as read, if the program finds the value from before it ran.
    fn is_read(&mut self, found: Option<&Bound<'_, PyAny>>) {
        self.read |= match (found, &self.before) {
            (None, None) => true,
            (Some(found), Some(before)) => found.is(before),
            _ => false,
        };
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.key)?;
        visit.call(&self.before)
    }
}

impl DictRead {
    /// Contents of the dictionary before the program ran, given that it holds `items` now and that
    /// nothing was deleted.
    fn as_it_was(&self, py: Python<'_>, items: Items) -> PyResult<Items> {
        // Equal keys are one key.
        let before = PyDict::new(py);
        for place in self.entries.values() {
            let value = PyTuple::new(py, place.before.iter().map(|own| own.bind(py)))?;
            before.set_item(&place.key, value)?;
        }
        let mut found = Vec::new();
        for (key, value) in items {
            match before.get_item(&key)? {
                None => found.push((key, value)),
                Some(was) => {
                    let was = was.cast_into::<PyTuple>()?;
                    found.extend(was.iter().next().map(|own| (key, own.unbind())));
                }
            }
        }
        Ok(found)
    }
}

impl Reads {
    fn dict(&mut self, store: &Bound<'_, PyDict>) -> &mut DictRead {
        self.dicts
            .entry(address(store))
            .or_insert_with(|| DictRead {
                store: store.clone().unbind(),
                version: cpython::version(store),
                entries: Map::default(),
                contents: None,
                deleted_before: false,
            })
    }

    /// Records a read of an entry of a dictionary; returns the value there.
    pub(super) fn entry<'py>(
        &mut self,
        store: &Bound<'py, PyDict>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = store.get_item(key)?;
        self.sites.note(Family::Entry, address(store), address(key));
        let known = self.dict(store).entries.entry(address(key));
        known
            .or_insert_with(|| Place::new(key, found.as_ref()))
            .is_read(found.as_ref());
        Ok(found)
    }

    /// Records that an entry of a dictionary is about to be set.
    pub(super) fn set_entry(
        &mut self,
        store: &Bound<'_, PyDict>,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let found = store.get_item(key)?;
        self.sites.note(Family::Entry, address(store), address(key));
        let read = self.dict(store);
        let known = read.entries.entry(address(key));
        known
            .or_insert_with(|| Place::new(key, found.as_ref()))
            .written = true;
        Ok(())
    }

    /// Records that an entry of a dictionary is about to be deleted, for which it has to exist.
    pub(super) fn delete_entry(
        &mut self,
        store: &Bound<'_, PyDict>,
        key: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.entry(store, key)?;
        let known = self.dict(store).entries.get_mut(&address(key));
        known.into_iter().for_each(|own| own.deleted = true);
        Ok(())
    }

    /// Records a read of all entries of a dictionary, in order.
    pub(super) fn contents(&mut self, store: &Bound<'_, PyDict>) -> PyResult<()> {
        if self.dict(store).contents.is_none() {
            let items = items_of(store)?;
            self.sites.note(Family::Contents, address(store), 0);
            let read = self.dict(store);
            read.deleted_before = read.entries.values().any(|own| own.deleted);
            read.contents = Some(read.as_it_was(store.py(), items)?);
        }
        Ok(())
    }

    fn class(&mut self, kind: &Bound<'_, PyType>) -> &mut ClassRead {
        self.classes.entry(address(kind)).or_insert_with(|| {
            // A lookup gives the class a version.
            drop(cpython::lookup(kind, pyo3::intern!(kind.py(), "__init__")));
            ClassRead {
                kind: kind.clone().unbind(),
                version: cpython::type_version(kind),
                bases: kind.mro().into_any().unbind(),
                names: Map::default(),
                whole: false,
            }
        })
    }

    /// Records a lookup in a class and its bases; returns the attribute.
    pub(super) fn lookup<'py>(
        &mut self,
        kind: &Bound<'py, PyType>,
        name: &Bound<'py, PyString>,
    ) -> Option<Bound<'py, PyAny>> {
        let found = cpython::lookup(kind, name);
        self.sites.note(Family::Class, address(kind), address(name));
        let known = self.class(kind).names.entry(address(name));
        known.or_insert_with(|| {
            (
                name.clone().into_any().unbind(),
                found.clone().map(Bound::unbind),
            )
        });
        found
    }

    /// Records that all attributes of a class matter.
    pub(super) fn whole_class(&mut self, kind: &Bound<'_, PyType>) {
        self.sites.note(Family::Class, address(kind), 0);
        self.class(kind).whole = true;
    }

    /// Records a read of the class of an object.
    pub(super) fn kind(&mut self, object: &Bound<'_, PyAny>) {
        self.sites.note(Family::Kind, address(object), 0);
        let known = self.kinds.entry(address(object));
        known.or_insert_with(|| (object.clone().unbind(), object.get_type().unbind()));
    }

    /// Records a read of a list, a set or a queue; without `read`, that an element is about to be
    /// appended.
    pub(super) fn sequence(&mut self, object: &Bound<'_, PyAny>, read: bool) -> PyResult<()> {
        if let Some(known) = self.sequences.get_mut(&address(object)) {
            known.read |= read;
            return Ok(());
        }
        self.sites.note(Family::Sequence, address(object), 0);
        let items: PyResult<Vec<_>> = object.try_iter()?.map(|item| Ok(item?.unbind())).collect();
        let known = SequenceRead {
            object: object.clone().unbind(),
            items: items?,
            read,
        };
        self.sequences.insert(address(object), known);
        Ok(())
    }

    /// Records a read of a cell.
    pub(super) fn cell(&mut self, cell: &Bound<'_, PyAny>) {
        let found = cpython::cell_content(cell);
        self.place_of_cell(cell).is_read(found.as_ref());
    }

    /// Records that a cell is about to be set.
    pub(super) fn set_cell(&mut self, cell: &Bound<'_, PyAny>) {
        self.place_of_cell(cell).written = true;
    }

    fn place_of_cell(&mut self, cell: &Bound<'_, PyAny>) -> &mut Place {
        self.sites.note(Family::Cell, address(cell), 0);
        let known = self.cells.entry(address(cell));
        known.or_insert_with(|| Place::new(cell, cpython::cell_content(cell).as_ref()))
    }

    /// Records a call of a Python function, whose parts are guarded.
    pub(super) fn function(&mut self, function: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.functions.contains_key(&address(function)) {
            return Ok(());
        }
        self.sites.note(Family::Function, address(function), 0);
        let parts = cpython::parts_of_function(function);
        if let Some(Ok(defaults)) = parts[2].as_ref().map(|own| own.cast::<PyDict>()) {
            self.contents(defaults)?;
        }
        let read = FunctionRead {
            function: function.clone().unbind(),
            parts: parts.map(|part| part.map(Bound::unbind)),
        };
        self.functions.insert(address(function), read);
        Ok(())
    }

    /// Records a read of an attribute that C computes; the guard reads it again.
    pub(super) fn attribute(&mut self, object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) {
        let found = object.getattr(name).ok();
        self.known_attribute(object, name, found.as_ref())
            .is_read(found.as_ref());
    }

    /// Records that an attribute that C computes is about to be set.
    pub(super) fn set_attribute(&mut self, object: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) {
        self.known_attribute(object, name, object.getattr(name).ok().as_ref());
    }

    fn known_attribute(
        &mut self,
        object: &Bound<'_, PyAny>,
        name: &Bound<'_, PyString>,
        found: Option<&Bound<'_, PyAny>>,
    ) -> &mut Place {
        let (at, of) = (address(object), address(name));
        self.sites.note(Family::Attribute, at, of);
        let known = self.attributes.entry((at, of));
        let read = known.or_insert_with(|| AttributeRead {
            object: object.clone().unbind(),
            place: Place::new(name.as_any(), found),
        });
        &mut read.place
    }

    /// Records a call that is cheap and changes nothing; the guard calls again.
    pub(super) fn call(
        &mut self,
        callable: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyTuple>,
    ) -> PyResult<()> {
        let names = PyTuple::empty(callable.py());
        self.call_unrecorded(callable, arguments, &names, None)
    }

    /// The same for a call that may run code of the program: `unrecorded` makes it, so that none of its
    /// operators is recorded. The last arguments have `names`.
    pub(super) fn call_unrecorded(
        &mut self,
        callable: &Bound<'_, PyAny>,
        arguments: &Bound<'_, PyTuple>,
        names: &Bound<'_, PyTuple>,
        unrecorded: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let parts = arguments.iter().chain(names);
        let key = (address(callable), parts.map(|own| address(&own)).collect());
        if self.asked.contains(&key) {
            return Ok(());
        }
        let (first, named) = with_names(arguments, names)?;
        let result = match unrecorded {
            Some(unrecorded) => unrecorded.call1((callable, first, named)),
            None => callable.call(first, Some(&named)),
        };
        let result = result.ok().map(Bound::unbind);
        self.asked.insert(key);
        self.sites
            .note(Family::Call, address(callable), address(arguments));
        self.calls.push(CallRead {
            callable: callable.clone().unbind(),
            arguments: arguments.clone().unbind(),
            names: names.clone().unbind(),
            result,
        });
        Ok(())
    }

    /// Whether one of these objects is a value that guards expect in some place.
    pub(super) fn find_any(&self, py: Python<'_>, objects: &FxHashSet<Address>) -> bool {
        fn is_in(own: &Bound<'_, PyAny>, objects: &FxHashSet<Address>) -> bool {
            match own.cast::<PyTuple>() {
                Ok(tuple) => tuple.iter().any(|own| is_in(&own, objects)),
                Err(_) => objects.contains(&address(own)),
            }
        }
        let in_dicts = self.dicts.values().flat_map(|own| {
            let entries = own
                .entries
                .values()
                .filter_map(|place| place.before.as_ref());
            entries.chain(own.contents.iter().flatten().map(|(_, value)| value))
        });
        let places = self.cells.values();
        let places = places.chain(self.attributes.values().map(|own| &own.place));
        in_dicts
            .chain(self.sequences.values().flat_map(|own| &own.items))
            .chain(places.filter_map(|own| own.before.as_ref()))
            .any(|own| is_in(own.bind(py), objects))
    }

    /// Whether a weak reference was followed to an object that is held by no other place that was
    /// read: a guard would keep it alive.
    pub(super) fn has_lone_weak_reference(
        &self,
        py: Python<'_>,
        program: &Bound<'_, PyAny>,
        arguments: &[Bound<'_, PyAny>],
    ) -> bool {
        let calls = self.calls.iter().filter(|own| {
            let kind = own.callable.bind(py).get_type();
            kind.name().is_ok_and(|name| name == "ReferenceType")
        });
        calls.filter_map(|own| own.result.as_ref()).any(|found| {
            let found = found.bind(py);
            let is_held = found.is_none()
                || found.is(program)
                || arguments.iter().any(|own| own.is(found))
                || self.find_any(py, &FxHashSet::from_iter([address(found)]));
            !is_held
        })
    }

    /// Forgets the reads of objects that the program itself has made, and of its arguments. A
    /// dictionary is judged by its version at the first read.
    pub(super) fn forget(
        &mut self,
        py: Python<'_>,
        is_fresh: impl Fn(&Bound<'_, PyAny>) -> bool,
        is_fresh_dict: impl Fn(&Bound<'_, PyDict>, u64) -> bool,
    ) {
        let is_old = |own: &Py<PyAny>| !is_fresh(own.bind(py));
        self.dicts
            .retain(|_, own| !is_fresh_dict(own.store.bind(py), own.version));
        self.classes.retain(|_, own| !is_fresh(own.kind.bind(py)));
        self.kinds.retain(|_, own| is_old(&own.0));
        self.sequences.retain(|_, own| is_old(&own.object));
        self.cells.retain(|_, own| is_old(&own.key));
        self.functions.retain(|_, own| is_old(&own.function));
        self.attributes.retain(|_, own| is_old(&own.object));
        self.calls.retain(|own| {
            is_old(&own.callable) && own.arguments.bind(py).iter().all(|own| !is_fresh(&own))
        });
    }
}

/// Keys and values of a dictionary, in the order that programs see.
pub(super) fn items_of(store: &Bound<'_, PyDict>) -> PyResult<Vec<(Py<PyAny>, Py<PyAny>)>> {
    if !is_ordered(store)? {
        return Ok(store
            .iter()
            .map(|(key, value)| (key.unbind(), value.unbind()))
            .collect());
    }
    let ordered = ordered_dict(store.py())?;
    let items = ordered.call_method1("items", (store,))?;
    items.try_iter()?.map(|item| item?.extract()).collect()
}

fn ordered_dict(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static ORDERED: pyo3::sync::PyOnceLock<Py<PyType>> = pyo3::sync::PyOnceLock::new();
    ORDERED.import(py, "collections", "OrderedDict")
}

/// Whether a dictionary has an order of its own, which can change while nothing else does.
pub(super) fn is_ordered(store: &Bound<'_, PyDict>) -> PyResult<bool> {
    Ok(!store.is_exact_instance_of::<PyDict>() && store.is_instance(ordered_dict(store.py())?)?)
}

impl DictRead {
    /// Whether all that was read of it is unchanged.
    pub(super) fn is_same(&self, py: Python<'_>) -> PyResult<bool> {
        let store = self.store.bind(py);
        for own in self.entries.values() {
            if !is_same_option(store.get_item(&own.key)?.as_ref(), own.before.as_ref()) {
                return Ok(false);
            }
        }
        if let Some(contents) = &self.contents {
            if contents.len() != store.len() {
                return Ok(false);
            }
            let now = items_of(store)?;
            let same = |now: &Py<PyAny>, then: &Py<PyAny>| is_same(now.bind(py), then.bind(py));
            if !now
                .iter()
                .zip(contents)
                .all(|(now, then)| same(&now.0, &then.0) && same(&now.1, &then.1))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl ClassRead {
    /// Whether its bases, and the attributes looked up in it, are unchanged. Gives it a version.
    pub(super) fn is_same(&self, py: Python<'_>) -> bool {
        let kind = self.kind.bind(py);
        if self.whole || !is_same(kind.mro().as_any(), self.bases.bind(py)) {
            return false;
        }
        for (name, then) in self.names.values() {
            let Ok(name) = name.bind(py).cast::<PyString>() else {
                return false;
            };
            if !is_same_option(cpython::lookup(kind, name).as_ref(), then.as_ref()) {
                return false;
            }
        }
        true
    }
}

impl FunctionRead {
    pub(super) fn is_current(&self, py: Python<'_>) -> bool {
        let now = cpython::parts_of_function(self.function.bind(py));
        now.iter()
            .zip(&self.parts)
            .all(|(now, then)| match (now, then) {
                (None, None) => true,
                (Some(now), Some(then)) => now.is(then),
                _ => false,
            })
    }
}

impl AttributeRead {
    pub(super) fn is_current(&self, py: Python<'_>) -> PyResult<bool> {
        let name = self.place.key.bind(py).cast::<PyString>()?;
        let now = self.object.bind(py).getattr(name).ok();
        Ok(is_same_option(now.as_ref(), self.place.before.as_ref()))
    }
}

/// Splits arguments into positional ones and keyword arguments, which come last.
fn with_names<'py>(
    arguments: &Bound<'py, PyTuple>,
    names: &Bound<'py, PyTuple>,
) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
    let count = arguments.len().saturating_sub(names.len());
    let named = PyDict::new(arguments.py());
    for (name, value) in names.iter().zip(arguments.iter().skip(count)) {
        named.set_item(name, value)?;
    }
    Ok((arguments.get_slice(0, count), named))
}

impl CallRead {
    /// Result of the call now; None if it raises.
    pub(super) fn ask<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let (arguments, names) = (self.arguments.bind(py), self.names.bind(py));
        if arguments.is_empty() {
            return cpython::asked(py, &self.callable);
        }
        if names.is_empty() {
            return self.callable.bind(py).call1(arguments.clone()).ok();
        }
        let (first, named) = with_names(arguments, names).ok()?;
        self.callable.bind(py).call(first, Some(&named)).ok()
    }

    pub(super) fn is_current(&self, py: Python<'_>) -> bool {
        is_same_option(self.ask(py).as_ref(), self.result.as_ref())
    }
}

impl SequenceRead {
    pub(super) fn is_same(&self, py: Python<'_>) -> PyResult<bool> {
        has_same_items(self.object.bind(py), &self.items)
    }
}

fn has_same_items(object: &Bound<'_, PyAny>, items: &[Py<PyAny>]) -> PyResult<bool> {
    let py = object.py();
    if let Ok(list) = object.cast::<PyList>()
        && list.is_exact_instance_of::<PyList>()
    {
        return Ok(list.len() == items.len()
            && list
                .iter()
                .zip(items)
                .all(|(now, then)| is_same(&now, then.bind(py))));
    }
    if object.len()? != items.len() {
        return Ok(false);
    }
    for (now, then) in object.try_iter()?.zip(items) {
        if !is_same(&now?, then.bind(py)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tensors, objects by their numbers, and numbers by their names.
pub(crate) type Found<'py> = (
    Vec<Bound<'py, PyAny>>,
    Vec<Bound<'py, PyAny>>,
    FxHashMap<String, Bound<'py, PyAny>>,
);

/// State that a program read when it was captured. A call may use the program if all of it is
/// unchanged.
#[pyclass(name = "Guards", module = "corsac._core", frozen)]
pub(crate) struct PyGuards {
    pub(super) reads: Reads,
    /// The same as rows of addresses and versions.
    flat: Flat,
    /// Structures that are compared, and their roots.
    pub(super) roots: Vec<(Root, Structure)>,
    /// Numbers of the objects in structures that the program changes.
    written: Vec<usize>,
    /// Places of numbers that the program replaces.
    counters: Vec<Counter>,
}

impl PyGuards {
    pub(super) fn new(
        py: Python<'_>,
        reads: Reads,
        roots: Vec<(Root, Structure)>,
        written: Vec<usize>,
        counters: Vec<Counter>,
    ) -> PyResult<Self> {
        Ok(Self {
            flat: Flat::new(py, &reads)?,
            reads,
            roots,
            written,
            counters,
        })
    }

    /// Whether all state that the program read is unchanged. A check that raises counts as a
    /// change.
    pub(crate) fn are_current(&self, py: Python<'_>) -> bool {
        self.flat.hold(py, &self.reads).unwrap_or(false)
    }

    /// Whether an object is guarded by identity.
    fn is_known(&self, own: &Bound<'_, PyAny>) -> bool {
        let (reads, at) = (&self.reads, address(own));
        reads.dicts.contains_key(&at)
            || reads.sequences.contains_key(&at)
            || reads.cells.contains_key(&at)
            || reads.attributes.keys().any(|key| key.0 == at)
    }

    /// Description of a change; None if there is none.
    pub(crate) fn changed(&self, py: Python<'_>) -> PyResult<Option<String>> {
        if self.flat.hold(py, &self.reads)? {
            return Ok(None);
        }
        for own in Guard::all_and_bases(&self.reads) {
            if !own.holds(py).unwrap_or(false) {
                return own.described(py).map(Some);
            }
        }
        // A check that raises counts as a change, too.
        Ok(Some("what it reads".to_owned()))
    }
}

/// Those of `entries` whose last failing guard holds now. Each entry has `guards`.
#[pyfunction]
pub(super) fn not_failing<'py>(
    py: Python<'py>,
    entries: Vec<Bound<'py, PyAny>>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut found = Vec::with_capacity(entries.len());
    for own in entries {
        let guards = own.getattr(pyo3::intern!(py, "guards"))?;
        let guards = guards.cast::<PyGuards>()?.get();
        if guards.flat.may_hold(py, &guards.reads).unwrap_or(false) {
            found.push(own);
        }
    }
    Ok(found)
}

#[pymethods]
impl PyGuards {
    /// Whether all state that the program read is unchanged.
    fn hold(&self, py: Python<'_>) -> bool {
        self.are_current(py)
    }

    /// Finds the tensors and the objects in arguments and in state: in the places, and with the
    /// numbers, of the recorded call. Returns None if something else is there.
    ///
    /// `arguments` are those that are neither tensors nor constants.
    pub(crate) fn find<'py>(
        &self,
        py: Python<'py>,
        arguments: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Found<'py>>> {
        let tensor = Effects::get(py)?.tensor.bind(py);
        let mut met = Met::default();
        for (root, structure) in &self.roots {
            let own = match root {
                Root::Argument(number) => arguments.get(*number),
                Root::Known(object) => Some(object.bind(py)),
            };
            let Some(own) = own else {
                return Ok(None);
            };
            // A check that raises counts as a change.
            if !structure.matches(own, tensor, &mut met).unwrap_or(false) {
                return Ok(None);
            }
        }
        let is_told_apart = |number: &usize| !self.is_known(&met.objects[*number]);
        Ok(self.written.iter().all(is_told_apart).then_some((
            met.tensors,
            met.objects,
            met.counted,
        )))
    }

    /// Places of numbers that the program replaces: dictionaries with keys, and cells.
    fn counters(&self, py: Python<'_>) -> Vec<Counter> {
        let own = self.counters.iter();
        own.map(|own| (own.0.clone_ref(py), own.1.clone_ref(py)))
            .collect()
    }

    /// Description of a change, for people; None if there is none.
    fn reason(&self, py: Python<'_>) -> Option<String> {
        self.changed(py)
            .unwrap_or_else(|error| Some(error.to_string()))
    }

    /// All guards in words: family, place, condition, and the file and line of the first read, if
    /// it was the program's. Paths begin at `program`.
    fn list(&self, program: &Bound<'_, PyAny>) -> PyResult<Vec<GuardText>> {
        self.texts(program)
    }

    /// The first failing guard in words: place, old value, current value, and the file and line of
    /// the first read; None if all hold.
    fn failure(&self, program: &Bound<'_, PyAny>) -> PyResult<Option<Failed>> {
        self.failed(program)
    }

    /// Number of places that are guarded.
    fn __len__(&self) -> usize {
        let reads = &self.reads;
        reads.dicts.len()
            + reads.classes.len()
            + reads.kinds.len()
            + reads.sequences.len()
            + reads.cells.len()
            + reads.functions.len()
            + reads.attributes.len()
            + reads.calls.len()
            + self.roots.len()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for (root, structure) in &self.roots {
            if let Root::Known(object) = root {
                visit.call(object)?;
            }
            structure.traverse(&visit)?;
        }
        for (container, key) in &self.counters {
            visit.call(container)?;
            visit.call(key)?;
        }
        self.flat.traverse(&visit)?;
        self.reads.sites.traverse(&visit)?;
        self.reads.traverse(&visit)
    }
}

impl Reads {
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let entry = |own: &Entry| {
            visit.call(&own.0)?;
            visit.call(&own.1)
        };
        for own in self.dicts.values() {
            visit.call(&own.store)?;
            own.entries
                .values()
                .try_for_each(|own| own.traverse(visit))?;
            for (key, value) in own.contents.iter().flatten() {
                visit.call(key)?;
                visit.call(value)?;
            }
        }
        for own in self.classes.values() {
            visit.call(&own.kind)?;
            visit.call(&own.bases)?;
            own.names.values().try_for_each(entry)?;
        }
        for (object, kind) in self.kinds.values() {
            visit.call(object)?;
            visit.call(kind)?;
        }
        for own in self.sequences.values() {
            visit.call(&own.object)?;
            own.items.iter().try_for_each(|item| visit.call(item))?;
        }
        self.cells
            .values()
            .try_for_each(|own| own.traverse(visit))?;
        for own in self.functions.values() {
            visit.call(&own.function)?;
            own.parts.iter().try_for_each(|part| visit.call(part))?;
        }
        for own in self.attributes.values() {
            visit.call(&own.object)?;
            own.place.traverse(visit)?;
        }
        for own in &self.calls {
            visit.call(&own.callable)?;
            visit.call(&own.arguments)?;
            visit.call(&own.result)?;
        }
        Ok(())
    }
}
