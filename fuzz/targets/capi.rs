//! Any bytes as calls of the C interface.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corsac_testkit::fuzz::c_interface(data));
