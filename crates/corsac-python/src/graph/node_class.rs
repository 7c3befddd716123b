//! The Python class of nodes, which PyO3 cannot express.
//!
//! `node.op` and `node.target` are read more often than anything else of a graph. torch.fx keeps
//! them in slots of the object, which the interpreter reads by itself once a loop is warm; a
//! property written in Rust costs a call each time, three times as much. So here they are slots
//! too: copies of data of the graph, renewed whenever that changes ([`PyNode::renew`]).
//!
//! Attributes that users set are in an ordinary `__dict__`, since the interpreter reads slots
//! without a call only in classes that have no `__getattr__`. CPython 3.11 makes the dictionary of
//! a class that declares one together with the object, and so may run the garbage collector before
//! the Rust half of the object is filled in. Therefore there are two classes: [`PyNode`] without a
//! dictionary, which PyO3 makes objects of, and `Node`, which derives from it, has the same layout
//! and declares where the dictionary is. An object is turned into a `Node` as soon as it is
//! complete.

#![expect(
    unsafe_code,
    reason = "slots and dictionaries of objects are declared through CPython's C interface"
)]

use std::cell::UnsafeCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

use crate::graph::node::PyNode;

/// A reference to a Python object, or none, which the interpreter can read in place: a pointer that
/// may be null.
///
/// Every access holds the interpreter's lock, which the module asks for (`gil_used`); so it needs
/// no lock of its own.
#[repr(transparent)]
pub(crate) struct Slot<T = PyAny>(UnsafeCell<Option<Py<T>>>);

const _: () = assert!(size_of::<Slot>() == size_of::<*mut ffi::PyObject>());

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(UnsafeCell::new(None))
    }
}

// SAFETY: all access is serialised by the interpreter's lock: `get` and `replace` take the proof
// that it is held, `visit` runs within the collector, and the interpreter's own access is under it.
unsafe impl<T> Sync for Slot<T> {}

impl<T> Slot<T> {
    #[inline]
    pub(crate) fn get(&self, py: Python<'_>) -> Option<Py<T>> {
        // SAFETY: the lock is held, and nothing runs in between that could write.
        let value = unsafe { &*self.0.get() };
        value.as_ref().map(|value| value.clone_ref(py))
    }

    /// Takes the object out.
    #[inline]
    pub(crate) fn take(&self, py: Python<'_>) -> Option<Py<T>> {
        self.replace(py, None)
    }

    /// Replaces the object; returns the old one, to be dropped when nothing is borrowed.
    pub(crate) fn replace(&self, _py: Python<'_>, value: Option<Py<T>>) -> Option<Py<T>> {
        // SAFETY: as in `get`; nobody keeps a reference into the slot.
        unsafe { ptr::replace(self.0.get(), value) }
    }

    /// Visits the object, for the garbage collector.
    pub(crate) fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // SAFETY: the collector runs under the lock and does not write while it visits.
        visit.call(unsafe { &*self.0.get() })
    }
}

/// Fields of a node that the interpreter reads.
#[derive(Default)]
pub(crate) struct Slots {
    pub(crate) op: Slot<PyString>,
    pub(crate) target: Slot,
    /// Attributes set by users, once there are any.
    pub(crate) dict: Slot<PyDict>,
}

/// The class `Node`.
pub(crate) fn node_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    Ok(CLASS.get_or_try_init(py, || declare(py))?.bind(py))
}

/// Turns `object`, which PyO3 has just made, into a `Node`.
pub(crate) fn become_node(object: &Bound<'_, PyNode>) -> PyResult<()> {
    let class = node_class(object.py())?;
    if object.get_type().is(class) {
        return Ok(());
    }
    // SAFETY: `Node` derives from the object's class and has the same layout, which `declare` has
    // made sure of. An object holds one reference to its class.
    unsafe {
        let former = ptr::replace(
            &raw mut (*object.as_ptr()).ob_type,
            class.clone().into_ptr().cast(),
        );
        ffi::Py_DECREF(former.cast());
    }
    Ok(())
}

