//! The Agent Client Protocol: its requests, its services and its two forms of cancellation.

pub(crate) mod cancel;
pub mod protocol;
pub(crate) mod requests;
