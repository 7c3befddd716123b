//! The fuzz targets of language models and of their tokenizers.

use corsac_engine::{Limits, ModelErrorKind, ModelFile};
use corsac_generate::{GenerateError, Request, Sampling, TextModel, Tokenizer};

use crate::text_model::text_model;

/// Loads `bytes` as a language model, within small limits, and continues texts: all tokens are of the model, or an
/// error is returned.
///
/// # Panics
/// If the engine fails internally, or there are other tokens.
pub fn language_model(bytes: &[u8]) {
    if let Err(GenerateError::Run(error)) = continue_texts(bytes) {
        assert_ne!(error.kind(), ModelErrorKind::Internal, "{error}");
    }
}

fn continue_texts(bytes: &[u8]) -> Result<(), GenerateError> {
    let limits = Limits {
        value_bytes: 1 << 22,
        ..Limits::default()
    };
    let file = ModelFile::from_bytes(bytes.to_vec(), &limits)?;
    let model = TextModel::from_file(file, Some(1))?;
    let mut batch = model.batch(model.most_rows().min(2))?;
    for prompt in [&[0, 1, 2][..], &[1], &[2; 9]] {
        let request = Request {
            max_new_tokens: 9,
            sampling: Sampling {
                temperature: 1.0,
                ..Sampling::default()
            },
            ..Request::new(prompt)
        };
        batch.add(request)?;
    }
    while !batch.is_empty() {
        let tokens = batch.step()?;
        assert!(!tokens.is_empty());
        assert!(
            tokens
                .iter()
                .all(|new| (new.token as usize) < model.vocabulary())
        );
    }
    Ok(())
}

/// Reads `bytes` as a `tokenizer.json`, and makes tokens of texts and texts of tokens, or returns an error.
///
/// # Panics
/// If a text goes on after one that stops it.
pub fn tokenizer(bytes: &[u8]) {
    let Ok(own) = Tokenizer::from_bytes(bytes) else {
        return;
    };
    for text in ["", "ab abc a", "Three times 3:\n\u{e9}\u{1f98a} \u{0}<s>"] {
        let tokens = own.encode(text).unwrap_or_default();
        let mut stream = own.stream(vec!["c ".to_owned()]);
        let mut found = String::new();
        for token in tokens.into_iter().chain(0..12).chain([u32::MAX]) {
            match stream.push(token) {
                Ok(text) => found += &text,
                Err(_) => break,
            }
        }
        found += &stream.finish();
        assert!(!stream.is_stopped() || !found.contains("c "), "{found:?}");
    }
}

/// A small language model, for fuzzers to change.
#[must_use]
pub fn small_text_model() -> Vec<u8> {
    text_model(r#"{"stop": [3], "length": 30}"#, |_| ())
}

/// A small `tokenizer.json`, for fuzzers to change.
pub const SMALL_TOKENIZER: &str = r#"{
    "version": "1.0",
    "truncation": null,
    "padding": null,
    "added_tokens": [{"id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "[0-9]+"}, "content": "a"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?<=c) |b"}, "behavior": "MergedWithPrevious", "invert": false}, {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": "u", "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": {"a": 0, "b": 1, "c": 2, "\u0120": 3, "ab": 4, "u": 5, "abc": 7}, "merges": [["a", "b"], ["ab", "c"]]}
}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_tokenizers_for_fuzzers_are_right() {
        continue_texts(&small_text_model()).expect("texts");
        tokenizer(SMALL_TOKENIZER.as_bytes());
        let own = Tokenizer::from_bytes(SMALL_TOKENIZER.as_bytes()).expect("a tokenizer");
        assert_eq!(
            own.encode("abc 7").expect("tokens"),
            [6, 3, 4, 3, 2, 3, 3, 0]
        );
    }
}
