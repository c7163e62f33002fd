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
mod descent;
mod direct;
mod environment;
pub(crate) mod event_loop;
mod families;
pub mod guard;
mod guarded;
mod guarding;
mod job;
mod keeper;
mod last_line;
mod launch;
mod limits;
mod lineage;
mod mounts;
mod namespace;
mod orphans;
mod output;
mod pipes;
pub mod plain_text;
pub(crate) mod processes;
mod progress;
mod roll;
mod roster;
pub(crate) mod shared;
pub(crate) mod spares;
mod supervisor;
mod sweep;
mod tree;
pub(crate) mod uid_lookup;
mod wire;

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::sys;

use ceased_core::ids::{JobId, StatusId};

use rustix::process::Pid;

pub use cgroup::Cgroup;
pub(crate) use cgroup::end_left_behind;
pub use containment::Containment;
pub use environment::Inherit;
pub(crate) use environment::is_private;
pub use last_line::ReadProgress;
pub(crate) use launch::unrunnable;
pub use launch::{Launch, WorkingDir};
pub use output::{Captured, OutputOptions, SharedOutput, Stream};
pub use processes::Process;
pub(crate) use roster::Roster;
pub use supervisor::{Orphans, Supervisor, SupervisorGone};

/// Undoes what the parent of this process left behind for its signals: unblocks all of them and
/// restores the default handling of those that are ignored, `SIGCHLD` first of all, without which
/// the kernel throws the exit codes of commands away.
///
/// `SIGPIPE`, which Rust ignores by itself, and the signals of a terminal (`SIGHUP`, `SIGINT`,
/// `SIGQUIT`, `SIGTSTP`, `SIGTTIN`, `SIGTTOU`), which `nohup` and shells ignore on purpose, stay as
/// they are. Call it as the first thing in `main`, before there is another thread.
pub fn reset_signals() {
    sys::reset_inherited_signals();
}

/// What a supervisor is told to do.
#[derive(Debug)]
pub enum Order {
    /// Start a command. Answered by exactly one [`Report::Ended`].
    Launch(Box<Launch>),
    /// SIGTERM, and SIGCONT for those that are stopped, to every process of the job.
    Terminate(JobId),
    /// SIGKILL to every process of the job, until none is left.
    Kill(JobId),
    /// The job has no receiver any more: its output is dropped and its pipes are closed.
    /// It is still watched, and reported as ended once it is.
    Abandon(JobId),
    /// Say what processes these jobs have. Answered by one [`Report::Surveyed`].
    Survey(StatusId, Vec<JobId>),
    /// Say which job a process is part of. Answered by one [`Report::Located`].
    Locate {
        /// Number for the answer.
        ticket: u64,
        /// The process.
        pid: Pid,
        /// A pidfd of it, where there is one: its number may be another process's by now.
        process: Option<OwnedFd>,
    },
}

/// Where a process belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Located {
    /// To a job that runs.
    Job(JobId),
    /// To no job.
    Outside,
    /// The process has ended, or is left of a job that is not known any more.
    Unknown,
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
    /// The command printed something. At most once a second for each job.
    Line {
        /// The job.
        job: JobId,
        /// The last line, without escape sequences, shortened.
        line: String,
    },
    /// The command itself has exited, but processes it started live on; nobody ordered it to end.
    /// Sent at most once for a job. They may be about to exit, too: give them a moment, then
    /// order their end.
    Lingering {
        /// The job.
        job: JobId,
    },
    /// The job was ordered to be killed a second time, and is not over: what keeps it may not be
    /// killed by us, or not now. Sent at most once for a job, with what there is of it so far. It is
    /// watched on, and reported as ended once it is.
    Outlasting {
        /// The job.
        job: JobId,
        /// How its command ended, if it has, and how many of its processes are alive.
        exit: Box<Exit>,
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
        survey: StatusId,
        /// The live processes of each job, in no order.
        processes: Vec<(JobId, Vec<Process>)>,
    },
    /// Which job a process is part of.
    Located {
        /// For which [`Order::Locate`].
        ticket: u64,
        /// Where it belongs.
        located: Located,
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

/// What separates a command from the other processes of its user, besides its containment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Nothing: it may signal and trace them, its own guard too.
    #[default]
    None,
    /// A pid namespace: it sees and reaches no process but those of its own job, and the kernel ends
    /// all of them with the first. Needs a guard program, and the right to make namespaces.
    Pid,
}

/// What a command left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The exit code, if it returned one. Neither this nor `signal` is there when a third party
    /// took the status or the guard was killed.
    pub code: Option<i32>,
    /// The signal that ended the command, if one did.
    pub signal: Option<i32>,
    /// Kept part of its standard output.
    pub stdout: Captured,
    /// Kept part of its standard error.
    pub stderr: Captured,
    /// From its launch until the command itself exited.
    pub duration: Duration,
    /// The highest step that was ordered against it.
    pub stopped: Stopped,
    /// How many of its processes were alive to be signalled by those steps, as far as known.
    pub signalled: u32,
    /// How many of its processes are alive. 0 once it has ended; `None` where nobody can know:
    /// [`Containment::Groups`] does not see a descendant in a session of its own, and an orphan that
    /// left its control group may be of several jobs.
    pub survivors: Option<u32>,
    /// When no process of it was left, or when that was looked at.
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
