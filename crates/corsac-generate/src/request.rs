//! What is to be generated, and what was.

use crate::error::GenerateError;
use crate::sampling::{Sampler, Sampling};

/// A prompt, and how it is to be continued.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The tokens to continue: at least one.
    pub prompt: Vec<u32>,
    /// Most tokens to generate.
    pub max_new_tokens: usize,
    /// How tokens are chosen: by default the most probable one.
    pub sampling: Sampling,
    /// Tokens that end the text; `None` for those of the model.
    pub stop: Option<Vec<u32>>,
}

impl Request {
    /// Continues `prompt` by the most probable tokens, 256 of them at most.
    pub fn new(prompt: impl Into<Vec<u32>>) -> Self {
        Self {
            prompt: prompt.into(),
            max_new_tokens: 256,
            sampling: Sampling::default(),
            stop: None,
        }
    }

    /// Checks the settings, and the prompt for a model with these limits.
    ///
    /// # Errors
    /// If a setting is out of its range, or the model does not take the prompt.
    pub(crate) fn check(&self, limits: &TextLimits) -> Result<(), GenerateError> {
        self.sampling.check()?;
        let wrong = |reason: String| Err(GenerateError::Prompt(reason));
        if self.max_new_tokens == 0 {
            return Err(GenerateError::Setting {
                name: "max_new_tokens",
                value: "0".to_owned(),
                expected: "a number of tokens from 1 on",
            });
        }
        if self.prompt.is_empty() {
            return wrong("has no tokens".to_owned());
        }
        let length = self.prompt.len();
        if length > limits.length {
            return wrong(format!(
                "has {length} tokens, and the model takes {}",
                limits.length
            ));
        }
        let all = self.prompt.iter();
        match all.copied().find(|&own| own as usize >= limits.vocabulary) {
            Some(token) => wrong(format!(
                "has the token {token}, and those of the model are below {}",
                limits.vocabulary
            )),
            None => Ok(()),
        }
    }
}

/// What a language model takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextLimits {
    /// Number of tokens that there are.
    pub(crate) vocabulary: usize,
    /// Most tokens of a text.
    pub(crate) length: usize,
    /// Most tokens that are read at once.
    pub(crate) longest_step: usize,
    /// Fewest columns of caches.
    pub(crate) fewest_columns: usize,
    /// Tokens that end a text.
    pub(crate) stop: Vec<u32>,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// With a token that ends texts.
    Stop,
    /// It has as many new tokens as were asked for.
    Length,
    /// The model takes no longer texts.
    Full,
    /// The model gave logits that are not finite numbers; the token is the last one before.
    Invalid,
}

impl Finish {
    /// Its name: `stop`, `length`, `full` or `invalid`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Full => "full",
            Self::Invalid => "invalid",
        }
    }
}

/// A text that grows.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// The prompt and what follows.
    pub(crate) tokens: Vec<u32>,
    longest: usize,
    is_limit_of_model: bool,
    stop: Vec<u32>,
    sampler: Sampler,
}

impl Sequence {
    pub(crate) fn new(request: Request, limits: &TextLimits) -> Self {
        let wanted = request.prompt.len().saturating_add(request.max_new_tokens);
        // The last token is not read by the model.
        let possible = limits.length.saturating_add(1);
        Self {
            tokens: request.prompt,
            longest: wanted.min(possible),
            is_limit_of_model: possible < wanted,
            stop: request.stop.unwrap_or_else(|| limits.stop.clone()),
            sampler: Sampler::new(request.sampling),
        }
    }

    /// Adds a token for these logits, and says whether the text ends.
    pub(crate) fn extend(&mut self, logits: &[f32]) -> Option<Finish> {
        let Ok(token) = self.sampler.choose(logits, &self.tokens) else {
            return Some(Finish::Invalid);
        };
        self.tokens.push(token);
        if self.stop.contains(&token) {
            return Some(Finish::Stop);
        }
        (self.tokens.len() >= self.longest).then_some(match self.is_limit_of_model {
            true => Finish::Full,
            false => Finish::Length,
        })
    }

    /// The last token.
    pub(crate) fn last(&self) -> u32 {
        self.tokens.last().copied().unwrap_or_default()
    }
}
