//! `config` under libFuzzer; see `ceased_tests::fuzz::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_tests::fuzz::config::check(data));
