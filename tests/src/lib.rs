//! The test kit: shared parts of the suites of this workspace.

pub mod acp;
pub mod again;
pub mod agent_walk;
pub mod binary;
pub mod c_tool;
pub mod daemon;
pub mod disk;
pub mod durable_walk;
pub mod fuzz;
pub mod ledger;
pub mod model;
pub mod modern;
pub mod mutants;
pub mod output_schema;
pub mod prose;
pub mod rng;
pub mod schema;
#[cfg(feature = "daemon")]
pub mod screen;
pub mod sim;
pub mod slow;
pub mod soak;
pub mod store;
pub mod tools;
pub mod trace;
pub mod turns;
pub mod upstream_walk;
pub mod wal;
pub mod workspace;
pub mod world;

/// Rust code of the README, compiled and run.
#[cfg(all(doctest, feature = "daemon"))]
#[doc = include_str!("../../README.md")]
pub struct Readme;
