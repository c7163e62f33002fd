//! Configuration files of MCP hosts: the servers in them, and edits that leave every other byte
//! as it is.
//!
//! The files are JSON, with comments and trailing commas in some hosts, TOML or YAML. Values are found
//! with their byte ranges (`document`), classified (`entry`, `command`), and changed by replacing ranges
//! (`splice`, `edit`): formatting, order of keys, comments and line ends cannot change elsewhere.

mod adopt;
mod base;
mod binary;
mod command;
mod diff;
mod document;
mod edit;
mod entry;
mod error;
mod file;
mod hosts;
mod json;
mod reader;
mod remote;
mod secrets;
mod server_table;
mod servers;
mod splice;
mod toml_text;
mod variables;
mod yaml;

pub(crate) use adopt::{Change, Outcome, adopt, share, undo};
pub(crate) use base::Base;
pub(crate) use binary::Binary;
pub(crate) use diff::diff;
pub(crate) use document::Format;
pub(crate) use entry::{Entry, entries};
pub(crate) use error::HostFileError;
pub(crate) use file::HostFile;
pub(crate) use hosts::{Host, all as all_hosts, by_name as host_by_name};
pub(crate) use server_table::{ServerTable, tables};
pub(crate) use servers::{HostServers, host_servers};

#[cfg(test)]
mod tests;
