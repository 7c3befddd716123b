//! Captured graphs as native programs.
//!
//! A graph with known types is lowered to a [`Program`]: steps of a small set of operators over
//! numbered values ([`lower`]). The program is simplified ([`optimise`]: batch norms are fused into
//! convolutions, activations and sums into the steps before them), its values are placed in as
//! little memory as possible ([`Plan`]), and its weights are packed once ([`Executable`]). A run
//! then needs no graph, no allocation for values and no Python.
//!
//! Elements are `f32`, `f64`, `i64` or booleans, and tensors are row-major. A graph that cannot be lowered
//! is an error that names the node and the reason; nothing is guessed.
//!
//! A [`Model`] is a program in a file, loaded and run with no Python and no PyTorch. A
//! [`CacheFolder`] keeps measurements of programs for later processes.
//!
//! ```
//! use corsac_engine::{DType, Limits, Model, ModelFile, Tensor, TensorSpec, model_bytes};
//! use corsac_ir::Graph;
//!
//! let mut graph = Graph::new();
//! let x = graph.placeholder("x")?;
//! let relu = graph.function("torch.relu");
//! let y = graph.call_function(relu, [x.into()])?;
//! graph.output(y)?;
//!
//! // The bytes of a file, as `corsac.save` writes it: here of a program without weights.
//! let input = TensorSpec {
//!     name: "x".to_owned(),
//!     dtype: DType::Float32,
//!     shape: vec![3],
//! };
//! let bytes = model_bytes(&graph, &[input], &[])?;
//! let model = Model::from_file(ModelFile::from_bytes(bytes, &Limits::default())?)?;
//! let results = model.run(&[Tensor::new([3], vec![-1.0_f32, 0.5, 2.0])?])?;
//! assert_eq!(results[0].as_f32(), Some(&[0.0, 0.5, 2.0][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod aligned_buffer;
pub mod cache;
mod data;
pub mod dlpack;
mod error;
mod execute;
pub mod kernels;
mod lower;
mod model;
mod optimise;
mod parallel;
mod plan;
mod prepare;
pub mod program;
mod threads;

pub use cache::{CacheContents, CacheError, CacheFolder, CacheKey, CacheRecord};
pub use corsac_ir::DType;
pub use data::{Byte, Data, DataMut, Elements, are_booleans};
pub use error::RunError;
pub use execute::{Context, Executable, Observe};
pub use lower::{
    DTYPES, LowerError, lower, lower_with_writes, lowered_operators, same_input, unsupported,
};
pub use model::{
    InputSpec, Limits, MOST_SIZES, Model, ModelDraft, ModelError, ModelErrorKind, ModelFile,
    ModelProgram, OutputSpec, ProgramSource, Session, Signature, Size, SizeCache, SizeSymbol,
    SizeValues, Specialisation, Tensor, TensorSpec, VERSION, dynamic_model_bytes, model_bytes,
    programs_bytes, without_panic, write_dynamic_model, write_model, write_programs,
};
pub use optimise::optimise;
pub use plan::Plan;
pub use prepare::{HalfBits, WeightCache, Weights, borrow_weights};
pub use program::{
    Attention, BatchTiling, Binary, Constant, Control, Conv, Element, Epilogue, Flow, Half, Layout,
    Op, Output, Pool, Precision, Program, Reduction, Source, Step, Unary, ValueId, ValueInfo, View,
    WeightTransform,
};
pub use threads::{
    MOST_THREADS, chosen_threads, default_threads, let_callers_work, on_threads, parse_threads,
    threads_setting,
};
