//! The daemon as a library.
pub mod cli;
pub mod client;
