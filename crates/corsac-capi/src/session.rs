//! Sessions that C holds by a handle.

use std::ffi::{CStr, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corsac_engine::{DType, Data, DataMut, ModelError, Session, Specialisation, Tensor};

use crate::border::{ErrorHandle, call};
use crate::error::{Error, Status};
use crate::model::ModelHandle;
use crate::pointer::{Place, free, given, items, text};
use crate::run::{checked, places, run_into, run_new, types};
use crate::strided::Strided;
use crate::tensor::TensorHandle;
use crate::view::View;

/// State between calls of the programs of a model. Calls of several threads wait for each other.
pub struct SessionHandle(Mutex<Session>);

impl SessionHandle {
    fn new(session: Session) -> Self {
        Self(Mutex::new(session))
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        // A panic in a call is an error of the session.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A size of the state of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NamedSize {
    /// The name, in UTF-8.
    pub name: *const c_char,
    /// The size.
    pub value: usize,
}

/// A name in UTF-8.
fn utf8<'a>(name: &'a CStr, what: &'static str) -> Result<&'a str, Error> {
    name.to_str().map_err(|_| Error::Utf8 { what })
}

/// # Safety
/// `sizes` is null or points to `count` sizes, whose names are null or C strings.
unsafe fn named<'a>(sizes: *const NamedSize, count: usize) -> Result<Vec<(&'a str, usize)>, Error> {
    // SAFETY: by the contract of this function.
    let sizes: &[NamedSize] = unsafe { items(sizes, count, "sizes") }?;
    let named = sizes.iter().map(|size| {
        // SAFETY: by the contract of this function.
        let name = unsafe { text(size.name, "the name of a size") }?;
        Ok((utf8(name, "the name of a size")?, size.value))
    });
    named.collect()
}

/// Makes a session of a model, whose state has these sizes and its initial values.
///
/// `sizes` are all sizes of the state that are names, in any order; null if there are none. The session shares the
/// weights of the model, which may be freed before it. On success `*session` is the caller's to free with
/// corsac_session_free; on failure it is null.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_session_new(
    model: *const ModelHandle,
    sizes: *const NamedSize,
    size_count: usize,
    session: *mut *mut SessionHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    let make = || {
        // SAFETY: by the contract of this function.
        let (place, model, sizes) = unsafe {
            let place = Place::of_handle(session, "session")?;
            (place, given(model, "model")?, named(sizes, size_count)?)
        };
        place.give(SessionHandle::new(model.model().session(&sizes)?));
        Ok(())
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, make) }
}

/// Frees a session. Null is ignored.
///
/// # Safety
/// `session` is null or a session that has not been freed, and that no thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_session_free(session: *mut SessionHandle) {
    // SAFETY: by the contract of this function; sessions are made in boxes.
    unsafe { free(session) };
}

