//! `host_files` under libFuzzer; see `ceased_tests::fuzz::host_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_tests::fuzz::host_files::check(data));
