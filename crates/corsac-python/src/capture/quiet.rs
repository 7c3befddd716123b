//! Calls of PyTorch functions that are known, from an equal call before, to do nothing but compute:
//! they use no random numbers, write to no existing memory, and read no values to branch on. A
//! recording has seen each operator of the first such call; announcing those of later ones is
//! unnecessary, and takes longer than many of them.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyCFunction, PyDict, PyFloat, PyFunction, PyInt, PyList, PyString, PyTuple,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::cpython::name_in_c;
use crate::engine::Exchange;

/// Largest number of calls that are known at a time.
const MOST: usize = 4096;

/// A call: the function, and everything that it can depend on except the data of tensors.
type Key = SmallVec<[u64; 48]>;

struct Known {
    /// Whether its results are all new memory; otherwise none of them is.
    is_new: bool,
    /// Keeps these objects alive, so that their addresses in the key stay valid.
    _objects: Vec<Py<PyAny>>,
}

static CALLS: Mutex<Option<FxHashMap<Key, Known>>> = Mutex::new(None);

/// Kind of the next part of a key.
#[repr(u64)]
enum Tag {
    Tensor,
    Integer,
    Float,
    Bool,
    None,
    Text,
    Object,
    Sequence,
    Named,
}

struct Keys<'a, 'py> {
    exchange: &'a Exchange,
    key: Key,
    objects: Vec<Bound<'py, PyAny>>,
}

impl<'py> Keys<'_, 'py> {
    fn of(
        function: &Bound<'py, PyAny>,
        arguments: &Bound<'py, PyTuple>,
        named: &Bound<'py, PyDict>,
    ) -> PyResult<Option<(Key, Vec<Bound<'py, PyAny>>)>> {
        let Some(exchange) = Exchange::get(function.py())? else {
            return Ok(None);
        };
        let is_lasting = function.is_instance_of::<PyCFunction>()
            || function.is_instance_of::<PyFunction>()
            || &*name_in_c(&function.get_type()) == "method_descriptor";
        if !is_lasting {
            return Ok(None);
        }
        let mut own = Keys {
            exchange,
            key: Key::new(),
            objects: Vec::new(),
        };
        own.object(function);
        for argument in arguments {
            if !own.add(&argument, 0)? {
                return Ok(None);
            }
        }
        own.key.push(Tag::Named as u64);
        for (name, argument) in named {
            if !(own.add(&name, 0)? && own.add(&argument, 0)?) {
                return Ok(None);
            }
        }
        Ok(Some((own.key, own.objects)))
    }

    fn object(&mut self, own: &Bound<'py, PyAny>) {
        self.key.push(own.as_ptr() as u64);
        self.objects.push(own.clone());
    }

    /// Adds an argument to the key. Returns whether all that a call can depend on in it is known.
    fn add(&mut self, own: &Bound<'py, PyAny>, depth: usize) -> PyResult<bool> {
        let key = &mut self.key;
        if self.exchange.is_tensor(own) {
            let described = self.exchange.described_as_stored(own);
            let Some((dtype, shape, strides)) = described.as_ref().and_then(|own| own.layout())
            else {
                return Ok(false);
            };
            key.extend([Tag::Tensor as u64, dtype as u64, shape.len() as u64]);
            key.extend(shape.iter().chain(strides).map(|&own| own as u64));
        } else if own.is_none() {
            key.push(Tag::None as u64);
        } else if let Ok(flag) = own.cast_exact::<PyBool>() {
            key.extend([Tag::Bool as u64, u64::from(flag.is_true())]);
        } else if let Ok(number) = own.cast_exact::<PyInt>() {
            let Ok(number) = number.extract::<i64>() else {
                return Ok(false);
            };
            key.extend([Tag::Integer as u64, number as u64]);
        } else if let Ok(number) = own.cast_exact::<PyFloat>() {
            key.extend([Tag::Float as u64, number.extract::<f64>()?.to_bits()]);
        } else if let Ok(text) = own.cast_exact::<PyString>() {
            let text = text.to_cow()?;
            key.extend([Tag::Text as u64, text.len() as u64]);
            key.extend(text.bytes().map(u64::from));
        } else if depth < 3
            && (own.is_instance_of::<PyTuple>() || own.is_exact_instance_of::<PyList>())
        {
            let kind = own.get_type();
            key.extend([Tag::Sequence as u64, own.len()? as u64]);
            self.object(kind.as_any());
            for own in own.try_iter()? {
                if !self.add(&own?, depth + 1)? {
                    return Ok(false);
                }
            }
        } else if matches!(
            &*name_in_c(&own.get_type()),
            "torch.dtype" | "torch.memory_format" | "torch.layout"
        ) {
            key.push(Tag::Object as u64);
            self.object(own);
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// Whether the results of a call are new memory, if it is known to do nothing but compute them;
/// None if it is not known.
#[pyfunction]
pub(super) fn quiet_call(
    function: &Bound<'_, PyAny>,
    arguments: &Bound<'_, PyTuple>,
    named: &Bound<'_, PyDict>,
) -> PyResult<Option<bool>> {
    let Some((key, _)) = Keys::of(function, arguments, named)? else {
        return Ok(None);
    };
    let calls = CALLS.lock().ok();
    Ok(calls.and_then(|all| Some(all.as_ref()?.get(&key)?.is_new)))
}

/// Record that a call of a PyTorch function did nothing but compute results, which are all new
/// memory, or none of them is.
#[pyfunction]
pub(super) fn note_quiet_call(
    function: &Bound<'_, PyAny>,
    arguments: &Bound<'_, PyTuple>,
    named: &Bound<'_, PyDict>,
    is_new: bool,
) -> PyResult<()> {
    let Some((key, objects)) = Keys::of(function, arguments, named)? else {
        return Ok(());
    };
    let known = Known {
        is_new,
        _objects: objects.into_iter().map(Bound::unbind).collect(),
    };
    let Ok(mut calls) = CALLS.lock() else {
        return Ok(());
    };
    let all = calls.get_or_insert_default();
    let dropped = match all.len() < MOST {
        true => FxHashMap::default(),
        false => std::mem::take(all),
    };
    let before = all.insert(key, known);
    drop(calls);
    drop((dropped, before));
    Ok(())
}
