//! The daemon as a library.
pub mod arguments;
pub mod config;
