//! Any bytes as the text of a graph.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| corsac_testkit::fuzz::parser(data));
