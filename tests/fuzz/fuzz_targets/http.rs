//! `http` under libFuzzer; see `ceased_tests::fuzz::http`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_tests::fuzz::http::check(data));
