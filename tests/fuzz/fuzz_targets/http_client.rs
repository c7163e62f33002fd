//! `http_client` under libFuzzer; see `ceased_tests::fuzz::http_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_tests::fuzz::http_client::check(data));