/// Runs a program of a model, which reads and writes the state of the session, and allocates its outputs.
///
/// `program` is the name of the program, or null for the default one. `inputs` and `outputs` are as in
/// corsac_model_run, for the inputs and outputs of that program. After an error the state is as before; if an index was
/// out of range after the program had written to the state, further calls are errors until corsac_session_reset.
///
/// # Safety
/// Pointers are null or point to what is described here, and nobody writes to the memory of inputs
/// during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_session_run(
    session: *const SessionHandle,
    program: *const c_char,
    inputs: *const View,
    input_count: usize,
    outputs: *mut *mut TensorHandle,
    output_count: usize,
    error: *mut *mut ErrorHandle,
) -> Status {
    let counts = (input_count, output_count);
    // SAFETY: by the contract of this function.
    unsafe {
        let write = |sizes: &Specialisation, inputs: &[Strided<'_>], run: Run<'_>| {
            run_new(sizes, inputs, &places(outputs, output_count)?, run)
        };
        call(error, || run(session, program, inputs, counts, write))
    }
}

/// Runs a program of a model as corsac_session_run, into memory of the caller: `outputs` are as in
/// corsac_model_run_into, for the outputs of that program.
///
/// # Safety
/// Pointers are null or point to what is described here. During the call nobody writes to the memory
/// of inputs, and nobody uses that of outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_session_run_into(
    session: *const SessionHandle,
    program: *const c_char,
    inputs: *const View,
    input_count: usize,
    outputs: *const View,
    output_count: usize,
    error: *mut *mut ErrorHandle,
) -> Status {
    let counts = (input_count, output_count);
    // SAFETY: by the contract of this function.
    unsafe {
        let write = |sizes: &Specialisation, inputs: &[Strided<'_>], run: Run<'_>| {
            let outputs = View::all(items(outputs, output_count, "outputs")?, "output")?;
            run_into(sizes, inputs, &outputs, run)
        };
        call(error, || run(session, program, inputs, counts, write))
    }
}

/// Computes results from inputs.
type Run<'a> = &'a mut dyn FnMut(&[Data<'_>], &mut [DataMut<'_>]) -> Result<(), ModelError>;

/// Runs a program, with as many inputs and outputs, whose results `write` puts in their places.
///
/// # Safety
/// Those of [`corsac_session_run`].
unsafe fn run(
    session: *const SessionHandle,
    program: *const c_char,
    inputs: *const View,
    (input_count, output_count): (usize, usize),
    write: impl FnOnce(&Specialisation, &[Strided<'_>], Run<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    // SAFETY: by the contract of this function.
    let (handle, program) = unsafe {
        let program = match program.is_null() {
            true => None,
            false => Some(utf8(text(program, "program")?, "the name of a program")?),
        };
        (given(session, "session")?, program)
    };
    let mut session = handle.lock();
    let own = session.model().program(program)?;
    // SAFETY: by the contract of this function.
    let inputs = unsafe { checked(own, inputs, input_count, output_count) }?;
    let types = types(&inputs);
    let sizes = session.specialise_for_types(program, &types)?;
    write(&sizes, &inputs, &mut |data, outputs| {
        let inputs = types.iter().zip(data);
        let inputs: Vec<(DType, &[usize], Data<'_>)> = inputs
            .map(|(&(dtype, shape), &data)| (dtype, shape, data))
            .collect();
        session.run_into(program, &inputs, outputs)
    })
}

/// Copies the state called `name` to a new tensor. On success `*tensor` is the caller's to free with
/// corsac_tensor_free; on failure it is null.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_session_state(
    session: *const SessionHandle,
    name: *const c_char,
    tensor: *mut *mut TensorHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    let read = || {
        // SAFETY: by the contract of this function.
        let (place, session, name) = unsafe {
            let place = Place::of_handle(tensor, "tensor")?;
            (place, given(session, "session")?, text(name, "name")?)
        };
        let session = session.lock();
        let state = session.state(utf8(name, "the name of state")?)?;
        let copy = TensorHandle::zeros(0, state.dtype(), state.shape())?;
        // SAFETY: this is a view of a new tensor, which nobody else uses.
        unsafe { copy.view().checked("state", 0)?.scatter(state.elements())? };
        place.give(copy);
        Ok(())
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, read) }
}

/// Replaces the state called `name` by a copy of `tensor`, of its dtype and shape, with any strides.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_session_set_state(
    session: *const SessionHandle,
    name: *const c_char,
    tensor: *const View,
    error: *mut *mut ErrorHandle,
) -> Status {
    let write = || {
        // SAFETY: by the contract of this function.
        let (session, name, view) = unsafe {
            let view = given(tensor, "tensor")?.checked("state", 0)?;
            (given(session, "session")?, text(name, "name")?, view)
        };
        let name = utf8(name, "the name of state")?;
        let layout = view.layout();
        let tensor = Tensor::new(layout.shape(), view.gathered()?)?;
        let tensor = tensor.with_dtype(layout.dtype())?;
        Ok(session.lock().set_state(name, tensor)?)
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, write) }
}

/// Sets the state to its initial values, for the same sizes.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_session_reset(
    session: *const SessionHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    let reset = || {
        // SAFETY: by the contract of this function.
        let session = unsafe { given(session, "session") }?;
        Ok(session.lock().reset()?)
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, reset) }
}

/// Enlarges the state to these sizes; others stay. Elements keep their places, and new ones have their initial values.
/// A size cannot become smaller.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_session_resize(
    session: *const SessionHandle,
    sizes: *const NamedSize,
    size_count: usize,
    error: *mut *mut ErrorHandle,
) -> Status {
    let resize = || {
        // SAFETY: by the contract of this function.
        let (session, sizes) = unsafe { (given(session, "session")?, named(sizes, size_count)?) };
        Ok(session.lock().resize(&sizes)?)
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, resize) }
}

/// Makes another session of the model, with a copy of the state. On success `*fork` is the caller's to free with
/// corsac_session_free; on failure it is null.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_session_fork(
    session: *const SessionHandle,
    fork: *mut *mut SessionHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    let make = || {
        // SAFETY: by the contract of this function.
        let (place, session) = unsafe {
            let place = Place::of_handle(fork, "fork")?;
            (place, given(session, "session")?)
        };
        place.give(SessionHandle::new(session.lock().fork()));
        Ok(())
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, make) }
}
