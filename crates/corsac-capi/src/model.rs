//! Models that C holds by a handle.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use corsac_engine::{Model, ModelFile};

use crate::border::{ErrorHandle, call};
use crate::error::{Error, Status};
use crate::file::{copied, load, opened};
use crate::options::Options;
use crate::pointer::{Place, free, given, text};
use crate::spec::{Spec, Specs, c_name};

/// A model ready to run. It does not change: any number of threads may use it at once.
pub struct ModelHandle {
    model: Arc<Model>,
    inputs: Specs,
    outputs: Specs,
    weights: Specs,
    state: Specs,
    programs: Vec<CString>,
}

impl ModelHandle {
    fn new(file: ModelFile, options: &Options) -> Result<Self, Error> {
        let weights = Specs::of_tensors(file.weights())?;
        let mut model = Model::from_file(file)?;
        if let Some(threads) = options.threads() {
            model = model.with_threads(threads);
        }
        let programs = model.programs().iter();
        let programs = programs.map(|own| c_name(own.name()));
        Ok(Self {
            inputs: Specs::of_inputs(model.signature().inputs())?,
            outputs: Specs::of_outputs(&model.dynamic_outputs())?,
            weights,
            state: Specs::of_inputs(model.state().inputs())?,
            programs: programs.collect::<Result<_, _>>()?,
            model: Arc::new(model),
        })
    }

    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }
}

/// Loads the model file at `path`, within the limits of `options`, which may be null for defaults.
///
/// All of the file is checked, and nothing in it is executed: it may come from anywhere. On success
/// `*model` is the caller's to free with corsac_model_free; on failure it is null. The file is not used after the
/// call, unless sizes of inputs differ between calls: then it is kept open.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_load(
    path: *const c_char,
    options: *const Options,
    model: *mut *mut ModelHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe { load(model, error, || opened(path, options), ModelHandle::new) }
}

/// Loads a model file of `size_bytes` bytes from memory, which may be freed after the call;
/// otherwise as corsac_model_load.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_load_memory(
    bytes: *const c_void,
    size_bytes: usize,
    options: *const Options,
    model: *mut *mut ModelHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe {
        load(
            model,
            error,
            || copied(bytes, size_bytes, options),
            ModelHandle::new,
        )
    }
}

/// Frees a model. Its specs go with it; its results stay. Null is ignored.
///
/// # Safety
/// `model` is null or a model that has not been freed, and that no thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_free(model: *mut ModelHandle) {
    // SAFETY: by the contract of this function; models are made in boxes.
    unsafe { free(model) };
}

/// Number of threads of a run; 0 for null.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_threads(model: *const ModelHandle) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.model.threads())
}

/// Number of inputs; 0 for null.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_input_count(model: *const ModelHandle) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.inputs.len())
}

/// Number of outputs; 0 for null.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_output_count(model: *const ModelHandle) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.outputs.len())
}

/// Number of weights; 0 for null.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_weight_count(model: *const ModelHandle) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.weights.len())
}

/// Number of tensors of state, which sessions keep between calls; 0 for null.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_state_count(model: *const ModelHandle) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.state.len())
}

/// Number of programs, of which the first is the default one; 0 for null.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_program_count(model: *const ModelHandle) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.programs.len())
}

/// The name of a program; an only one may have an empty name. It lives as long as the model. Null if there is no such
/// program.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_program_name(
    model: *const ModelHandle,
    number: usize,
) -> *const c_char {
    // SAFETY: by the contract of this function.
    let model = unsafe { model.as_ref() };
    let name = model.and_then(|model| model.programs.get(number));
    name.map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Name, dtype and shape of an input of the default program. They live as long as the model. Null if there is no such
/// input.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_input(
    model: *const ModelHandle,
    number: usize,
) -> *const Spec {
    // SAFETY: by the contract of this function.
    spec(unsafe { model.as_ref() }.map(|model| &model.inputs), number)
}

/// Name, dtype and shape of an output of the default program, which is named after its place in the
/// result: "1.0", "logits", or "output" if it is the only one. They live as long as the model. Null if there is no such
/// output.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_output(
    model: *const ModelHandle,
    number: usize,
) -> *const Spec {
    // SAFETY: by the contract of this function.
    spec(
        unsafe { model.as_ref() }.map(|model| &model.outputs),
        number,
    )
}

/// Name, dtype and shape of a weight, in the order of the file. They live as long as the model. Null
/// if there is no such weight.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_weight(
    model: *const ModelHandle,
    number: usize,
) -> *const Spec {
    // SAFETY: by the contract of this function.
    spec(
        unsafe { model.as_ref() }.map(|model| &model.weights),
        number,
    )
}

/// Name, dtype and shape of a tensor of state; a size of -1 is chosen by each session. They live as long as the model.
/// Null if there is no such tensor.
///
/// # Safety
/// `model` is null or a model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_state(
    model: *const ModelHandle,
    number: usize,
) -> *const Spec {
    // SAFETY: by the contract of this function.
    spec(unsafe { model.as_ref() }.map(|model| &model.state), number)
}

fn spec(specs: Option<&Specs>, number: usize) -> *const Spec {
    let spec = specs.and_then(|specs| specs.get(number));
    spec.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// Finds the number of the input called `name`. The error of another name lists those that there are.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_find_input(
    model: *const ModelHandle,
    name: *const c_char,
    number: *mut usize,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe { find(model, |model| ("input", &model.inputs), name, number, error) }
}

/// Finds the number of the output called `name`. The error of another name lists those that there
/// are.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_model_find_output(
    model: *const ModelHandle,
    name: *const c_char,
    number: *mut usize,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe {
        find(
            model,
            |model| ("output", &model.outputs),
            name,
            number,
            error,
        )
    }
}

/// # Safety
/// Those of [`corsac_model_find_input`].
unsafe fn find(
    model: *const ModelHandle,
    specs: fn(&ModelHandle) -> (&'static str, &Specs),
    name: *const c_char,
    number: *mut usize,
    error: *mut *mut ErrorHandle,
) -> Status {
    let find = || {
        // SAFETY: by the contract of this function.
        let (model, name, place) = unsafe {
            let place = Place::new(number, "number")?;
            (given(model, "model")?, text(name, "name")?, place)
        };
        let (what, specs) = specs(model);
        place.write(specs.find(what, name)?);
        Ok(())
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, find) }
}
