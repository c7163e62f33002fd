//! The simulator: worlds, a model and random histories for the engine alone, and the parts of the
//! test kit that need neither a daemon nor a transport.

pub mod acp;
pub mod again;
pub mod agent_walk;
pub mod durable_walk;
pub mod fleet_walk;
pub mod frames;
pub mod fuzz;
pub mod model;
pub mod modern;
pub mod mutants;
pub mod piece_walk;
pub mod rng;
pub mod schema;
pub mod sim;
pub mod slow;
pub mod store;
pub mod tools;
pub mod trace;
pub mod upstream_walk;
pub mod workspace;
pub mod world;
