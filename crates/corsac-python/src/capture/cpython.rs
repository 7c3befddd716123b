//! Memory layout in CPython 3.11 of frames, versions of dictionaries, and caches of types.
//!
//! Layouts are those of `Include/internal/pycore_frame.h`, `Include/cpython/dictobject.h` and
//! `Objects/dictobject.c` of 3.11. [`is_supported`] returns whether this interpreter has them.

#![expect(unsafe_code, reason = "structures and functions of CPython")]

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_int};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCode, PyDict, PyFunction, PyModule, PyString, PyType};

/// `struct _frame`, up to the last field used.
#[repr(C)]
struct FrameObject {
    head: ffi::PyObject,
    back: *mut ffi::PyObject,
    frame: *mut InterpreterFrame,
    trace: *mut ffi::PyObject,
    line: c_int,
    trace_lines: c_char,
    trace_opcodes: c_char,
}

/// `_PyInterpreterFrame`, up to its locals.
#[repr(C)]
struct InterpreterFrame {
    function: *mut ffi::PyObject,
    globals: *mut ffi::PyObject,
    builtins: *mut ffi::PyObject,
    locals: *mut ffi::PyObject,
    code: *mut ffi::PyObject,
    object: *mut FrameObject,
    previous: *mut InterpreterFrame,
    instruction: *mut u16,
    stack_top: c_int,
    is_entry: bool,
    owner: c_char,
    values: [*mut ffi::PyObject; 0],
}

/// `PyDictObject`, up to its version.
#[repr(C)]
struct DictObject {
    head: ffi::PyObject,
    used: isize,
    version: u64,
}

/// `PyFunctionObject`, up to the last field used.
#[repr(C)]
struct FunctionObject {
    head: ffi::PyObject,
    globals: *mut ffi::PyObject,
    builtins: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
    qualname: *mut ffi::PyObject,
    parts: [*mut ffi::PyObject; 3],
}

/// `PyCellObject`
#[repr(C)]
struct CellObject {
    head: ffi::PyObject,
    content: *mut ffi::PyObject,
}

/// `PyLongObject` of one digit
#[repr(C)]
struct LongObject {
    head: ffi::PyVarObject,
    digits: [u32; 1],
}

/// `_PyDictViewObject`
#[repr(C)]
struct ViewObject {
    head: ffi::PyObject,
    dict: *mut ffi::PyObject,
}

/// `Py_TPFLAGS_VALID_VERSION_TAG`
const HAS_VERSION: u64 = 1 << 19;
/// `Py_TPFLAGS_IMMUTABLETYPE`
const IS_IMMUTABLE: u64 = 1 << 8;

unsafe extern "C" {
    fn _PyType_Lookup(kind: *mut ffi::PyTypeObject, name: *mut ffi::PyObject)
    -> *mut ffi::PyObject;
    fn _PyObject_GetDictPtr(object: *mut ffi::PyObject) -> *mut *mut ffi::PyObject;
    fn PyCode_GetCode(code: *mut ffi::PyObject) -> *mut ffi::PyObject;
    fn PyFunction_GetCode(function: *mut ffi::PyObject) -> *mut ffi::PyObject;
    fn _PyLong_New(size: isize) -> *mut ffi::PyObject;
}

/// Whether this interpreter has the layouts of this module.
pub(super) fn is_supported(py: Python<'_>) -> bool {
    let version = py.version_info();
    cfg!(target_pointer_width = "64") && (version.major, version.minor) == (3, 11)
}

/// A Python frame whose next instruction is being reported to the trace function.
pub(super) struct Frame<'py> {
    py: Python<'py>,
    object: *mut FrameObject,
}

impl<'py> Frame<'py> {
    /// # Safety
    ///
    /// `object` is the frame that CPython 3.11 has just given to a trace function, which has not
    /// returned.
    pub(super) unsafe fn new(py: Python<'py>, object: *mut ffi::PyFrameObject) -> Self {
        Self {
            py,
            object: object.cast(),
        }
    }

