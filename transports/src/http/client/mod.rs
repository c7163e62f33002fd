//! HTTP/1.1, client side, as state machines without a socket: requests in, bytes out; bytes in,
//! responses and events out.
//!
//! ```text
//!          send                head              end of the body
//!   Idle ────────► Waiting ──────────► Reading ─────────────────► Idle (or over)
//!                     │                   │
//!                     └── error, end ─────┴──► over: the connection is to be closed
//! ```
//!
//! [`HttpClient`] is one connection with one request at a time: a response stream that is closed is
//! closed with its connection, and that is the cancel of a request without a session. A host has
//! more connections for more requests, and may give one that is [idle](HttpClient::is_idle) the next
//! request.
//!
//! An event loop drives it as it drives the server half: the client is the
//! [`Output`](crate::Output) of a [`Link`](crate::Link) whose transport is a [`Socket`](crate::Socket)
//! that [connects](crate::Socket::connect_tcp), below TLS or not, and the bytes of
//! [`Link::receive_bytes`](crate::Link::receive_bytes) go into [`HttpClient::receive`]. Nothing here
//! reads a clock: the host has the time limits of a connection, by [`HttpClient::is_idle`] and by the
//! bytes it has received.
//!
//! Every bound is in [`ClientLimits`], every error names the thing, its value and the limit
//! ([`ResponseError`]).

mod connection;
mod error;
mod events;
mod head;
mod limits;
mod request;
mod response;
mod url;

pub use connection::HttpClient;
pub use error::ResponseError;
pub use events::{Event, EventReader};
pub use head::ResponseHead;
pub use limits::ClientLimits;
pub use request::{ClientRequest, RequestError, check_header};
pub use response::{Part, ResponseReader};
pub use url::{Place, Url, UrlError};
