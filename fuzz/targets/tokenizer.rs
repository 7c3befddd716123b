//! Any bytes as a `tokenizer.json`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corsac_testkit::fuzz::tokenizer(data));
