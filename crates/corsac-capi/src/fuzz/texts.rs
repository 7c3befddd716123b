//! Calls that continue texts.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use super::checked;
use super::choices::Choices;
use crate::{
    GenerateOptions, NewToken, Prompt, Status, TextEnd, TextModelHandle, corsac_text_model_free,
    corsac_text_model_generate, corsac_text_model_load_memory, corsac_text_model_vocabulary,
};

/// Most prompts of a call.
const TEXTS: usize = 5;

/// A language model that calls are made of.
pub struct TextTarget(*mut TextModelHandle);

/// What a call has given.
struct Given {
    tokens: [usize; TEXTS],
    has_ended: [bool; TEXTS],
    vocabulary: usize,
    /// Number of tokens after which the function ends texts.
    most: usize,
}

/// Takes a token, and checks it.
unsafe extern "C" fn take(token: *const NewToken, context: *mut c_void) -> i32 {
    // SAFETY: the calls below have such a context, and a token is given.
    let (token, given) = unsafe { (&*token, &mut *context.cast::<Given>()) };
    assert!((token.token as usize) < given.vocabulary);
    assert!(!given.has_ended[token.text]);
    given.tokens[token.text] += 1;
    let is_enough = given.tokens[token.text] == given.most;
    given.has_ended[token.text] = is_enough || token.end != TextEnd::None;
    is_enough.into()
}

impl TextTarget {
    /// Loads the language model of these bytes; `None` if it is none.
    #[must_use]
    pub fn load(bytes: &[u8]) -> Option<Self> {
        let mut model = null_mut();
        let (start, size_bytes) = (bytes.as_ptr().cast(), bytes.len());
        checked(|error| {
            // SAFETY: the bytes are there, and so are places for results.
            unsafe { corsac_text_model_load_memory(start, size_bytes, null(), &mut model, error) }
        });
        (!model.is_null()).then_some(Self(model))
    }

    /// Makes calls that `bytes` choose. Wrong ones are errors, and right ones end all texts. Returns how many were
    /// right.
    ///
    /// # Panics
    /// If a call breaks its promises.
    pub fn calls(&self, bytes: &[u8]) -> usize {
        let (mut choices, mut right) = (Choices(bytes), 0);
        while !choices.0.is_empty() {
            right += usize::from(self.call(&mut choices));
        }
        right
    }

    fn call(&self, choices: &mut Choices<'_>) -> bool {
        // SAFETY: it is a model.
        let vocabulary = unsafe { corsac_text_model_vocabulary(self.0) };
        let mut texts: [Vec<u32>; TEXTS] = Default::default();
        for text in &mut texts {
            let len = 1 + usize::from(choices.below(8));
            text.resize_with(len, || choices.byte() as u32 % vocabulary as u32);
            if choices.rarely() {
                text[0] = choices.number() as u32;
            }
        }
        let prompts = texts.each_ref().map(|text| Prompt {
            tokens: if choices.rarely() {
                null()
            } else {
                text.as_ptr()
            },
            token_count: text.len() - usize::from(choices.rarely()) * text.len(),
        });
        let stop = [choices.byte() as u32];
        let mut options = GenerateOptions {
            max_new_tokens: 1 + usize::from(choices.below(6)),
            temperature: f64::from(choices.below(3)),
            top_k: choices.below(4).into(),
            top_p: f64::from(choices.below(5)) / 4.0,
            seed: choices.byte().into(),
            ..GenerateOptions::default()
        };
        match choices.below(16) {
            0 => options.temperature = choices.number() as f64,
            1 => options.top_p = f64::from_bits(choices.number().cast_unsigned()),
            2 => options.repetition_penalty = choices.number() as f64,
            3 => options.max_new_tokens = choices.number() as usize,
            4 => options.size = choices.below(1 + size_of::<GenerateOptions>() as u8).into(),
            5 => options.top_k = choices.number() as usize,
            6 => options.stop_count = 1,
            7..10 => (options.stop, options.stop_count) = (stop.as_ptr(), 1),
            _ => {}
        }
        let mut given = Given {
            tokens: [0; TEXTS],
            has_ended: [false; TEXTS],
            vocabulary,
            most: 1 + usize::from(choices.byte()),
        };
        let count = 1 + usize::from(choices.below(TEXTS as u8));
        let status = checked(|error| {
            let (context, options) = ((&raw mut given).cast(), &raw const options);
            // SAFETY: all arrays have as many items as said, and the context is that of the function.
            unsafe {
                corsac_text_model_generate(
                    self.0,
                    prompts.as_ptr(),
                    count,
                    options,
                    Some(take),
                    context,
                    error,
                )
            }
        });
        let ended = given.has_ended.iter().filter(|&&own| own).count();
        assert_eq!(ended, if status == Status::Ok { count } else { 0 });
        status == Status::Ok
    }
}

impl Drop for TextTarget {
    fn drop(&mut self) {
        // SAFETY: it is a model that is used no more.
        unsafe { corsac_text_model_free(self.0) };
    }
}
