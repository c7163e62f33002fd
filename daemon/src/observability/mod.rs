//! Logging, the audit log and metrics.

pub(crate) mod audit;
pub(crate) mod calls;
pub(crate) mod ended;
pub(crate) mod histogram;
pub(crate) mod hop;
pub(crate) mod job_status;
#[cfg(feature = "cli")]
pub mod logging;
pub(crate) mod metrics;
#[cfg(feature = "tls")]
pub(crate) mod otlp;
pub(crate) mod user_names;