    fn inner(&self) -> &InterpreterFrame {
        // SAFETY: a frame object that is being traced has a live interpreter frame.
        unsafe { &*(*self.object).frame }
    }

    fn owned(&self, object: *mut ffi::PyObject) -> Option<Bound<'py, PyAny>> {
        // SAFETY: the frame keeps what it points at alive, or the pointer is null.
        unsafe { Bound::from_borrowed_ptr_or_opt(self.py, object) }
    }

    /// Turns events for each instruction of this frame on, or all its events off.
    pub(super) fn announce(&self, instructions: bool) {
        // SAFETY: the frame object is alive, and only this thread uses it.
        unsafe {
            (*self.object).trace_lines = 0;
            (*self.object).trace_opcodes = c_char::from(instructions);
        }
    }

    /// Ends tracing on this thread; its frames are left as the next tracer expects them.
    pub(super) fn leave(&self) {
        // SAFETY: this thread is attached, and may change its trace function while that runs.
        // Frames are alive as long as they are on the stack; those behind this one are given with a
        // reference of their own.
        unsafe {
            ffi::PyEval_SetTrace(None, std::ptr::null_mut());
            let mut frame = Bound::from_borrowed_ptr_or_opt(self.py, self.object.cast());
            while let Some(own) = frame {
                let object = own.as_ptr().cast::<FrameObject>();
                if (*object).trace_lines == 0 {
                    (*object).trace_lines = 1;
                    (*object).trace_opcodes = 0;
                }
                let back = ffi::PyFrame_GetBack(object.cast());
                frame = Bound::from_owned_ptr_or_opt(self.py, back.cast());
            }
        }
    }

    pub(super) fn code_address(&self) -> usize {
        self.inner().code as usize
    }

    pub(super) fn code(&self) -> Option<Bound<'py, PyCode>> {
        self.owned(self.inner().code)?.cast_into().ok()
    }

    pub(super) fn globals(&self) -> Option<Bound<'py, PyDict>> {
        self.owned(self.inner().globals)?.cast_into().ok()
    }

    pub(super) fn builtins(&self) -> Option<Bound<'py, PyDict>> {
        self.owned(self.inner().builtins)?.cast_into().ok()
    }

    /// Offset of the next instruction, in bytes.
    pub(super) fn offset(&self) -> Option<usize> {
        // SAFETY: the frame object is alive.
        let offset = unsafe { ffi::PyFrame_GetLasti(self.object.cast()) };
        usize::try_from(offset).ok()
    }

    /// Whether a function of C has called the frame, and gets its result.
    pub(super) fn is_called_by_c(&self) -> bool {
        self.inner().is_entry
    }

    /// The value at `depth` on the stack, counted from 1 at the top; None if nothing is there.
    pub(super) fn stack(&self, depth: usize) -> Option<Bound<'py, PyAny>> {
        let top = usize::try_from(self.inner().stack_top).ok()?;
        self.value(top.checked_sub(depth)?)
    }

    /// Replaces the value at `depth` on the stack, counted as by [`Self::stack`].
    pub(super) fn replace(&self, depth: usize, value: Bound<'py, PyAny>) {
        let Some(top) = usize::try_from(self.inner().stack_top)
            .ok()
            .and_then(|top| top.checked_sub(depth))
        else {
            return;
        };
        // SAFETY: the stack up to its top is initialised and owns its values; the interpreter reads
        // it anew once the trace function has returned.
        let old = unsafe {
            let place = (&raw mut (*(*self.object).frame).values)
                .cast::<*mut ffi::PyObject>()
                .add(top);
            std::ptr::replace(place, value.into_ptr())
        };
        // SAFETY: the reference that the stack had.
        drop(unsafe { Bound::from_owned_ptr_or_opt(self.py, old) });
    }

    /// The variable with this number; a cell where it is shared with inner functions.
    pub(super) fn value(&self, number: usize) -> Option<Bound<'py, PyAny>> {
        if number >= usize::try_from(self.inner().stack_top).ok()? {
            return None;
        }
        // SAFETY: locals and the stack up to its top are initialised, and lie behind the frame's
        // head.
        let object = unsafe {
            *(&raw const (*(*self.object).frame).values)
                .cast::<*mut ffi::PyObject>()
                .add(number)
        };
        self.owned(object)
    }
}

