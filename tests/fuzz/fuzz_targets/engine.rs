//! `engine` under libFuzzer; see `ceased_simulator::fuzz::engine`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_simulator::fuzz::engine::check(data));
