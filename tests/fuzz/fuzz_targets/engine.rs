//! `engine` under cargo-fuzz; see `ceased_tests::fuzz::engine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_tests::fuzz::engine::check(data));
