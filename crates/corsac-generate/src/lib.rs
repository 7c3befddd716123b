//! Text from language models in model files: sampling, streaming, and batches of sequences that come and go.

mod batch;
mod error;
mod model;
mod request;
mod sampling;
mod slots;
mod steps;
#[cfg(feature = "text")]
mod text;

pub use batch::{Batch, Generation};
pub use error::GenerateError;
pub use model::{SETTINGS, TextModel};
pub use request::{Finish, Request};
pub use sampling::{Candidate, Sampling, candidates};
pub use slots::{NewToken, SequenceId};
#[cfg(feature = "text")]
pub use text::{TextStream, Tokenizer};
