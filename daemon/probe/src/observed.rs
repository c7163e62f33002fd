//! Observations from outside, which several checks judge.

use std::sync::OnceLock;

use super::arena::Arena;
use super::finding::SessionError;

/// An observation that is made once, for all checks that judge it; in the second look once more if
/// it failed in the first.
#[derive(Debug)]
pub(crate) struct Observation<T> {
    looks: [OnceLock<Result<T, String>>; 2],
}

impl<T> Default for Observation<T> {
    fn default() -> Self {
        Self { looks: [OnceLock::new(), OnceLock::new()] }
    }
}

impl<T> Observation<T> {
    /// The observation, made by `observe` if there is none yet.
    pub(crate) fn get(
        &self,
        arena: &Arena,
        observe: impl FnOnce() -> Result<T, SessionError>,
    ) -> Result<&T, SessionError> {
        let [first, second] = &self.looks;
        let has_failed = matches!(first.get(), Some(Err(_)));
        let cell = if has_failed && arena.is_second_look() { second } else { first };
        let observed = cell.get_or_init(|| observe().map_err(|SessionError(why)| why));
        observed.as_ref().map_err(|why| SessionError(why.clone()))
    }
}

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
    pub(crate) at_eof: Observation<Departed>,
    pub(crate) at_sigterm: Observation<Departed>,
    pub(crate) at_kill: Observation<Departed>,
}
