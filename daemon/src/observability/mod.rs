//! Logging, the audit log and metrics.

pub(crate) mod audit;
pub mod logging;
pub(crate) mod metrics;
