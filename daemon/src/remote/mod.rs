//! Servers by URL: messages of the engine as exchanges of HTTP, and back. No file here has a socket
//! or a clock; the event loop has the connections.
//!
//! ```text
//!   frame ──► Remote ──► exchange ──► slot (one HTTP connection) ──► bytes
//!                │                                                     │
//!   frames ◄─────┴──────────── responses, events of streams ◄──────────┘
//! ```
//!
//! A request has its connection for itself while it runs, in every revision: its response stream can
//! be closed alone, which is the cancel of a request of 2026-07-28 (REM-02). A connection whose
//! response has ended carries the next request.

mod bearer;
mod endpoint;
mod exchange;
mod machine;
mod message;
mod resolve;
mod responses;
mod stream_state;
mod streams;
#[cfg(test)]
mod tests;
mod tokens;
#[cfg(feature = "tls")]
#[cfg(test)]
mod walk;

pub(crate) use bearer::Bearer;
pub(crate) use endpoint::{Bearers, Endpoint, Protocol};
pub(crate) use exchange::SlotId;
pub(crate) use machine::{Effect, Remote};
pub(crate) use message::Outgoing;
pub(crate) use resolve::{permitted, resolve};