/// A new integer object, distinct from others of this value; None if it is negative or large.
pub(super) fn own_integer<'py>(py: Python<'py>, value: i64) -> Option<Bound<'py, PyAny>> {
    let digit = u32::try_from(value).ok().filter(|own| *own < 1 << 30)?;
    // SAFETY: it returns a new integer with room for a digit of 30 bits, or null with an exception.
    let own = unsafe { Bound::from_owned_ptr_or_err(py, _PyLong_New(1)) }.ok()?;
    let object = own.as_ptr().cast::<LongObject>();
    // SAFETY: nobody else has the object yet; zero has no digits.
    unsafe {
        (*object).digits[0] = digit;
        if digit == 0 {
            (*object).head.ob_size = 0;
        }
    }
    Some(own)
}

/// Unspecialised instructions of a code object, as bytes.
pub(super) fn instructions(code: &Bound<'_, PyCode>) -> PyResult<Vec<u8>> {
    // SAFETY: it takes a code object and returns a new reference, or null with an exception.
    let bytes = unsafe { Bound::from_owned_ptr_or_err(code.py(), PyCode_GetCode(code.as_ptr())) }?;
    bytes.extract()
}

/// Version of a dictionary, which changes whenever it does, and which no other dictionary has had.
pub(super) fn version(dict: &Bound<'_, PyDict>) -> u64 {
    // SAFETY: it is a dictionary of CPython 3.11, which is what is supported.
    unsafe { (*dict.as_ptr().cast::<DictObject>()).version }
}

/// Whether the [`version`] of a dictionary is this one.
#[inline]
pub(super) fn has_version(dict: &Py<PyDict>, then: u64, _attached: Python<'_>) -> bool {
    // SAFETY: as in `version`.
    unsafe { (*dict.as_ptr().cast::<DictObject>()).version == then }
}

/// Whether an object is of exactly this class.
#[inline]
pub(super) fn is_of(object: &Py<PyAny>, kind: &Py<PyType>, _attached: Python<'_>) -> bool {
    // SAFETY: it is an object, which is alive.
    unsafe { ffi::Py_TYPE(object.as_ptr()).cast() == kind.as_ptr() }
}

/// Whether objects keep this class: assigning `__class__` is an error.
pub(super) fn keeps_class(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: it is a type object.
    let flags = unsafe { ffi::PyType_GetFlags(kind.as_type_ptr()) } as u64;
    flags & IS_IMMUTABLE != 0 && !kind.is_subclass_of::<PyModule>().unwrap_or(true)
}

/// Whether the version of a type is this one, which is not 0.
#[inline]
pub(super) fn has_type_version(kind: &Py<PyType>, then: u32, _attached: Python<'_>) -> bool {
    let kind = kind.as_ptr().cast::<ffi::PyTypeObject>();
    // SAFETY: it is a type object, which is alive.
    unsafe { (*kind).tp_version_tag == then && (*kind).tp_flags & HAS_VERSION != 0 }
}

/// Whether a function has these parts, as addresses with 0 for missing ones: see
/// [`parts_of_function`].
#[inline]
pub(super) fn has_parts(function: &Py<PyAny>, parts: &[usize; 3], _attached: Python<'_>) -> bool {
    // SAFETY: callers have seen that it is a function; it is alive.
    let now = unsafe { &(*function.as_ptr().cast::<FunctionObject>()).parts };
    now.iter().zip(parts).all(|(now, then)| now.addr() == *then)
}

