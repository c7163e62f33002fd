//! The test kit: what the suites of this workspace share.

pub mod acp;
pub mod binary;
pub mod daemon;
pub mod model;
pub mod rng;
pub mod schema;
pub mod tools;
pub mod trace;
pub mod workspace;
pub mod world;
