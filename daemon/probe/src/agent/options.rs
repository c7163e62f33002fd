//! Options of a probe of an agent.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;

/// Options of a probe of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentOptions {
    /// The agent and its arguments.
    pub command: Vec<OsString>,
    /// A prompt whose turn takes longer than the time limit.
    pub prompt: String,
    /// A prompt whose turn starts a process that takes long; `prompt` if `None`.
    pub work_prompt: Option<String>,
    /// A prompt whose turn asks the client for permission.
    pub question_prompt: Option<String>,
    /// A prompt whose turn leaves background work (version 2).
    pub background_prompt: Option<String>,
    /// Ids of the checks to do.
    pub checks: BTreeSet<&'static str>,
    /// Time limit of everything that has to happen.
    pub timeout: Duration,
    /// Time for which a thing that must not happen is watched for.
    pub window: Duration,
    /// Number of checks at once.
    pub at_once: usize,
    /// Bytes of memory of the processes of one check.
    pub memory_max: u64,
    /// Processes and threads of one check.
    pub pids_max: u32,
    /// Bytes that may be received on one connection.
    pub output_max: u64,
}
