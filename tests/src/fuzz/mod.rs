//! Fuzz targets as plain functions that panic on an error. They run as an ordinary test over the
//! corpus and seeded mutations of it, and under cargo-fuzz from `tests/fuzz` without a time limit.

pub mod config;
pub mod host_files;
pub mod http;
pub mod http_client;

use ceased_simulator::fuzz::{acp, engine, frames, lists};
use ceased_simulator::rng::Rng;

/// A fuzz target.
pub type Check = fn(&[u8]);

/// Fuzz targets by the name of their corpus.
pub const TARGETS: [(&str, Check); 8] = [
    ("frames", frames::check),
    ("engine", engine::check),
    ("acp", acp::check),
    ("lists", lists::check),
    ("config", config::check),
    ("host_files", host_files::check),
    ("http", http::check),
    ("http_client", http_client::check),
];

/// A sample with a small change, or combined with another sample.
#[must_use]
pub fn mutated(rng: &mut Rng, samples: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = rng.pick(samples).clone();
    for _ in 0..=rng.below(6) {
        let at = rng.below(bytes.len() + 1);
        let byte = u8::try_from(rng.below(256)).unwrap_or(0);
        match rng.below(6) {
            0 if at < bytes.len() => bytes[at] = byte,
            1 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            2 => bytes.insert(at, *rng.pick(b"{}[]\",:\\\n0-1etu ")),
            3 => bytes.truncate(at),
            4 => {
                let other = rng.pick(samples);
                let from = rng.below(other.len() + 1);
                let to = (from + rng.below(64)).min(other.len());
                let part: Vec<u8> = other[from..to].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let to = (at + rng.below(16)).min(bytes.len());
                bytes.drain(at..to);
            }
        }
    }
    bytes
}
