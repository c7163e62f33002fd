//! The test kit: shared parts of the suites of this workspace that need the daemon, real processes
//! or the files of the repository.

pub mod binary;
pub mod c_tool;
pub mod daemon;
pub mod disk;
pub mod fuzz;
pub mod ledger;
pub mod output_schema;
pub mod prose;
pub mod screen;
pub mod soak;
pub mod turns;
pub mod wal;

/// Parts of the simulator that these suites share with it.
pub use ceased_simulator::{modern, rng, schema, workspace};

/// Rust code of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
