//! Calls of PyTorch functions that are known, from an equal call before, to do nothing but compute:
//! they use no random numbers, write to no existing memory, and read no values to branch on. A
//! recording has seen each operator of the first such call; announcing those of later ones is
//! unnecessary, and takes longer than many of them. Where a call is one node, whatever the program,
//! its opcode and target are known, too.

use std::sync::{Arc, Mutex};

use corsac_ir::Op;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{
    PyBool, PyCFunction, PyDict, PyEllipsis, PyFloat, PyFunction, PyInt, PyList, PySlice, PyString,
    PyTuple,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::cpython::name_in_c;
use crate::engine::Exchange;
use crate::graph::node::parse_op;

/// Largest number of calls that are known at a time.
const MOST: usize = 4096;

/// A call: the function, and everything that it can depend on except the data of tensors.
type Key = SmallVec<[u64; 48]>;

struct Known {
    /// Whether its results are all new memory; otherwise none of them is.
    is_new: bool,
    /// The node of each such call, if it depends on nothing else.
    node: Option<Arc<CallNode>>,
    /// Keeps these objects alive, so that their addresses in the key stay valid.
    _objects: Vec<Py<PyAny>>,
}

/// The node of a call.
pub(super) struct CallNode {
    pub(super) op: Op,
    pub(super) target: Py<PyAny>,
    /// Whether its first two arguments are exchanged: `1 - x` is `sub(1, x)`.
    pub(super) is_swapped: bool,
    /// Whether only dtype and sizes of its first argument are used.
    pub(super) takes_type: bool,
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
    Slice,
    /// The device of ordinary memory.
    Processor,
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
            || matches!(
                &*name_in_c(&function.get_type()),
                "method_descriptor" | "wrapper_descriptor"
            );
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
            // Not of one that is stored as its negative: what returns a plain tensor itself copies it.
            let described = self.exchange.described(own)?;
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
        } else if let Ok(slice) = own.cast_exact::<PySlice>() {
            key.push(Tag::Slice as u64);
            for part in ["start", "stop", "step"] {
                if !self.add(&slice.getattr(part)?, depth + 1)? {
                    return Ok(false);
                }
            }
        } else if own.is_instance_of::<PyEllipsis>()
            || matches!(
                &*name_in_c(&own.get_type()),
                "torch.dtype" | "torch.memory_format" | "torch.layout"
            )
        {
            key.push(Tag::Object as u64);
            self.object(own);
        } else if &*name_in_c(&own.get_type()) == "torch.device" {
            let (kind, index) = (own.getattr("type")?, own.getattr("index")?);
            if kind.cast::<PyString>()?.to_str()? != "cpu" {
                return Ok(false);
            }
            key.push(Tag::Processor as u64);
            return self.add(&index, depth + 1);
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// The node of a call that is known, and whether its results are new memory.
pub(super) fn node_of_pure_call(
    function: &Bound<'_, PyAny>,
    arguments: &Bound<'_, PyTuple>,
    named: &Bound<'_, PyDict>,
) -> PyResult<Option<(Arc<CallNode>, bool)>> {
    let Some((key, _)) = Keys::of(function, arguments, named)? else {
        return Ok(None);
    };
    let calls = CALLS.lock().ok();
    Ok(calls.and_then(|all| {
        let known = all.as_ref()?.get(&key)?;
        Some((Arc::clone(known.node.as_ref()?), known.is_new))
    }))
}

/// Whether the results of a call are new memory, if it is known to do nothing but compute them;
/// None if it is not known.
#[pyfunction]
pub(super) fn pure_call(
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
/// memory, or none of them is. `made` is its node, if that depends on nothing else: opcode, target,
/// whether its first two arguments are exchanged, and whether only the type of the first one is used.
#[pyfunction]
#[pyo3(signature = (function, arguments, named, is_new, made = None))]
pub(super) fn note_pure_call(
    function: &Bound<'_, PyAny>,
    arguments: &Bound<'_, PyTuple>,
    named: &Bound<'_, PyDict>,
    is_new: bool,
    made: Option<(PyBackedStr, Bound<'_, PyAny>, bool, bool)>,
) -> PyResult<()> {
    let Some((key, objects)) = Keys::of(function, arguments, named)? else {
        return Ok(());
    };
    let node = made.map(|(op, target, is_swapped, takes_type)| {
        PyResult::Ok(Arc::new(CallNode {
            op: parse_op(&op)?,
            target: target.unbind(),
            is_swapped,
            takes_type,
        }))
    });
    let known = Known {
        is_new,
        node: node.transpose()?,
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
