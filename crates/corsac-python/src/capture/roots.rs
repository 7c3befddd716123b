//! Structures of arguments that a program has read, and of state that it has changed.
//!
//! Objects that are reached from the arguments alone are part of a structure; those that the
//! program also finds in another way, by a global variable for instance, are known, and guarded by
//! identity. Values that the program has replaced do not identify an object: the next call finds
//! others there.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyFunction, PyModule, PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::{Change, Edit};
use super::counters::{Counters, name_of};
use super::cpython::{self, name_in_c};
use super::effects::Effects;
use super::guards::{Address, Place, Reads, address, is_same_option};
use super::look::{is_class, is_constant};
use super::structure::{Entries, Object, Structure};
use super::symbols::Number;

/// Origin of a structure.
pub(super) enum Root {
    /// The argument with this number, of those that are neither tensors nor constants.
    Argument(usize),
    /// A known object.
    Known(Py<PyAny>),
}

/// All structures of a program, with the tensors and objects in them in the order in which they are
/// found.
pub(super) struct Roots<'py> {
    pub(super) roots: Vec<(Root, Structure)>,
    pub(super) tensors: Vec<Bound<'py, PyAny>>,
    pub(super) numbers: FxHashMap<Address, usize>,
    /// The objects with numbers, in that order.
    pub(super) objects: Vec<Bound<'py, PyAny>>,
}

/// Objects, by their addresses.
type Objects<'py> = FxHashMap<Address, Bound<'py, PyAny>>;

/// Facts about the values that a program finds.
pub(super) struct Known<'a> {
    /// Objects that are compared by identity.
    pub(super) strict: FxHashSet<Address>,
    /// Tensors that are arguments.
    pub(super) given: &'a FxHashSet<Address>,
    /// Places of numbers that differ in each call.
    pub(super) counters: &'a Counters,
}

struct Builder<'a, 'py> {
    py: Python<'py>,
    effects: &'py Effects,
    reads: &'a mut Reads,
    /// Objects that are compared by identity.
    strict: FxHashSet<Address>,
    /// Tensors that are arguments.
    given: &'a FxHashSet<Address>,
    counters: &'a Counters,
    /// Attributes that C computes, by the objects that have them.
    attributes: FxHashMap<Address, Vec<(Address, Address)>>,
    /// Known objects.
    anchored: Objects<'py>,
    tensors: Vec<Bound<'py, PyAny>>,
    numbers: FxHashMap<Address, usize>,
    /// The objects with numbers, in that order: kept alive, so that their addresses stay unique.
    objects: Vec<Bound<'py, PyAny>>,
}

/// Makes structures of arguments and of changed state; removes their parts from `reads`.
pub(super) fn roots<'py>(
    py: Python<'py>,
    reads: &mut Reads,
    program: &Bound<'py, PyAny>,
    arguments: &[Bound<'py, PyAny>],
    changes: &[Change],
    known: Known<'_>,
) -> PyResult<Roots<'py>> {
    let mut attributes = FxHashMap::<_, Vec<_>>::default();
    for key in reads.attributes.keys() {
        attributes.entry(key.0).or_default().push(*key);
    }
    let mut builder = Builder {
        py,
        effects: Effects::get(py)?,
        reads,
        strict: known.strict,
        given: known.given,
        counters: known.counters,
        attributes,
        anchored: Objects::default(),
        tensors: Vec::new(),
        numbers: FxHashMap::default(),
        objects: Vec::new(),
    };
    builder.strict_calls();
    let mut given: Vec<_> = arguments.to_vec();
    for change in changes {
        given.extend(builder.replaced(change.container.bind(py)));
    }
    let reached = builder.reached(given, true);
    let mut starts = builder.starts(&reached);
    starts.push(program.clone());
    builder.anchored = builder.reached(starts, false);
    let mut roots = Vec::new();
    for (number, own) in arguments.iter().enumerate() {
        roots.push((Root::Argument(number), builder.structure(own)?));
    }
    for change in changes {
        let container = change.container.bind(py);
        let is_known = builder.anchored.contains_key(&address(container))
            || !reached.contains_key(&address(container));
        if is_known && !builder.numbers.contains_key(&address(container)) {
            let object = builder.object(container, false)?;
            roots.push((
                Root::Known(container.clone().unbind()),
                Structure::Object(Box::new(object)),
            ));
        }
    }
    // Other facts about tensors are part of their types, for which a program is captured.
    let tensors: FxHashSet<_> = builder.tensors.iter().map(address).collect();
    builder.reads.kinds.retain(|at, _| !tensors.contains(at));
    builder
        .reads
        .attributes
        .retain(|at, _| !tensors.contains(&at.0));
    Ok(Roots {
        roots,
        tensors: builder.tensors,
        numbers: builder.numbers,
        objects: builder.objects,
    })
}

