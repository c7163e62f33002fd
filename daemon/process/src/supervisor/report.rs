//! Orders to a supervisor, and its reports.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::ids::JobId;
use crate::launch::Launch;
use crate::output::Captured;
use crate::proc::processes::Process;

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
    Survey {
        /// Number for the answer.
        ticket: u64,
        /// The jobs.
        jobs: Vec<JobId>,
    },
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
        ticket: u64,
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
    /// [`Containment::Groups`](crate::Containment::Groups) does not see a descendant in a session of its own, and an orphan that
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
