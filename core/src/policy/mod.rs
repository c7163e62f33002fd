//! Access, rate limits and abuse detection.

pub mod abuse;
pub mod access;
pub(crate) mod rate;
