//! The Agent Client Protocol: requests, services and both forms of cancellation.

pub(crate) mod cancel;
pub(crate) mod capabilities;
pub mod protocol;
pub(crate) mod requests;
