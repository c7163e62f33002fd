//! Upstreams: existing MCP servers whose methods clients reach through this engine.

pub(crate) mod awaited;
mod catalog;
pub(crate) mod check;
pub(crate) mod handshake;
pub(crate) mod inputs;
pub mod interface;
pub(crate) mod lifecycle;
pub(crate) mod list;
pub(crate) mod lists;
pub(crate) mod log;
pub mod manifest;
pub(crate) mod narrow;
mod orders;
pub(crate) mod question;
pub(crate) mod questions;
pub(crate) mod relay;
pub(crate) mod rewrite;
pub mod route;
pub(crate) mod scope;
pub mod server;
pub(crate) mod server_counts;
mod starting;
mod status;
pub(crate) mod table;
pub(crate) mod tasked;
pub(crate) mod uri;
pub(crate) mod watch;
