//! A daemon that makes *cancelled* mean *ceased*, as a library.
//!
//! [`Daemon`] is the whole of it as a value: give it tools, start it, connect to it. The tools are
//! Rust functions ([`HandlerTool`]) that look at a [`CancelToken`], or commands of a
//! [`config::Config`] whose processes are stopped for real (see [`process`]). [`client`] is a
//! blocking client for this or any other MCP server.
//!
//! A program whose tools are commands calls [`process::guard::init`] first thing in its `main`, so
//! that it can serve as the guard of its own processes.

#![deny(unsafe_code)]

mod access;
mod accounts;
pub mod arguments;
mod audit;
mod backend;
mod builtin;
pub mod cli;
pub mod client;
pub mod config;
mod daemon;
mod handler;
mod ids;
pub mod logging;
mod metrics;
mod owned_file;
mod pace;
mod pool;
mod printable;
pub mod process;
pub mod record;
mod reports;
mod resource_limits;
mod scarcity;
mod server;
mod service;
mod signals;
mod stderr;
pub mod store;
mod sys;
mod token;
mod tokens;
mod tools;

pub use backend::LocalBackend;
pub use builtin::Builtin;
pub use daemon::{Daemon, DaemonHandle, StartError};
pub use handler::{AskError, Content, Handler, Job, ToolError, ToolResult};
pub use server::{RunError, Server, ServerHandle};
pub use token::{CancelToken, Cancelled};
pub use tokens::TokenFileError;
pub use tools::{DEFAULT_ABANDON_AFTER, HandlerTool};

/// The engine's types that appear in this crate's interface.
pub use ceased_core::{
    event::LogLevel, id::JobId, id::TaskId, limits::Limits, limits::TaskPolicy,
    message::ErrorObject, tool::BadTool, tool::OnDisconnect, tool::TaskSupport, tool::Tool,
};
/// Where a daemon listens.
pub use ceased_transports::{Address, SocketMode};
