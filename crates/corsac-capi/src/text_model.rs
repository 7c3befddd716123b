//! Language models that C holds by a handle.

use std::ffi::{c_char, c_void};

use corsac_engine::ModelFile;
use corsac_generate::TextModel;

use crate::border::ErrorHandle;
use crate::error::{Error, Status};
use crate::file::{copied, load, opened};
use crate::options::Options;
use crate::pointer::{Place, free};

/// A language model ready to continue texts. It does not change: any number of threads may use it at once.
pub struct TextModelHandle(TextModel);

impl TextModelHandle {
    fn new(file: ModelFile, options: &Options) -> Result<Self, Error> {
        Ok(Self(TextModel::from_file(file, options.threads())?))
    }

    pub(crate) fn model(&self) -> &TextModel {
        &self.0
    }
}

/// Loads the language model in the file at `path`, which `corsac save --generate` has written; otherwise as
/// corsac_model_load. On success `*model` is the caller's to free with corsac_text_model_free; on failure it is null.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_text_model_load(
    path: *const c_char,
    options: *const Options,
    model: *mut *mut TextModelHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe { load(model, error, || opened(path, options), TextModelHandle::new) }
}

/// Loads a language model of `size_bytes` bytes from memory, which may be freed after the call; otherwise as
/// corsac_text_model_load.
///
/// # Safety
/// Pointers are null or point to what is described here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_text_model_load_memory(
    bytes: *const c_void,
    size_bytes: usize,
    options: *const Options,
    model: *mut *mut TextModelHandle,
    error: *mut *mut ErrorHandle,
) -> Status {
    // SAFETY: by the contract of this function.
    unsafe {
        load(
            model,
            error,
            || copied(bytes, size_bytes, options),
            TextModelHandle::new,
        )
    }
}

/// Frees a language model. Null is ignored.
///
/// # Safety
/// `model` is null or a language model that has not been freed, and that no thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_text_model_free(model: *mut TextModelHandle) {
    // SAFETY: by the contract of this function; models are made in boxes.
    unsafe { free(model) };
}

/// Number of tokens that there are: all tokens are below it. 0 for null.
///
/// # Safety
/// `model` is null or a language model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_text_model_vocabulary(model: *const TextModelHandle) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.0.vocabulary())
}

/// Most tokens of a prompt, and of a text but for its last one; 0 for null.
///
/// # Safety
/// `model` is null or a language model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_text_model_longest_text(model: *const TextModelHandle) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.0.longest_text())
}

/// Most texts that are continued at once, while others wait; 0 for null.
///
/// # Safety
/// `model` is null or a language model that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_text_model_most_texts(model: *const TextModelHandle) -> usize {
    // SAFETY: by the contract of this function.
    unsafe { model.as_ref() }.map_or(0, |model| model.0.most_rows())
}

/// The tokens that end a text, and in `*count` their number. They live as long as the model. Null, and 0, for a null
/// model; null if `count` is null.
///
/// # Safety
/// `model` is null or a language model that has not been freed; `count` is null or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_text_model_stop(
    model: *const TextModelHandle,
    count: *mut usize,
) -> *const u32 {
    // SAFETY: by the contract of this function.
    let (model, place) = unsafe { (model.as_ref(), Place::new(count, "count")) };
    let Ok(place) = place else {
        return std::ptr::null();
    };
    let stop = model.map(|model| model.0.stop());
    place.write(stop.map_or(0, <[u32]>::len));
    stop.map_or(std::ptr::null(), <[u32]>::as_ptr)
}
