//! Byte streams for JSON-RPC peers over mio: stdio, Unix sockets, TCP.
//!
//! A [`Listener`] turns an [`Address`] into accepted [`Transport`]s, a [`Link`] turns a transport
//! into frames and a queue that empties itself. Everything is non-blocking and edge-triggered;
//! nothing here has a thread, a timer or a policy of its own (the one exception, a standard input
//! that epoll refuses, is explained in [`stdio`]).
//!
//! With the feature `tls` there is one more transport: TLS over another one, client side.
//!
//! Another transport is one more type that implements [`Transport`], in any crate: a [`Link`] takes
//! it as it is, and so does a daemon, for a peer that is there already (`Server::serve_peer`). It
//! names its peer as one of the kinds there are ([`Peer`]). To be listened for by an address, it
//! has to be put into [`Address`] and [`Listener`] here as well.
//!
//! ```
//! use ceased_core::rpc::frame::Frame;
//! use ceased_core::rpc::send_queue::SendQueue;
//! use ceased_core::limits::FrameLimits;
//! use ceased_transports::{Flow, Link, SCRATCH_BYTES, Sent, Socket};
//! use mio::{Events, Poll, Token};
//! use std::io::{BufRead, BufReader, Write};
//! use std::os::unix::net::UnixStream;
//!
//! let (ours, mut theirs) = UnixStream::pair()?;
//! let mut link = Link::new(Box::new(Socket::from_unix(ours)?), FrameLimits::default());
//! let mut poll = Poll::new()?;
//! link.register(poll.registry(), Token(7))?;
//!
//! theirs.write_all(b"{\"echo\":\"this\"}\n")?;
//!
//! let (mut events, mut queue) = (Events::with_capacity(8), SendQueue::new());
//! let mut scratch = vec![0; SCRATCH_BYTES]; // one for all links
//! poll.poll(&mut events, None)?;
//! for event in &events {
//!     link.on_event(event);
//! }
//! let flow = link.receive(&mut scratch, SCRATCH_BYTES, &mut |frame: Frame<'_>| {
//!     if let Frame::Line(line) = frame {
//!         queue.line(line);
//!     }
//! })?;
//! assert_eq!(flow, Flow::Drained);
//! assert_eq!(link.send(&mut queue, poll.registry()), Sent::Everything);
//!
//! let mut answer = String::new();
//! BufReader::new(theirs).read_line(&mut answer)?;
//! assert_eq!(answer, "{\"echo\":\"this\"}\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An id such as CAN-06 in this documentation names a rule; the page "Rules and their tests",
//! `docs/src/protocol/rules.md` in the repository, has each rule with its source and its tests.
#![forbid(unsafe_code)]

mod address;
pub mod child_stdio;
mod clock;
mod error;
pub mod http;
mod link;
mod listener;
mod socket;
pub mod stdio;
mod system;
mod tcp;
#[cfg(feature = "tls")]
pub mod tls;
mod transport;
mod tunnel;
mod unix;

pub use address::{Address, AddressError, SocketMode};
pub use child_stdio::{ChildStdio, SkippedLines};
pub use error::{ListenError, Lost, StdioError};
pub use link::{Flow, LAST_WORDS_BYTES_MAX, Link, Output, SCRATCH_BYTES, Sent};
pub use listener::{Accept, Listener};
pub use socket::{Socket, send as send_now};
pub use stdio::Stdio;
pub use tcp::tune as tune_tcp;
pub use transport::{Peer, Readiness, Transport};
pub use tunnel::{Tunnel, TunnelError};
pub use unix::socket as unix_socket;

/// Connections the system keeps for us until they are accepted; it may cap this lower.
pub(crate) const BACKLOG: i32 = 1024;