impl<'py> Builder<'_, 'py> {
    /// Marks the objects in calls of C functions as compared by identity.
    fn strict_calls(&mut self) {
        for own in &self.reads.calls {
            self.strict.insert(address(own.callable.bind(self.py)));
            let arguments = own.arguments.bind(self.py).iter();
            self.strict.extend(arguments.map(|own| address(&own)));
        }
    }

    fn is_tensor(&self, own: &Bound<'py, PyAny>) -> bool {
        own.is_instance(self.effects.tensor.bind(self.py))
            .unwrap_or(false)
    }

    /// Whether a value is the same object in each call, or does not belong to the program.
    fn is_fixed(&self, own: &Bound<'py, PyAny>) -> bool {
        is_constant(own)
            || is_class(own)
            || own.is_instance_of::<PyFunction>()
            || own.is_instance_of::<PyModule>()
            || own.is_instance_of::<PyCFunction>()
            || own
                .is_instance(self.effects.module.bind(self.py))
                .unwrap_or(true)
    }

    /// Values in a container that the program has replaced.
    fn replaced(&self, container: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        let mut found = self.values(container, |is_changed| is_changed);
        if let Some(keys) = self.attributes.get(&address(container)) {
            found.extend(self.values_of_attributes(container, keys, |is_changed| is_changed));
        }
        found
    }

    /// Values in an object before the program ran: in the places that it changes, or in the others.
    fn values(
        &self,
        own: &Bound<'py, PyAny>,
        wanted: impl Fn(bool) -> bool,
    ) -> Vec<Bound<'py, PyAny>> {
        let (py, at) = (self.py, address(own));
        let mut found = Vec::new();
        let mut add = |value: Option<&Py<PyAny>>, is_changed: bool| {
            if let Some(value) = value
                && wanted(is_changed)
            {
                found.push(value.bind(py).clone());
            }
        };
        if let Some(read) = self.reads.dicts.get(&at) {
            let store = read.store.bind(py);
            let is_changed = |key: &Py<PyAny>, before: Option<&Py<PyAny>>| {
                let now = store.get_item(key);
                !now.is_ok_and(|now| is_same_option(now.as_ref(), before))
            };
            for place in read.entries.values() {
                add(
                    place.before.as_ref(),
                    is_changed(&place.key, place.before.as_ref()),
                );
            }
            for (key, value) in read.contents.iter().flatten() {
                add(Some(value), is_changed(key, Some(value)));
            }
        }
        if let Some(read) = self.reads.sequences.get(&at) {
            for (number, value) in read.items.iter().enumerate() {
                add(Some(value), read.is_replaced(py, number));
            }
        }
        if let Some(place) = self.reads.cells.get(&at) {
            let now = cpython::cell_content(own);
            let is_changed = !is_same_option(now.as_ref(), place.before.as_ref());
            add(place.before.as_ref(), is_changed);
        }
        found
    }

    fn values_of_attributes(
        &self,
        own: &Bound<'py, PyAny>,
        keys: &[(Address, Address)],
        wanted: impl Fn(bool) -> bool,
    ) -> Vec<Bound<'py, PyAny>> {
        let places = keys.iter().filter_map(|key| self.reads.attributes.get(key));
        let places = places.map(|own| &own.place).filter(|place| {
            let name = place.key.bind(self.py).cast::<PyString>();
            let now = name.ok().and_then(|name| own.getattr(name).ok());
            wanted(!is_same_option(now.as_ref(), place.before.as_ref()))
        });
        let values = places.filter_map(|place| place.before.as_ref());
        values.map(|own| own.bind(self.py).clone()).collect()
    }

    /// Values that a value leads to directly, by places that the program does not change.
    fn children(&self, own: &Bound<'py, PyAny>) -> Vec<Bound<'py, PyAny>> {
        if let Ok(tuple) = own.cast::<PyTuple>() {
            return tuple.iter().collect();
        }
        let mut found = self.values(own, |is_changed| !is_changed);
        if let Some(keys) = self.attributes.get(&address(own)) {
            found.extend(self.values_of_attributes(own, keys, |is_changed| !is_changed));
        }
        if let Some(store) = cpython::attributes(own, false) {
            found.push(store.into_any());
        }
        if name_in_c(&own.get_type()) == "method" {
            for name in [intern!(self.py, "__self__"), intern!(self.py, "__func__")] {
                found.extend(own.getattr(name).ok());
            }
        }
        found
    }

    /// All values that these lead to, and themselves; with `stop`, none that fixed ones lead to.
    fn reached(&self, mut left: Vec<Bound<'py, PyAny>>, stop: bool) -> Objects<'py> {
        let mut found = Objects::default();
        while let Some(own) = left.pop() {
            let is_end = is_constant(&own) || (stop && self.is_fixed(&own));
            if !is_end && found.insert(address(&own), own.clone()).is_none() {
                left.extend(self.children(&own));
            }
        }
        found
    }

    /// Starting points of the program besides its arguments: all that it has read and that is not
    /// `reached`.
    fn starts(&self, reached: &Objects<'py>) -> Vec<Bound<'py, PyAny>> {
        let py = self.py;
        let reads = &self.reads;
        let dicts = reads.dicts.values().map(|own| own.store.bind(py).as_any());
        let sequences = reads.sequences.values().map(|own| own.object.bind(py));
        let cells = reads.cells.values().map(|own| own.key.bind(py));
        let attributes = reads.attributes.values().map(|own| own.object.bind(py));
        let objects = dicts.chain(sequences).chain(cells).chain(attributes);
        let mut found: Vec<_> = objects
            .filter(|own| !reached.contains_key(&address(own)))
            .cloned()
            .collect();
        for own in reads.classes.values() {
            let values = own.names.values().filter_map(|(_, value)| value.as_ref());
            found.extend(values.map(|own| own.bind(py).clone()));
        }
        for own in reads.functions.values() {
            found.extend(own.parts.iter().flatten().map(|own| own.bind(py).clone()));
        }
        found
    }

    /// Structure of a value that is found through an argument, or in a place that the program
    /// replaces.
    fn structure(&mut self, own: &Bound<'py, PyAny>) -> PyResult<Structure> {
        let at = address(own);
        let is_known = self.is_fixed(own) || self.strict.contains(&at);
        let is_anchored = self.anchored.contains_key(&at) && !self.given.contains(&at);
        if !is_known && self.is_tensor(own) && !is_anchored {
            self.tensors.push(own.clone());
            return Ok(Structure::Tensor);
        }
        if let Ok(tuple) = own.cast::<PyTuple>()
            && !is_known
        {
            // A tuple that occurs twice is compared twice.
            self.number(own);
            let items: PyResult<_> = tuple.iter().map(|own| self.structure(&own)).collect();
            return Ok(Structure::Tuple {
                kind: own.get_type().unbind(),
                items: items?,
            });
        }
        if is_known || self.anchored.contains_key(&at) {
            return Ok(Structure::Same(own.clone().unbind()));
        }
        if let Some(number) = self.numbers.get(&at) {
            return Ok(Structure::Again(*number));
        }
        Ok(Structure::Object(Box::new(self.object(own, true)?)))
    }

    fn option(&mut self, own: Option<&Py<PyAny>>) -> PyResult<Option<Structure>> {
        own.map(|own| self.structure(own.bind(self.py))).transpose()
    }

    /// Structure of a value in a container; a known one that is not changed stands for itself.
    fn value(
        &mut self,
        own: Option<&Py<PyAny>>,
        is_changed: bool,
        deep: bool,
    ) -> PyResult<Option<Structure>> {
        let is_given = own.is_some_and(|own| self.given.contains(&address(own.bind(self.py))));
        match deep || is_changed || is_given {
            true => self.option(own),
            false => Ok(own.map(|own| Structure::Same(own.clone_ref(self.py)))),
        }
    }

    /// Structure of an object. Without `deep` the object is known, and only its parts that the
    /// program changes may differ.
    fn object(&mut self, own: &Bound<'py, PyAny>, deep: bool) -> PyResult<Object> {
        let (py, at) = (self.py, address(own));
        self.number(own);
        self.reads.kinds.swap_remove(&at);
        let mut items = None;
        if let Some(read) = self.reads.sequences.swap_remove(&at)
            && read.read
        {
            let values = read.items.iter().enumerate().map(|(number, value)| {
                let found = self.value(Some(value), read.is_replaced(py, number), deep)?;
                Ok(found.unwrap_or(Structure::Tensor))
            });
            items = Some(values.collect::<PyResult<_>>()?);
        }
        let entries = match own.cast::<PyDict>() {
            Ok(store) => self.entries(store, deep)?,
            Err(_) => None,
        };
        let mut attributes = None;
        if let Some(store) = cpython::attributes(own, false)
            && self.reads.dicts.contains_key(&address(store.as_any()))
        {
            self.number(store.as_any());
            attributes = Some(self.entries(&store, deep)?.unwrap_or(Entries {
                entries: Vec::new(),
                all: false,
            }));
        }
        let mut slots = Vec::new();
        for key in self.attributes.remove(&at).unwrap_or_default() {
            if let Some(read) = self.reads.attributes.swap_remove(&key) {
                let name = read.place.key.bind(py).cast::<PyString>()?.clone();
                let now = own.getattr(&name).ok();
                let is_changed = !is_same_option(now.as_ref(), read.place.before.as_ref());
                if read.place.read && name != "__dict__" {
                    let value = self.value(read.place.before.as_ref(), is_changed, deep)?;
                    slots.push((name.unbind(), value));
                }
            }
        }
        let mut content = None;
        if let Some(Place {
            before, read: true, ..
        }) = self.reads.cells.swap_remove(&at)
        {
            content = Some(match self.counted((at, at), before.as_ref()) {
                None => self.value(before.as_ref(), true, deep)?,
                counted => counted,
            });
        }
        Ok(Object {
            kind: own.get_type().unbind(),
            items,
            entries,
            attributes,
            slots,
            content,
        })
    }

    /// Structure of a number that may be another one in the next call.
    fn counted(&self, place: (Address, Address), before: Option<&Py<PyAny>>) -> Option<Structure> {
        let before = before?.bind(self.py);
        let is_counted = self.counters.is_any(place) && Number::of(before).is_some();
        is_counted.then(|| Structure::Number {
            name: name_of(place),
            kind: before.get_type().unbind(),
        })
    }

    fn number(&mut self, own: &Bound<'py, PyAny>) {
        self.numbers.insert(address(own), self.objects.len());
        self.objects.push(own.clone());
    }

    fn entries(&mut self, store: &Bound<'py, PyDict>, deep: bool) -> PyResult<Option<Entries>> {
        let Some(read) = self.reads.dicts.swap_remove(&address(store.as_any())) else {
            return Ok(None);
        };
        let mut entries = Vec::new();
        let all = read.contents.is_some();
        let places: Vec<(Py<PyAny>, Option<Py<PyAny>>)> = match read.contents {
            Some(contents) => contents
                .into_iter()
                .map(|(key, value)| (key, Some(value)))
                .collect(),
            None => {
                let places = read.entries.into_values().filter(|place| place.read);
                places.map(|place| (place.key, place.before)).collect()
            }
        };
        for (key, before) in places {
            let now = store.get_item(&key)?;
            let is_changed = !is_same_option(now.as_ref(), before.as_ref());
            let place = (address(store.as_any()), address(key.bind(self.py)));
            let value = match self.counted(place, before.as_ref()).filter(|_| !all) {
                None => self.value(before.as_ref(), is_changed, deep)?,
                counted => counted,
            };
            entries.push((key, value));
        }
        Ok(Some(Entries { entries, all }))
    }
}

/// An edit for Python: its kind, the key, and the values.
pub(super) type WrittenEdit = (&'static str, Option<Py<PyAny>>, Vec<Py<PyAny>>);

impl Edit {
    pub(super) fn written(self) -> WrittenEdit {
        match self {
            Self::Set(key, value) => ("set", Some(key), vec![value]),
            Self::Delete(key) => ("delete", Some(key), Vec::new()),
            Self::Replace(values) => ("replace", None, values),
            Self::Append(values) => ("append", None, values),
            Self::Fill(value) => ("fill", None, vec![value]),
            Self::SetAttribute(name, value) => ("attribute", Some(name), vec![value]),
        }
    }
}
