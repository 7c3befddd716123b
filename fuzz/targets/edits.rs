//! A graph and changes of it, made of any bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corsac_testkit::fuzz::edit_sequence(data));
