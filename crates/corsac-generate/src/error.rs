//! What goes wrong.

use corsac_engine::ModelError;

/// Why no text is generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// A setting is out of its range.
    #[error("{name} is {value}, and {expected} is needed")]
    Setting {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values that it may have.
        expected: &'static str,
    },
    /// A prompt cannot be continued.
    #[error("the prompt {0}")]
    Prompt(String),
    /// The model gave logits of which none is the largest.
    #[error("the model gave logits that are not finite numbers")]
    Logits,
    /// A model file is not one of a language model.
    #[error("{0}")]
    Model(String),
    /// The tokenizer cannot be read, or does not fit the model.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The model is faulty, or running it failed.
    #[error(transparent)]
    Run(#[from] ModelError),
}
