//! Options of a probe of a client.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

/// Options of a probe of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientOptions {
    /// The client and its arguments, with `{server}` and `{config}` as placeholders.
    pub command: Vec<OsString>,
    /// Ids of the checks to do.
    pub checks: BTreeSet<&'static str>,
    /// Time limit of everything that has to happen.
    pub timeout: Duration,
    /// Number of checks at once.
    pub at_once: usize,
    /// Bytes of memory of the processes of one run.
    pub memory_max: u64,
    /// Processes and threads of one run.
    pub pids_max: u32,
    /// Bytes that may be received on one connection.
    pub output_max: u64,
}
