//! The fuzz target of the C interface: calls with any sizes, strides, types, settings and pointers to null.

mod choices;
mod imports;
mod owned;
mod sessions;
mod texts;

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use choices::Choices;
use owned::{Owned, owned};
pub use texts::TextTarget;

use crate::{
    ErrorHandle, ModelHandle, Spec, Status, TensorHandle, View, corsac_error_free,
    corsac_error_message, corsac_error_status, corsac_model_free, corsac_model_input,
    corsac_model_input_count, corsac_model_load_memory, corsac_model_output,
    corsac_model_output_count, corsac_model_run, corsac_model_run_into, corsac_tensor_free,
    corsac_tensor_from_dlpack_versioned, corsac_tensor_to_dlpack_versioned, corsac_tensor_view,
};

/// A model that calls are made of.
pub struct Target(*mut ModelHandle);

impl Target {
    /// Loads the model file of these bytes; `None` if it is none.
    #[must_use]
    pub fn load(bytes: &[u8]) -> Option<Self> {
        let mut model = null_mut();
        checked(|error| {
            // SAFETY: the bytes are there, and so are places for results.
            unsafe {
                corsac_model_load_memory(
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    null(),
                    &mut model,
                    error,
                )
            }
        });
        (!model.is_null()).then_some(Self(model))
    }

    /// Makes calls that `bytes` choose. Wrong ones are errors, and right ones have the same results into
    /// memory of the caller and of the library. Returns how many were right.
    ///
    /// # Panics
    /// If a call breaks its promises.
    pub fn calls(&self, bytes: &[u8]) -> usize {
        let (mut choices, mut right) = (Choices(bytes), 0);
        while !choices.0.is_empty() {
            if choices.rarely() {
                imports::import(&mut choices);
            }
            right += usize::from(self.call(&mut choices));
        }
        right
    }

    fn call(&self, choices: &mut Choices<'_>) -> bool {
        let mut inputs = owned(self.inputs(), choices);
        let mut outputs = owned(self.outputs(), choices);
        let inputs: Vec<View> = inputs.iter_mut().map(Owned::view).collect();
        let views: Vec<View> = outputs.iter_mut().map(Owned::view).collect();
        let input_count = inputs.len() - usize::from(choices.rarely() && !inputs.is_empty());
        let mut tensors: Vec<*mut TensorHandle> = vec![null_mut(); views.len()];
        let allocated = checked(|error| {
            // SAFETY: views are of memory as large as they say, and there is a place for each result.
            unsafe {
                corsac_model_run(
                    self.0,
                    inputs.as_ptr(),
                    input_count,
                    tensors.as_mut_ptr(),
                    tensors.len(),
                    error,
                )
            }
        });
        let written = checked(|error| {
            // SAFETY: views are of memory as large as they say, of their own.
            unsafe {
                corsac_model_run_into(
                    self.0,
                    inputs.as_ptr(),
                    input_count,
                    views.as_ptr(),
                    views.len(),
                    error,
                )
            }
        });
        assert!(allocated == Status::Ok || written != Status::Ok);
        for (&tensor, view) in tensors.iter().zip(&views) {
            assert_eq!(tensor.is_null(), allocated != Status::Ok);
            // SAFETY: it is null or a tensor, with its view.
            if let Some(own) = unsafe { corsac_tensor_view(tensor).as_ref() } {
                if written == Status::Ok {
                    assert_eq!(elements(own), elements(view));
                }
                round_trip(tensor);
            }
        }
        written == Status::Ok
    }

    /// Specs of the inputs.
    fn inputs(&self) -> Vec<&Spec> {
        // SAFETY: it is a model, with these specs.
        unsafe {
            let numbers = 0..corsac_model_input_count(self.0);
            numbers
                .filter_map(|number| corsac_model_input(self.0, number).as_ref())
                .collect()
        }
    }

    /// Specs of the outputs.
    fn outputs(&self) -> Vec<&Spec> {
        // SAFETY: it is a model, with these specs.
        unsafe {
            let numbers = 0..corsac_model_output_count(self.0);
            numbers
                .filter_map(|number| corsac_model_output(self.0, number).as_ref())
                .collect()
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: it is a model that is used no more.
        unsafe { corsac_model_free(self.0) };
    }
}

/// Exports a tensor, frees it, imports it again, and frees that.
fn round_trip(tensor: *mut TensorHandle) {
    let (mut managed, mut again) = (null_mut(), null_mut());
    // SAFETY: it is a tensor, which is freed once, and so is the one that is imported.
    unsafe {
        let before = elements(&*corsac_tensor_view(tensor));
        let exported =
            checked(|error| corsac_tensor_to_dlpack_versioned(tensor, &mut managed, error));
        assert_eq!(exported, Status::Ok);
        corsac_tensor_free(tensor);
        let imported =
            checked(|error| corsac_tensor_from_dlpack_versioned(managed, &mut again, error));
        assert_eq!(imported, Status::Ok);
        assert_eq!(elements(&*corsac_tensor_view(again)), before);
        corsac_tensor_free(again);
    }
}

/// Makes a call, and checks its status and its error.
fn checked(call: impl FnOnce(*mut *mut ErrorHandle) -> Status) -> Status {
    let mut error = null_mut();
    let status = call(&mut error);
    // SAFETY: it is null or an error, which is freed once.
    unsafe {
        assert_eq!(corsac_error_status(error), status);
        let message = CStr::from_ptr(corsac_error_message(error));
        let message = message.to_str().expect("texts are in UTF-8");
        assert_eq!(message.is_empty(), status == Status::Ok);
        assert!(
            status != Status::Internal && !message.contains('\n'),
            "{message}"
        );
        corsac_error_free(error);
    }
    status
}

/// The bytes of the elements of a correct view, row by row.
fn elements(view: &View) -> Vec<u8> {
    // SAFETY: the view has been used by a call that succeeded.
    let gathered = unsafe { view.strided() }.map(|strided| strided.gathered());
    match gathered.expect("a view").expect("memory") {
        corsac_engine::Elements::F32(own) => own.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        corsac_engine::Elements::F64(own) => own.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        corsac_engine::Elements::I64(own) => own.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        corsac_engine::Elements::Bool(own) => own,
    }
}
