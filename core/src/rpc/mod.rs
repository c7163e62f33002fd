//! JSON-RPC: frames, messages, parameters and errors.

pub mod error;
pub mod frame;
pub mod message;
pub(crate) mod params;
pub mod send_queue;