/// Whether a cell holds the object at this address, or nothing if it is 0.
#[inline]
pub(super) fn holds(cell: &Py<PyAny>, content: usize, _attached: Python<'_>) -> bool {
    // SAFETY: callers have seen that it is a cell; it is alive.
    unsafe { (*cell.as_ptr().cast::<CellObject>()).content.addr() == content }
}

/// Whether a list holds these objects, and nothing else.
#[inline]
pub(super) fn has_items(list: &Py<PyAny>, items: &[Py<PyAny>], _attached: Python<'_>) -> bool {
    let list = list.as_ptr().cast::<ffi::PyListObject>();
    // SAFETY: callers have seen that it is a list; it is alive.
    let (now, len) = unsafe { ((*list).ob_item, (*list).ob_base.ob_size) };
    usize::try_from(len) == Ok(items.len())
        && items.iter().enumerate().all(|(at, then)| {
            // SAFETY: a list has as many items as its size says, and nobody changes it meanwhile.
            unsafe { *now.add(at) == then.as_ptr() }
        })
}

/// Result of a call without arguments; None if it raises.
pub(super) fn asked<'py>(py: Python<'py>, callable: &Py<PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: it is an object; the call returns a new reference, or null with an exception.
    let found =
        unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyObject_CallNoArgs(callable.as_ptr())) };
    if found.is_none() {
        drop(PyErr::take(py));
    }
    found
}

/// Version of a type and its bases; 0 if it has none at present.
pub(super) fn type_version(kind: &Bound<'_, PyType>) -> u32 {
    let kind = kind.as_type_ptr();
    // SAFETY: it is a type object.
    unsafe {
        match ffi::PyType_GetFlags(kind) as u64 & HAS_VERSION {
            0 => 0,
            _ => (*kind).tp_version_tag,
        }
    }
}

/// Source line of the instruction at this offset, in bytes.
pub(super) fn line(code: &Bound<'_, PyCode>, offset: usize) -> c_int {
    let offset = c_int::try_from(offset).unwrap_or(0);
    // SAFETY: it takes a code object and any number.
    unsafe { ffi::PyCode_Addr2Line(code.as_ptr().cast(), offset) }
}

/// The code of a function.
pub(super) fn code_of<'py>(function: &Bound<'py, PyFunction>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: it takes a function, and returns a borrowed reference.
    unsafe { Bound::from_borrowed_ptr_or_opt(function.py(), PyFunction_GetCode(function.as_ptr())) }
}

/// Whether a type is `base` or derived from it; runs no Python code.
pub(super) fn is_derived(kind: &Bound<'_, PyType>, base: &Bound<'_, PyType>) -> bool {
    // SAFETY: it takes two types.
    unsafe { ffi::PyType_IsSubtype(kind.as_type_ptr(), base.as_type_ptr()) != 0 }
}

/// Attribute of a type or one of its bases.
pub(super) fn lookup<'py>(
    kind: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: it takes a type and a string, and returns a borrowed reference or null without an
    // exception.
    unsafe {
        Bound::from_borrowed_ptr_or_opt(
            kind.py(),
            _PyType_Lookup(kind.as_type_ptr(), name.as_ptr()),
        )
    }
}

/// The dictionary of a class itself.
pub(super) fn class_dict<'py>(kind: &Bound<'py, PyType>) -> Option<Bound<'py, PyDict>> {
    // SAFETY: it is a type object, which keeps its dictionary alive.
    let dict = unsafe { Bound::from_borrowed_ptr_or_opt(kind.py(), (*kind.as_type_ptr()).tp_dict) };
    dict?.cast_into().ok()
}

