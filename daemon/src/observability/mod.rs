//! Logging, the audit log and metrics.

pub(crate) mod audit;
#[cfg(feature = "cli")]
pub mod logging;
pub(crate) mod metrics;
