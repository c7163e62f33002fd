//! The test kit: what the suites of this workspace share.

pub mod binary;
pub mod daemon;
pub mod model;
pub mod modern;
pub mod rng;
pub mod schema;
pub mod tools;
pub mod trace;
pub mod workspace;
pub mod world;