/// The attribute dictionary of an object, if it has one; with `make`, it is created if possible.
pub(super) fn attributes<'py>(
    object: &Bound<'py, PyAny>,
    make: bool,
) -> Option<Bound<'py, PyDict>> {
    let py = object.py();
    // SAFETY: it takes any object, and returns the place of its dictionary or null.
    let place = unsafe { _PyObject_GetDictPtr(object.as_ptr()) };
    if place.is_null() {
        return None;
    }
    // SAFETY: the place is in the object.
    let mut dict = unsafe { *place };
    if dict.is_null() && make {
        // SAFETY: the object has a place for a dictionary; the new reference is dropped at once, as
        // the object keeps its own.
        dict = unsafe { ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut()) };
        if dict.is_null() {
            drop(PyErr::take(py));
            return None;
        }
        // SAFETY: a new reference.
        return unsafe { Bound::from_owned_ptr(py, dict) }.cast_into().ok();
    }
    // SAFETY: the object keeps it alive, or it is null.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, dict) }?
        .cast_into()
        .ok()
}

/// Whether the attribute dictionary of an object is the one at this address.
#[inline]
pub(super) fn has_store(object: &Py<PyAny>, store: usize, _attached: Python<'_>) -> bool {
    // SAFETY: it takes any object, and returns the place of its dictionary, which is in the object,
    // or null.
    unsafe {
        let place = _PyObject_GetDictPtr(object.as_ptr());
        !place.is_null() && (*place).addr() == store
    }
}

/// The dictionary of a view of its keys, values or items.
pub(super) fn viewed<'py>(view: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    // SAFETY: callers have seen that its type is that of views, which keep their dictionary alive.
    let dict = unsafe { (*view.as_ptr().cast::<ViewObject>()).dict };
    // SAFETY: as above.
    unsafe { Bound::from_borrowed_ptr_or_opt(view.py(), dict) }?
        .cast_into()
        .ok()
}

/// Content of a cell, if any.
pub(super) fn cell_content<'py>(cell: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: it returns a new reference, or null: with an exception where it is no cell.
    let content = unsafe { ffi::PyCell_Get(cell.as_ptr()) };
    if content.is_null() {
        drop(PyErr::take(cell.py()));
        return None;
    }
    // SAFETY: a new reference.
    Some(unsafe { Bound::from_owned_ptr(cell.py(), content) })
}

/// Addresses of C functions in the slots of a type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Slots {
    /// Reads attributes.
    pub(super) getattr: usize,
    /// Writes attributes.
    pub(super) setattr: usize,
    /// Makes instances.
    pub(super) new: usize,
    /// Initialises instances.
    pub(super) init: usize,
    /// Calls instances.
    pub(super) call: usize,
}

impl Slots {
    pub(super) fn of(kind: &Bound<'_, PyType>) -> Self {
        let kind = kind.as_type_ptr();
        // SAFETY: it is a type object.
        let kind = unsafe { &*kind };
        Self {
            getattr: kind.tp_getattro.map_or(0, |own| own as usize),
            setattr: kind.tp_setattro.map_or(0, |own| own as usize),
            new: kind.tp_new.map_or(0, |own| own as usize),
            init: kind.tp_init.map_or(0, |own| own as usize),
            call: kind.tp_call.map_or(0, |own| own as usize),
        }
    }
}

