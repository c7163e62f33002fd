//! `frames` under libFuzzer; see `ceased_simulator::fuzz::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_simulator::fuzz::frames::check(data));
