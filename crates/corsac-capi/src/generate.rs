//! Texts that language models continue.

use std::collections::BTreeMap;
use std::ffi::c_void;

use corsac_generate::{Finish, Request, Sampling};

use crate::border::{ErrorHandle, call};
use crate::error::{Error, Status};
use crate::options::sized;
use crate::pointer::{given, items};
use crate::text_model::TextModelHandle;

/// A text to continue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Prompt {
    /// The tokens: at least one.
    pub tokens: *const u32,
    /// Number of tokens.
    pub token_count: usize,
}

/// How texts are continued. Set `size` to `sizeof(corsac_generate_options)`; all else may be 0, which stands for the
/// default. Settings are applied in the order repetition_penalty, temperature, top_k, top_p.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GenerateOptions {
    /// `sizeof(corsac_generate_options)`: later versions may add members to the end.
    pub size: usize,
    /// Most tokens that are added to a text. By default 256.
    pub max_new_tokens: usize,
    /// Divides the logits. By default 0: the most probable token is taken.
    pub temperature: f64,
    /// Most tokens to choose from. By default all of them.
    pub top_k: usize,
    /// Only the fewest tokens whose probabilities add up to this may be chosen. By default 1: all of them.
    pub top_p: f64,
    /// Above 1, tokens of the text are less probable. By default 1.
    pub repetition_penalty: f64,
    /// Equal seeds give equal texts: text `n` has the seed `seed + n`.
    pub seed: u64,
    /// Tokens that end a text. By default, which is null, those of the model.
    pub stop: *const u32,
    /// Number of tokens that end a text: 0 for none, if `stop` is not null.
    pub stop_count: usize,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            size: size_of::<Self>(),
            max_new_tokens: 0,
            temperature: 0.0,
            top_k: 0,
            top_p: 0.0,
            repetition_penalty: 0.0,
            seed: 0,
            stop: std::ptr::null(),
            stop_count: 0,
        }
    }
}

impl GenerateOptions {
    /// A request without a prompt.
    ///
    /// # Safety
    /// `stop` is null or has as many tokens as `stop_count`.
    unsafe fn request(&self) -> Result<Request, Error> {
        let mut request = Request::new([]);
        if self.max_new_tokens != 0 {
            request.max_new_tokens = self.max_new_tokens;
        }
        request.sampling = Sampling {
            temperature: self.temperature as f32,
            top_k: (self.top_k != 0).then_some(self.top_k),
            top_p: (self.top_p != 0.0).then_some(self.top_p as f32),
            repetition_penalty: match self.repetition_penalty == 0.0 {
                true => 1.0,
                false => self.repetition_penalty as f32,
            },
            seed: self.seed,
        };
        if !self.stop.is_null() || self.stop_count > 0 {
            // SAFETY: by the contract of this function.
            let stop = unsafe { items(self.stop, self.stop_count, "stop") }?;
            request.stop = Some(stop.to_vec());
        }
        Ok(request)
    }
}

/// Why a text ended.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEnd {
    /// It goes on.
    None = 0,
    /// With a token that ends texts.
    Stop = 1,
    /// It has as many new tokens as were asked for.
    Length = 2,
    /// The model takes no longer texts.
    Full = 3,
    /// The model gave logits that are not finite numbers; the token is the last one before.
    Invalid = 4,
}

impl From<Option<Finish>> for TextEnd {
    fn from(finish: Option<Finish>) -> Self {
        match finish {
            None => Self::None,
            Some(Finish::Stop) => Self::Stop,
            Some(Finish::Length) => Self::Length,
            Some(Finish::Full) => Self::Full,
            Some(Finish::Invalid) => Self::Invalid,
        }
    }
}

/// A new token of a text.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NewToken {
    /// The number of the text among the prompts.
    pub text: usize,
    /// The token.
    pub token: u32,
    /// Whether, and why, it is the last one of the text.
    pub end: TextEnd,
}

/// Takes a token of a text, which lives until it returns. Returns 0 to go on, and any other number to end this text.
pub type OnToken =
    Option<unsafe extern "C" fn(token: *const NewToken, context: *mut c_void) -> i32>;

/// Continues texts, and calls `on_token` with `context` for each new token, in the thread of the call.
///
/// Texts are continued together, in steps of a token for each: as many as the model takes at once, while others wait.
/// The tokens of each are those that it would have alone. `options` may be null for defaults. All prompts and options
/// are checked before the first token. After an error, tokens that `on_token` has got are right.
///
/// Any number of threads may continue texts with a model at once, and `on_token` may call any function.
///
/// # Safety
/// Pointers are null or point to what is described here, and nobody writes to prompts and options during the call.
/// `on_token` returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corsac_text_model_generate(
    model: *const TextModelHandle,
    prompts: *const Prompt,
    prompt_count: usize,
    options: *const GenerateOptions,
    on_token: OnToken,
    context: *mut c_void,
    error: *mut *mut ErrorHandle,
) -> Status {
    let generate = || {
        let what = "on_token";
        let on_token = on_token.ok_or(Error::Null { what })?;
        // SAFETY: by the contract of this function; members of the options take any bytes.
        let (model, prompts, settings) = unsafe {
            let prompts = items(prompts, prompt_count, "prompts")?;
            let options: GenerateOptions = sized(options)?;
            (given(model, "model")?.model(), prompts, options.request()?)
        };
        if prompts.is_empty() {
            return Ok(());
        }
        let mut batch = model.batch(prompts.len().min(model.most_rows()))?;
        let mut texts = BTreeMap::new();
        for (number, prompt) in prompts.iter().enumerate() {
            let mut request = settings.clone();
            request.sampling.seed = settings.sampling.seed.wrapping_add(number as u64);
            // SAFETY: by the contract of this function.
            let tokens = unsafe { items(prompt.tokens, prompt.token_count, "tokens") }?;
            request.prompt = tokens.to_vec();
            texts.insert(batch.add(request)?, number);
        }
        while !batch.is_empty() {
            for new in batch.step()? {
                let Some(&text) = texts.get(&new.sequence) else {
                    continue;
                };
                let token = NewToken {
                    text,
                    token: new.token,
                    end: new.finish.into(),
                };
                // SAFETY: the function takes such a token, by the contract of this function.
                if unsafe { on_token(&raw const token, context) } != 0 {
                    batch.remove(new.sequence);
                }
            }
        }
        Ok(())
    };
    // SAFETY: by the contract of this function.
    unsafe { call(error, generate) }
}
