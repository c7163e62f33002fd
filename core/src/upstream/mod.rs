//! Upstreams: existing MCP servers whose methods clients reach through this engine.

pub mod interface;
pub mod manifest;
pub mod server;
