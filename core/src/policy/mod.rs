//! Access, rate limits, held bytes and abuse detection.

pub mod abuse;
pub mod access;
pub mod account;
pub mod allow;
pub(crate) mod rate;
