//! A blocking MCP client: one connection, one thread, no runtime.
//!
//! It speaks revision 2025-11-25 (and older ones with a handshake) over a Unix socket, TCP, or any
//! pair of descriptors, such as the pipes of a child process. Waiting uses `poll(2)`, so that
//! answers, deadlines and Ctrl-C all end it.
//!
//! ```no_run
//! use ceased_client::{Client, Endpoint, Options};
//! use serde_json::json;
//!
//! # fn main() -> Result<(), ceased_client::Error> {
//! let endpoint = Endpoint::Unix("/run/ceased/ceased.sock".into());
//! let mut client = Client::connect(&endpoint, Options::default())?;
//! let echoed = client.call("tools/call", json!({"name": "echo", "arguments": {"text": "hi"}}))?;
//! println!("{echoed}");
//!
//! // In steps: start, look at the progress, give up.
//! let sleep = client.start_tool("sleep", &json!({"ms": 60_000}))?;
//! let soon = Some(std::time::Duration::from_secs(1));
//! if client.wait(sleep, soon, &mut |note| println!("{note:?}")).is_err() {
//!     client.cancel(sleep, Some("took too long"))?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! While waiting, the client answers pings of the server and rejects its other requests; between
//! waits it does nothing, so a program that keeps an idle connection calls [`Client::idle`].
//!
//! An id such as CAN-06 in this documentation names a rule; the page "Rules and their tests",
//! `docs/src/protocol/rules.md` in the repository, has each rule with its source and its tests.

#![deny(unsafe_code)]

mod call_id;
mod client;
mod decode;
mod endpoint;
mod error;
#[cfg(any(test, feature = "test-util"))]
#[doc(hidden)]
pub mod fake;
#[doc(hidden)]
pub mod io;
mod message;
pub mod printable;
pub mod private_address;
pub mod proxy;
mod task;
mod tasks;
#[cfg(test)]
mod tests;
mod wait;
#[cfg(feature = "web")]
pub mod web;
mod wire;

pub use call_id::CallId;
pub use ceased_core::tasks::status::Status as TaskStatus;
pub use ceased_core::tool::TaskSupport;
pub use client::{Client, Options, PROTOCOL_VERSION, Part, Server};
pub use endpoint::Endpoint;
pub use error::{Error, INVALID_PARAMS, METHOD_NOT_FOUND, Refusal, RpcError};
pub use message::{Log, Notification, Progress};
pub use task::{Task, Tool};
pub use wait::{Interrupts, Trigger};
pub use wire::LINE_BYTES_MAX;
