//! JSON-RPC: frame decoder, messages, parameters, errors and the send queue.

pub mod error;
pub mod frame;
pub mod message;
pub(crate) mod params;
pub(crate) mod result;
pub mod send_queue;
pub(crate) mod skeleton;
