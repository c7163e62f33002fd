//! Fuzz targets of the core as plain functions that panic on an error.

pub mod acp;
pub mod engine;
pub mod frames;
pub mod lists;
