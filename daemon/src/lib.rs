//! A daemon that makes *cancelled* mean *ceased*, as a library.
//!
//! [`Daemon`] is a complete daemon as a value: add tools, start it, connect to it. Tools are Rust
//! functions ([`HandlerTool`]) that check a [`CancelToken`], or commands ([`CommandTool`]), whose
//! whole process tree is stopped on cancel (see [`process`]). [`client`] is a blocking client for
//! this or any other MCP server.
//!
//! An MCP server on standard input and output:
//!
//! ```no_run
//! use ceased::{Address, CommandTool, Daemon, HandlerTool, Job, ServerInfo, ToolResult};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // First: this program may be started again as the guard of a command.
//!     ceased::process::guard::init();
//!     let greet = HandlerTool::new("greet", |job: &Job| {
//!         job.token().check()?;
//!         Ok(ToolResult::text("hello"))
//!     })
//!     .build()?;
//!     let test = CommandTool::new(["cargo", "test"]).name("test").build()?;
//!     let server = ServerInfo::new("my-server", "1.0.0");
//!     let daemon = Daemon::new().server(server).tool(greet).tool(test);
//!     daemon.listen(Address::Stdio).build()?.run()?;
//!     Ok(())
//! }
//! ```
//!
//! An id such as CAN-06 in this documentation names a rule; the page "Rules and their tests",
//! `docs/src/protocol/rules.md` in the repository, has each rule with its source and its tests.

#![deny(unsafe_code)]
#![cfg_attr(
    not(all(feature = "cli", feature = "tls", feature = "top")),
    allow(dead_code, unused_imports, reason = "a part that is left out alone uses them")
)]

mod access;
mod accounts;
mod announce;
#[cfg(feature = "cli")]
mod backend;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
mod conn_map;
#[cfg(feature = "tls")]
mod credentials;
mod daemon;
#[cfg(feature = "fleet")]
mod fleet;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod fuzzing;
mod header_lines;
#[cfg(feature = "cli")]
mod host_files;
mod http;
mod ids;
#[cfg(feature = "tls")]
mod issuer_metadata;
mod json_text;
mod mcp_headers;
mod needed_scopes;
#[cfg(feature = "tls")]
mod oauth;
mod owned_file;
mod peer_identity;
mod process_ids;
pub mod record;
mod remote;
mod request_params;
mod resource_limits;
mod safe_url;
mod scarcity;
mod server_token;
mod signals;
mod small_file;
mod start_error;
mod stderr;
#[cfg(feature = "cli")]
mod stderr_copy;
pub mod store;

pub use ceased_client as client;
pub use ceased_process as process;

pub use self::event_loop::{RunError, Server, ServerHandle};
pub use self::token_file::TokenFileError;
pub use self::tools::builtin::Builtin;
pub use self::tools::cancel_token::{CancelToken, Cancelled};
pub use self::tools::catalog::{DEFAULT_ABANDON_AFTER, HandlerTool};
pub use self::tools::command_tool::CommandTool;
pub use self::tools::content::{Annotations, Audience, Content, EmbeddedResource, ResourceLink};
pub use self::tools::handler::{AskError, Handler, Job, Question, ToolError, ToolResult};
pub use self::tools::offers::{
    Completion, CompletionArgument, CompletionContext, CompletionRequest, HandlerOffer,
    PromptMessage, PromptResult, ResourceRequest, ResourceResult,
};
pub use self::tools::upstream_launch::UpstreamLaunch;
#[cfg(feature = "cli")]
pub use backend::LocalBackend;
pub use daemon::{Daemon, DaemonHandle};
pub use start_error::StartError;

pub use ceased_core::identity::Identity;
pub use ceased_core::ids::JobId;
pub use ceased_core::ids::TaskId;
pub use ceased_core::limits::Limits;
pub use ceased_core::limits::TaskPolicy;
/// The engine's types that appear in this crate's interface.
pub use ceased_core::log_level::LogLevel;
pub use ceased_core::provider::{BadOffer, HostOffer, OfferKind};
pub use ceased_core::rpc::error::ErrorObject;
pub use ceased_core::settings::ServerInfo;
pub use ceased_core::tool::OnDisconnect;
pub use ceased_core::tool::TaskSupport;
pub use ceased_core::tool::Tool;
pub use ceased_core::tool::ToolHints;
pub use ceased_core::tool::{BadTool, BadToolKind};
pub use ceased_core::upstream::server::UpstreamServer;
/// Where a daemon listens.
pub use ceased_transports::{Address, SocketMode};

mod event_loop;
mod service_manager;
mod token_file;
#[cfg(feature = "cli")]
mod trust;
#[cfg(feature = "cli")]
mod trust_store;

mod tool_diff;
pub mod tools;

pub mod observability;
#[cfg(feature = "cli")]
pub mod wrap;
