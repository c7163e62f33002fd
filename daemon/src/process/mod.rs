//! Commands as jobs: started, watched and, above all, stopped for real.
//!
//! A [`Supervisor`] runs every command of a program on one thread. It carries out [`Order`]s and
//! answers with [`Report`]s; when to be patient and when not is decided by whoever gives the
//! orders. Its one promise (STOP-01): when it reports a job as ended, no process that the job
//! started is alive, whatever session, group or parent it gave itself.
//!
//! How it keeps that is the [`Containment`]: control groups where the kernel lets us, a [`guard`]
//! process per job where not. It needs Linux 5.14 or newer, and `/proc`.
//!
//! ```text
//!                Order::Launch          Order::Terminate        Order::Kill
//!   engine ───────────┬──────────────────────┬──────────────────────┬────────▶ supervisor
//!                     ▼                      ▼                      ▼
//!                  running ─────────▶ SIGTERM, SIGCONT ───▶ SIGKILL until none is left
//!                     │                      │                      │
//!                     │ leader exits, others live on                │
//!                     ├────▶ Lingering       │                      │
//!                     ▼                      ▼                      ▼
//!                  Ended                   Ended                  Ended
//! ```

mod cgroup;
mod containment;
mod direct;
mod environment;
pub mod guard;
mod guarded;
mod job;
mod keeper;
mod launch;
mod limits;
mod lookups;
mod output;
mod pipes;
mod progress;
mod spare;
mod supervisor;
mod survey;
mod tree;
mod turns;
mod wire;

use std::fmt;
use std::time::{Duration, Instant};

use ceased_core::id::{JobId, SurveyId};

pub use cgroup::Cgroup;
pub(crate) use cgroup::end_left_behind;
pub use containment::Containment;
pub use environment::Inherit;
pub(crate) use environment::is_private;
pub(crate) use launch::unrunnable;
pub use launch::{Launch, WorkingDir};
pub use output::Captured;
pub use supervisor::{Orphans, Supervisor, SupervisorGone};
pub use survey::Process;

/// What a supervisor is told to do.
#[derive(Debug)]
pub enum Order {
    /// Start a command. Answered by exactly one [`Report::Ended`].
    Launch(Box<Launch>),
    /// SIGTERM, and SIGCONT for those that are stopped, to every process of the job.
    Terminate(JobId),
    /// SIGKILL to every process of the job, until none is left.
    Kill(JobId),
    /// Nobody waits for this job any more: what it printed is forgotten and its pipes are closed.
    /// It is still watched, and reported as ended once it is.
    Abandon(JobId),
    /// Say what processes these jobs have. Answered by one [`Report::Surveyed`].
    Survey(SurveyId, Vec<JobId>),
}

/// What a supervisor tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// The tool reports how far it is. At most about a hundred a second for each job; of a flood,
    /// the last one is kept.
    Progress {
        /// The job.
        job: JobId,
        /// How much is done; finite.
        progress: f64,
        /// How much there is, if the tool knows; finite.
        total: Option<f64>,
        /// What it is doing.
        message: Option<String>,
    },
    /// The command itself has exited, but processes it started live on; nobody ordered it to end.
    /// Sent at most once for a job. They may be about to exit, too: give them a moment, then
    /// order their end.
    Lingering {
        /// The job.
        job: JobId,
    },
    /// No process of the job is left (STOP-01). Sent exactly once for a launch, as the last report
    /// about it.
    Ended {
        /// The job.
        job: JobId,
        /// How it ended.
        ending: Ending,
    },
    /// What processes jobs have, of those that were asked about and run.
    Surveyed {
        /// For which [`Order::Survey`].
        survey: SurveyId,
        /// The live processes of each job, in no order.
        processes: Vec<(JobId, Vec<Process>)>,
    },
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The command ran.
    Exited(Box<Exit>),
    /// It could not be started; the text says what was to be run and why it cannot be.
    NotStarted(String),
}

/// What a command left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The exit code, if it returned one. Neither this nor `signal` is there when a third party
    /// took the status or the guard was killed.
    pub code: Option<i32>,
    /// The signal that ended the command, if one did.
    pub signal: Option<i32>,
    /// What is kept of its standard output.
    pub stdout: Captured,
    /// What is kept of its standard error.
    pub stderr: Captured,
    /// From its launch until the command itself exited.
    pub duration: Duration,
    /// The highest step that was ordered against it.
    pub stopped: Stopped,
    /// How many of its processes were alive to be signalled by those steps, as far as known.
    pub signalled: u32,
    /// How many of its processes were found alive after its end: none, as far as its containment
    /// can see, or [`Containment`] is broken.
    pub survivors: u32,
    /// When no process of it was left.
    pub gone: Instant,
}

/// The highest step of the ladder that a job saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stopped {
    /// None: it ended by itself.
    #[default]
    No,
    /// SIGTERM.
    Terminated,
    /// SIGKILL.
    Killed,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "by itself",
            Self::Terminated => "SIGTERM",
            Self::Killed => "SIGKILL",
        })
    }
}
