//! Observations from outside, which several checks judge.

use std::sync::OnceLock;

/// Observation of the work of a call before and after its cancel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Worked {
    /// Processes that the call started.
    pub(crate) started: Vec<String>,
    /// Those alive at the end.
    pub(crate) alive: Vec<String>,
    /// CPU use in percent, each a median: idle, during the call, at the end; `None` if unknown.
    pub(crate) cpu: Option<[f64; 3]>,
    /// Rounds of samples of the call: more than one while its CPU use is not clear.
    pub(crate) rounds: u32,
    /// Bytes written in a second: idle, during the call, at the end.
    pub(crate) written: [u64; 3],
    /// Samples of the call with output.
    pub(crate) writing: usize,
}

/// Observation of the end of a subject.
#[derive(Debug, Clone, Default)]
pub(crate) struct Departed {
    /// Whether the command exited in time.
    pub(crate) exited: bool,
    /// Time that it took.
    pub(crate) millis: u128,
    /// Processes alive after it.
    pub(crate) survivors: Vec<String>,
}

/// Observations of the ends of a subject, each by its cause.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    pub(crate) at_eof: OnceLock<Result<Departed, String>>,
    pub(crate) at_sigterm: OnceLock<Result<Departed, String>>,
    pub(crate) at_kill: OnceLock<Result<Departed, String>>,
}
