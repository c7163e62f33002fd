//! Tools: handlers, commands and their arguments, and the worker threads of handlers.

pub mod arguments;
pub(crate) mod builtin;
pub(crate) mod builtin_name;
pub(crate) mod call_latency;
pub(crate) mod cancel_token;
pub(crate) mod catalog;
pub(crate) mod command_result;
pub(crate) mod command_tool;
pub(crate) mod content;
pub(crate) mod handler;
pub(crate) mod name;
pub(crate) mod offers;
pub(crate) mod run_command;
pub(crate) mod runs_for;
pub(crate) mod server_key;
pub(crate) mod upstream_launch;
pub(crate) mod worker_pool;
