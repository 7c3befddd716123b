//! Prompts and results as text.

use std::fmt;
use std::path::Path;

use corsac_engine::without_panic;
use tokenizers::tokenizer::DecodeStream;
use tokenizers::{
    DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
};

use crate::error::GenerateError;

/// The `tokenizer.json` of a model.
#[derive(Clone, Debug)]
pub struct Tokenizer(tokenizers::Tokenizer);

fn wrong(error: impl ToString) -> GenerateError {
    GenerateError::Tokenizer(error.to_string())
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, GenerateError> {
        let path = path.as_ref();
        let named = |error: &dyn fmt::Display| wrong(format!("{}: {error}", path.display()));
        let bytes = std::fs::read(path).map_err(|error| named(&error))?;
        Self::from_bytes(&bytes).map_err(|error| match error {
            GenerateError::Tokenizer(error) => named(&error),
            error => error,
        })
    }

    /// Reads the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// If they are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, GenerateError> {
        // Some files that are none make it panic.
        let read = || tokenizers::Tokenizer::from_bytes(bytes).map_err(wrong);
        let mut own = without_panic(read)?;
        // A prompt is neither cut nor filled up.
        own.with_truncation(None).map_err(wrong)?;
        own.with_padding(None);
        Ok(Self(own))
    }

    /// The tokens of a prompt, with those that its beginning needs.
    ///
    /// # Errors
    /// If the text has none.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, GenerateError> {
        let encoding = without_panic(|| self.0.encode(text, true).map_err(wrong))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Decodes tokens one by one, up to the first of the texts `stop`.
    #[must_use]
    pub fn stream(&self, stop: Vec<String>) -> TextStream<'_> {
        TextStream {
            tokens: self.0.decode_stream(true),
            stop: stop.into_iter().filter(|text| !text.is_empty()).collect(),
            held: String::new(),
            is_stopped: false,
        }
    }
}

/// The text of tokens that come one by one. Bytes of a character that is not complete are held back, and so is what
/// may be the beginning of a text that stops.
pub struct TextStream<'t> {
    tokens: DecodeStream<
        't,
        ModelWrapper,
        NormalizerWrapper,
        PreTokenizerWrapper,
        PostProcessorWrapper,
        DecoderWrapper,
    >,
    stop: Vec<String>,
    held: String,
    is_stopped: bool,
}

impl fmt::Debug for TextStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextStream")
            .field("stop", &self.stop)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl TextStream<'_> {
    /// The text that follows with `token`, maybe none.
    ///
    /// # Errors
    /// If the tokenizer cannot decode it.
    pub fn push(&mut self, token: u32) -> Result<String, GenerateError> {
        if self.is_stopped {
            return Ok(String::new());
        }
        if let Some(text) = self.tokens.step(token).map_err(wrong)? {
            self.held.push_str(&text);
        }
        Ok(self.released())
    }

    /// The text that is known to come before a text that stops.
    fn released(&mut self) -> String {
        let found = self.stop.iter().filter_map(|stop| self.held.find(&**stop));
        if let Some(at) = found.min() {
            self.is_stopped = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let begins = |stop: &String| {
            let ends = stop.char_indices().map(|(at, _)| at).skip(1);
            let ends = ends.filter(|&at| self.held.ends_with(&stop[..at]));
            ends.max().unwrap_or(0)
        };
        let held = self.stop.iter().map(begins).max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - held);
        std::mem::replace(&mut self.held, kept)
    }

    /// Whether one of the texts that stop has come.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// What was held back, when no more tokens come.
    #[must_use]
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}
