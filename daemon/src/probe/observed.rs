//! Observations from outside, which several checks judge.

/// Observation of the work of a call before and after its cancel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Worked {
    /// Processes that the call started.
    pub(crate) started: Vec<String>,
    /// Those alive at the end.
    pub(crate) alive: Vec<String>,
    /// CPU use in percent: idle, during the call, at the end; `None` if unknown.
    pub(crate) cpu: Option<[f64; 3]>,
    /// Bytes written in a second: idle, during the call, at the end.
    pub(crate) written: [u64; 3],
    /// Samples of the call with output.
    pub(crate) writing: usize,
}

/// Observation of the end of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Departed {
    /// Whether the command exited in time.
    pub(crate) exited: bool,
    /// Time that it took.
    pub(crate) millis: u128,
    /// Processes alive after it.
    pub(crate) survivors: Vec<String>,
}
