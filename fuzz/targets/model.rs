//! Any bytes as a model file.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corsac_testkit::fuzz::model_file(data));
