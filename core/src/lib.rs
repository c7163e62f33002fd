//! Cancellation and task rules of MCP and ACP as a pure state machine: events in, actions out.
//!
//! The engine holds every rule about requests, cancellation and tasks, and nothing else: no clock,
//! no randomness, no threads, no sockets (DET-01). The same events give the same actions, byte for
//! byte. A host reads lines from peers, hands them in as [`Event`]s, carries out the
//! [`Action`]s, and sends the content of each connection's
//! [`SendQueue`](rpc::send_queue::SendQueue):
//!
//! ```
//! use std::sync::Arc;
//!
//! use ceased_core::{
//!     Action, ConnId, Engine, Event, IdSource, Identity, Instant, Now, Rights, Role, Settings, Wall,
//! };
//!
//! struct Counting(u128);
//! impl IdSource for Counting {
//!     fn uuid(&mut self) -> uuid::Uuid {
//!         self.0 += 1;
//!         uuid::Uuid::from_u128(self.0)
//!     }
//! }
//!
//! let mut engine = Engine::new(Arc::new(Settings::default()), Box::new(Counting(0)));
//! let now = Now { at: Instant::ZERO, wall: Wall::from_millis(0) };
//! let conn = ConnId::new(1);
//! let mut actions = Vec::new();
//!
//! let identity = Identity::User(1000);
//! let opened = Event::Opened { conn, identity, rights: Rights::Full, role: Role::Server };
//! engine.handle(now, opened, &mut actions);
//! let frame = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
//! engine.handle(now, Event::Frame { conn, frame }, &mut actions);
//! // Everything that has arrived was handed in: jobs may start.
//! engine.handle(now, Event::Turn, &mut actions);
//!
//! assert!(matches!(actions[..], [Action::Flush { .. }]));
//! let queue = engine.send_queue(conn).unwrap();
//! assert_eq!(queue.pending(), b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
//! # let sent = queue.len();
//! queue.advance(sent);
//! assert_eq!(engine.deadline(), None, "nothing to wait for");
//! ```
//!
//! `handle` cannot fail and cannot block, and when it returns everything it wanted is in the
//! actions or in a send queue. A whole host of two pages is `examples/hello.rs`. The types
//! that every host needs are at the root of the crate.
//!
//! An id such as CAN-06 in this documentation names a rule; the page "Rules and their tests",
//! `docs/src/protocol/rules.md` in the repository, has each rule with its source and its tests.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod acp;
pub mod action;
pub mod births;
mod client;
mod closing;
pub mod collections;
mod connection;
pub mod counters;
pub mod engine;
pub mod event;
mod frames;
pub mod identity;
pub mod ids;
mod invariants;
mod jobs;
pub mod json;
mod lend;
pub mod limits;
pub mod log_level;
mod machines;
mod outbox;
pub mod outgoing;
pub mod policy;
pub mod protocol;
pub mod provider;
pub mod reason;
pub mod rpc;
mod server;
pub mod settings;
mod shutdown;
pub mod stats;
mod supervisor;
pub mod tasks;
pub mod time;
pub mod tool;
#[cfg(feature = "trace")]
pub mod trace;
pub mod upstream;

pub use crate::action::Action;
pub use crate::engine::Engine;
pub use crate::event::Event;
pub use crate::identity::{Identity, Rights};
pub use crate::ids::{ConnId, IdSource, JobId, RequestId, TaskId};
pub use crate::limits::{Limits, TaskPolicy};
pub use crate::protocol::role::Role;
pub use crate::reason::{CloseReason, StopReason};
pub use crate::rpc::error::ErrorObject;
pub use crate::settings::Settings;
pub use crate::time::{Instant, Now, Wall};
pub use crate::tool::Tool;
