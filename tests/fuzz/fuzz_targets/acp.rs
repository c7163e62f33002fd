//! `acp` under libFuzzer; see `ceased_simulator::fuzz::acp`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ceased_simulator::fuzz::acp::check(data));
