//! Jobs under way, by number.

use crate::tools::cancel_token::CancelToken;
use ceased_core::ids::{JobId, TaskId};
use ceased_core::json::raw::Json;
use ceased_core::reason::StopReason;
use ceased_core::tool::Tool;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Jobs under way.
pub(super) type Runs = HashMap<JobId, RunningJob, BuildHasherDefault<Spread>>;

/// Hashes the numbers of jobs. They are counted by the engine, so nobody can choose them.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        // The golden ratio: neighbours end up far apart.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A job under way.
pub(super) enum RunningJob {
    /// On a worker thread.
    Handler(CancelToken),
    /// A command.
    Command(RunningCommand),
    /// A command that outlasts SIGKILL: its requestor was answered.
    Outlasting,
    /// Waits for its requestor's word.
    Unconfirmed(Box<AwaitingConfirmation>),
    /// Waits for the roots of its client, in whose directory it runs.
    Locating(Box<AwaitingConfirmation>),
}

/// A command under way.
pub(super) struct RunningCommand {
    pub(super) tool: Arc<Tool>,
    /// Why it was told to stop, if it was.
    pub(super) stopped: Option<StopReason>,
}

impl RunningJob {
    /// Whether it has, or may have, processes.
    pub(super) const fn is_command(&self) -> bool {
        match self {
            Self::Command(_) | Self::Outlasting => true,
            Self::Handler(_) | Self::Unconfirmed(_) | Self::Locating(_) => false,
        }
    }
}

/// A job that runs when its requestor, or the client of that, has answered.
pub(super) struct AwaitingConfirmation {
    pub(super) tool: Arc<Tool>,
    pub(super) arguments: Json,
    pub(super) task: Option<TaskId>,
}