/// Sets an attribute, or deletes it if there is no value, as for any Python object.
pub(crate) fn set_attribute(
    node: &Bound<'_, PyNode>,
    name: &Bound<'_, PyString>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let value = value.map_or(ptr::null_mut(), Bound::as_ptr);
    // SAFETY: all three are alive, and null stands for deletion.
    let status = unsafe { ffi::PyObject_GenericSetAttr(node.as_ptr(), name.as_ptr(), value) };
    if status == 0 {
        return Ok(());
    }
    Err(PyErr::take(node.py())
        .unwrap_or_else(|| PyRuntimeError::new_err("setting an attribute failed silently")))
}

/// The bytes between the start of `object` and one of its slots.
fn offset<T>(object: &Bound<'_, PyNode>, slot: &Slot<T>) -> ffi::Py_ssize_t {
    let bytes = ptr::from_ref(slot).addr() - object.as_ptr().addr();
    debug_assert!(bytes < 1 << 16, "a slot lies in its object");
    bytes as ffi::Py_ssize_t
}

const fn member(
    name: &'static std::ffi::CStr,
    type_code: c_int,
    offset: ffi::Py_ssize_t,
    doc: *const c_char,
) -> ffi::PyMemberDef {
    ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code,
        offset,
        flags: ffi::Py_READONLY,
        doc,
    }
}

fn declare(py: Python<'_>) -> PyResult<Py<PyType>> {
    let base = py.get_type::<PyNode>();
    let example = Bound::new(py, PyNode::example(py)?)?;
    let slots = example.get().slots();
    let doc = doc(&base)?;

    let op_doc = c"The opcode.";
    let target_doc = c"The target: a function for call_function, otherwise a string.";
    let mut members = [
        member(
            c"op",
            ffi::Py_T_OBJECT_EX,
            offset(&example, &slots.op),
            op_doc.as_ptr(),
        ),
        member(
            c"target",
            ffi::Py_T_OBJECT_EX,
            offset(&example, &slots.target),
            target_doc.as_ptr(),
        ),
        member(
            c"__dictoffset__",
            ffi::Py_T_PYSSIZET,
            offset(&example, &slots.dict),
            ptr::null(),
        ),
        // SAFETY: all zeros is a valid value, and ends the list.
        unsafe { std::mem::zeroed() },
    ];
    // The class refers to this for as long as the process lives.
    let dict = ffi::PyGetSetDef {
        name: c"__dict__".as_ptr(),
        get: Some(ffi::PyObject_GenericGetDict),
        set: Some(ffi::PyObject_GenericSetDict),
        doc: c"Attributes set by users.".as_ptr(),
        closure: ptr::null_mut(),
    };
    // SAFETY: as above.
    let properties = Box::leak(Box::new([dict, unsafe { std::mem::zeroed() }]));
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    let mut described = [
        slot(ffi::Py_tp_doc, doc.as_ptr().cast_mut().cast()),
        slot(ffi::Py_tp_members, members.as_mut_ptr().cast()),
        slot(ffi::Py_tp_getset, properties.as_mut_ptr().cast()),
        slot(0, ptr::null_mut()),
    ];
    let size: c_int = base.getattr("__basicsize__")?.extract()?;
    let mut spec = ffi::PyType_Spec {
        name: c"corsac.fx.node.Node".as_ptr(),
        basicsize: size,
        itemsize: 0,
        flags: ffi::Py_TPFLAGS_DEFAULT as u32,
        slots: described.as_mut_ptr(),
    };
    let bases = PyTuple::new(py, [&base])?;
    // SAFETY: `spec` and what it points to is complete; CPython copies the text and the members,
    // and the properties live on. The offsets are those of live fields of an object of the base
    // class, which hold a pointer that may be null, as slots and dictionaries do; and since the
    // size is the base's, an object of one class can become one of the other.
    let class = unsafe {
        let class = ffi::PyType_FromSpecWithBases(&raw mut spec, bases.as_ptr());
        Bound::from_owned_ptr_or_err(py, class)?
    };
    // Messages call objects of the class `Node`, without the module.
    class.setattr("__name__", "Node")?;
    Ok(class.cast_into::<PyType>()?.unbind())
}

/// The documentation of `base` with its signature, in the form in which CPython reads it.
fn doc(base: &Bound<'_, PyType>) -> PyResult<CString> {
    let text: String = base.getattr("__doc__")?.extract()?;
    let signature: Option<String> = base.getattr("__text_signature__")?.extract()?;
    let text = match signature {
        Some(signature) => format!("Node{signature}\n--\n\n{text}"),
        None => text,
    };
    Ok(CString::new(text)?)
}
