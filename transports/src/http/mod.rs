//! HTTP/1.1 as state machines without a socket: bytes in, requests out, and back. This is the server
//! side; [`client`] is the other one.
//!
//! [`HttpConnection`] reads requests and writes responses of one connection; [`sse`] writes
//! server-sent events and keeps them for a client that comes back. Nothing here knows a protocol
//! above HTTP, and nothing reads a clock: the host applies deadlines by the [`Phase`] of a
//! connection, and sets the [`HttpDate`] of responses.

mod body;
pub mod client;
mod connection;
mod date;
mod fields;
mod head;
mod limits;
mod response;
pub mod sse;

pub use body::BodyError;
pub use connection::{HeadCheck, HttpConnection, Phase, Request};
pub use date::{HttpDate, fixdate};
pub use fields::Version;
pub use head::{Head, Method};
pub use limits::HttpLimits;
pub use response::{Response, Status};
