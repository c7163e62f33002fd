//! Configuration files of MCP hosts: the servers in them, and edits that leave every other byte
//! as it is.
//!
//! The files are JSON, with comments and trailing commas in some hosts. Values are found with their
//! byte ranges (`json`), classified (`entry`), and changed by replacing ranges (`edit`):
//! formatting, order of keys, comments and line ends cannot change elsewhere.

mod adopt;
mod diff;
mod edit;
mod entry;
mod error;
mod file;
mod json;

pub(crate) use adopt::{Binary, Change, Outcome, adopt, undo};
pub(crate) use diff::diff;
pub(crate) use entry::Entry;
pub(crate) use error::HostFileError;
pub(crate) use file::HostFile;

#[cfg(test)]
mod tests;
