//! The C interface of model files: `libcorsac`, with the header `include/corsac.h`.
//!
//! A model is loaded from a file or from memory, its inputs, outputs and weights are inspected, and
//! it is run on tensors of the caller: memory with sizes and strides, or tensors of DLPack. The
//! functions are those of [`corsac_engine::Model`]; this crate checks what C cannot, converts
//! elements, and owns what is handed out. Language models continue texts by
//! [`corsac_generate::TextModel`]. `docs/c.md` shows how it is used.
//!
//! Each function returns a [`Status`] whose numbers stay, and on request an error with a text. No
//! panic crosses the border. Handles do not change after they are made, except sessions, whose
//! calls wait for each other, so that any number of threads may use one at once.
//!
//! Unsafe code is what C requires: pointers of the caller (`pointer`, `options`, `view`), elements in
//! memory that is not Rust's (`strided`, `memory`, `wasm`), and the structures of DLPack (`dlpack`); the
//! functions of the header pass their arguments to these. A caller is trusted only in what cannot be
//! checked: that a pointer which is not null points to what the header says.
//!
//! ```
//! use std::ptr::null_mut;
//!
//! use corsac::{Status, corsac_error_free, corsac_error_status, corsac_model_load};
//!
//! let (mut model, mut error) = (null_mut(), null_mut());
//! let path = c"missing.safetensors".as_ptr();
//! // SAFETY: the path is a string of C, the options may be null, and both places are there.
//! let status = unsafe { corsac_model_load(path, std::ptr::null(), &mut model, &mut error) };
//! assert_eq!(status, Status::Io);
//! assert!(model.is_null());
//! // SAFETY: the error is that of the call, and is freed once.
//! unsafe {
//!     assert_eq!(corsac_error_status(error), Status::Io);
//!     corsac_error_free(error);
//! }
//! ```

mod border;
mod dlpack;
mod dtype;
mod error;
mod file;
pub mod fuzz;
mod generate;
mod layout;
mod memory;
mod model;
mod options;
mod pointer;
mod run;
mod session;
mod spec;
mod strided;
mod tensor;
mod text_model;
mod version;
mod view;
#[cfg(target_family = "wasm")]
mod wasm;

pub use border::{ErrorHandle, corsac_error_free, corsac_error_message, corsac_error_status};
pub use dlpack::{
    DLManagedTensor, DLManagedTensorVersioned, corsac_tensor_from_dlpack,
    corsac_tensor_from_dlpack_versioned, corsac_tensor_to_dlpack,
    corsac_tensor_to_dlpack_versioned,
};
pub use dtype::{Dtype, corsac_dtype_name, corsac_dtype_size_bytes};
pub use error::{Status, corsac_status_name};
pub use generate::{
    GenerateOptions, NewToken, OnToken, Prompt, TextEnd, corsac_text_model_generate,
};
pub use model::{
    ModelHandle, corsac_model_find_input, corsac_model_find_output, corsac_model_free,
    corsac_model_input, corsac_model_input_count, corsac_model_load, corsac_model_load_memory,
    corsac_model_output, corsac_model_output_count, corsac_model_program_count,
    corsac_model_program_name, corsac_model_state, corsac_model_state_count, corsac_model_threads,
    corsac_model_weight, corsac_model_weight_count,
};
pub use options::Options;
pub use run::{corsac_model_run, corsac_model_run_into};
pub use session::{
    NamedSize, SessionHandle, corsac_session_fork, corsac_session_free, corsac_session_new,
    corsac_session_reset, corsac_session_resize, corsac_session_run, corsac_session_run_into,
    corsac_session_set_state, corsac_session_state,
};
pub use spec::Spec;
pub use tensor::{TensorHandle, corsac_tensor_free, corsac_tensor_view};
pub use text_model::{
    TextModelHandle, corsac_text_model_free, corsac_text_model_load, corsac_text_model_load_memory,
    corsac_text_model_longest_text, corsac_text_model_most_texts, corsac_text_model_stop,
    corsac_text_model_vocabulary,
};
pub use version::{VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH, corsac_version};
pub use view::{VIEW_READ_ONLY, View};
#[cfg(target_family = "wasm")]
pub use wasm::{corsac_memory_allocate, corsac_memory_free};
