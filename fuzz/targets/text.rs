//! Any bytes as a language model.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corsac_testkit::fuzz::language_model(data));
