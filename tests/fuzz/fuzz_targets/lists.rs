//! `lists` under libFuzzer; see `ceased_simulator::fuzz::lists`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_simulator::fuzz::lists::check(data));
