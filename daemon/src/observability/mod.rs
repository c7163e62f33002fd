//! Logging, the audit log and metrics.

pub(crate) mod audit;
pub(crate) mod calls;
#[cfg(feature = "cli")]
pub mod logging;
pub(crate) mod metrics;