/// Name of a C class, with its module unless that is `builtins`; empty for a Python class.
pub(super) fn name_in_c(kind: &Bound<'_, PyType>) -> Cow<'static, str> {
    // SAFETY: it is a type object, whose name ends with a null byte. Types that are not allocated
    // are never freed, nor is their name; those of the others are not kept.
    let name: &'static CStr = unsafe { CStr::from_ptr((*kind.as_type_ptr()).tp_name) };
    let name = name.to_str().unwrap_or_default();
    if !is_of_program(kind) {
        return Cow::Borrowed(name);
    }
    // Classes of Python have their name there, without a module; some may be named like one of C.
    let full = name.contains('.').then(|| kind.fully_qualified_name().ok());
    let full = full.flatten().filter(|full| *full == *name);
    full.map_or(Cow::Borrowed(""), |full| Cow::Owned(full.to_string()))
}

/// Whether something is a `collections.deque`.
pub(super) fn is_queue(own: &Bound<'_, PyAny>) -> bool {
    static QUEUE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let queue = QUEUE.import(own.py(), "collections", "deque");
    queue.is_ok_and(|queue| own.is_instance(queue).unwrap_or(false))
}

/// Whether something is a view of a dictionary's keys, values or items.
pub(super) fn is_view(own: &Bound<'_, PyAny>) -> bool {
    matches!(
        &*name_in_c(&own.get_type()),
        "dict_keys" | "dict_values" | "dict_items" | "odict_keys" | "odict_values" | "odict_items"
    )
}

/// Whether a class is defined in Python, or can be changed like one.
pub(super) fn is_of_program(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: it is a type object.
    unsafe { ffi::PyType_HasFeature(kind.as_type_ptr(), ffi::Py_TPFLAGS_HEAPTYPE) != 0 }
}

/// Whether a type reads attributes only from the instance's dictionary and its classes.
pub(super) fn is_generic(slots: Slots) -> bool {
    slots.getattr == ffi::PyObject_GenericGetAttr as *const () as usize
}

/// Calls `program` with a trace function on this thread.
///
/// The trace function is called with `state`, whatever the program does, and no more once this
/// returns.
pub(super) fn traced<'py>(
    state: &Bound<'py, PyAny>,
    function: ffi::Py_tracefunc,
    program: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    struct Off<'a, 'py>(&'a Bound<'py, PyAny>);
    impl Drop for Off<'_, '_> {
        fn drop(&mut self) {
            // The program may have set another one, which has to stay.
            if trace_object(self.0.py()).is_ok_and(|own| own.is(self.0)) {
                // SAFETY: this thread is attached to the interpreter.
                unsafe { ffi::PyEval_SetTrace(None, std::ptr::null_mut()) };
            }
        }
    }
    // SAFETY: this thread is attached; the interpreter keeps a reference to `state`.
    unsafe { ffi::PyEval_SetTrace(Some(function), state.as_ptr()) };
    let _off = Off(state);
    program()
}

/// Suspends the trace function of this thread until [`resume`]. Returns the thread.
pub(super) fn pause(_attached: Python<'_>) -> usize {
    // SAFETY: this thread is attached, so that it has a state.
    unsafe {
        let thread = ffi::PyThreadState_Get();
        ffi::PyThreadState_EnterTracing(thread);
        thread.addr()
    }
}

/// Ends a [`pause`] of `thread`, if that is this one. Returns whether it is.
pub(super) fn resume(_attached: Python<'_>, thread: usize) -> bool {
    // SAFETY: this thread is attached, and has been paused.
    unsafe {
        let own = ffi::PyThreadState_Get();
        if own.addr() == thread {
            ffi::PyThreadState_LeaveTracing(own);
        }
        own.addr() == thread
    }
}

/// Whether this thread is traced, by a debugger or a measurement of coverage.
pub(super) fn is_traced(py: Python<'_>) -> PyResult<bool> {
    Ok(!trace_object(py)?.is_none())
}

/// Object that the trace function of this thread is called with; None if there is none.
fn trace_object(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static GETTRACE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    GETTRACE.import(py, "sys", "gettrace")?.call0()
}

/// Parts that define a Python function: its code, its defaults, and those of keyword-only
/// parameters.
pub(super) fn parts_of_function<'py>(
    function: &Bound<'py, PyAny>,
) -> [Option<Bound<'py, PyAny>>; 3] {
    let (py, object) = (function.py(), function.as_ptr());
    // SAFETY: callers have seen that it is a function; these return borrowed references or null.
    let parts = unsafe {
        [
            ffi::PyFunction_GetCode(object),
            ffi::PyFunction_GetDefaults(object),
            ffi::PyFunction_GetKwDefaults(object),
        ]
    };
    // SAFETY: the function keeps them alive.
    parts.map(|part| unsafe { Bound::from_borrowed_ptr_or_opt(py, part) })
}

/// Whether the garbage collector tracks an object.
pub(super) fn is_tracked(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: it takes any object.
    unsafe { ffi::PyObject_GC_IsTracked(object.as_ptr()) == 1 }
}
