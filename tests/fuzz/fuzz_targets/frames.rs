//! `frames` under cargo-fuzz; see `ceased_tests::fuzz::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_tests::fuzz::frames::check(data));
