//! Any bytes as a code object of CPython.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corsac_testkit::fuzz::code_object(data));
