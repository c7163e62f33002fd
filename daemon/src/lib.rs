//! The daemon as a library.

pub mod process;
mod sys;
