//! Orders to a supervisor, and its reports.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::bounds::Reached;
use crate::ids::JobId;
use crate::launch::Launch;
use crate::output::Captured;
use crate::proc::processes::Process;
use crate::supervisor::usage::Usage;

/// Processes of a job by their births.
///
/// A process is of the work that was announced closest to the birth of its root: its first ancestor
/// born since `floor`. Where there are as many such roots as works, they are matched in their order.
#[derive(Debug, Clone)]
pub struct Births {
    /// Earliest birth of a process.
    pub since: Instant,
    /// Earliest birth of a root.
    pub floor: Instant,
    /// Begin of other work, which is meant, and competes for processes with `works`.
    pub other: Option<Instant>,
    /// Works in the order of their announcement, and whether each is meant. Empty: every process is.
    pub works: Vec<(Instant, bool)>,
}

impl From<Instant> for Births {
    fn from(since: Instant) -> Self {
        Self { since, floor: since, other: None, works: Vec::new() }
    }
}

/// An order to a supervisor.
#[derive(Debug)]
pub enum Order {
    /// Start a command. Answered by exactly one [`Report::Ended`].
    Launch(Box<Launch>),
    /// Send SIGTERM, and SIGCONT for stopped processes, to every process of the job.
    Terminate(JobId),
    /// Send SIGKILL to every process of the job until none is left.
    Kill(JobId),
    /// Without another such order by this time since the boot of the machine, the processes of these jobs are
    /// ended by their keeper and guards, also while this process is stopped. The order takes the place of the
    /// one before; `None` for no deadline. Without effect where only process groups contain jobs.
    Lease {
        /// The deadline.
        until: Option<Duration>,
        /// The jobs.
        jobs: Vec<JobId>,
    },
    /// Drop the output of the job and close its pipes: it has no receiver any more. The job is
    /// still watched, and reported as ended.
    Abandon(JobId),
    /// List the processes of these jobs, with their CPU time and memory, which are measured at most
    /// once a second for each job. Answered by one [`Report::Surveyed`].
    Survey {
        /// Number of the question, repeated in the answer.
        ticket: u64,
        /// The jobs.
        jobs: Vec<JobId>,
    },
    /// Collect evidence about the processes of a job. Answered by one [`Report::Examined`].
    Examine {
        /// Number of the question, repeated in the answer.
        ticket: u64,
        /// The job.
        job: JobId,
        /// The processes that are counted.
        births: Births,
    },
    /// End the processes of a job that have these births, and their descendants: SIGTERM,
    /// then SIGKILL until none is left. The command and its other processes run on. Answered by one
    /// [`Report::BornEnded`].
    EndBorn {
        /// Number of the order, repeated in the answer.
        ticket: u64,
        /// The job.
        job: JobId,
        /// The processes.
        births: Births,
        /// Time from SIGTERM to SIGKILL.
        grace: Duration,
    },
    /// Find evidence of the job of a process. Answered by one [`Report::Located`].
    Locate {
        /// Number of the question, repeated in the answer.
        ticket: u64,
        /// The process.
        pid: Pid,
        /// A pidfd of it, if available: its process id may be reused.
        process: Option<OwnedFd>,
    },
}

/// Evidence about the processes of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Number of live processes that were born after the instant in question; `None` if unknown. A
    /// process born up to 10 ms before it, the resolution of start times, may be included.
    pub born: Option<u32>,
    /// CPU time of the processes so far, also of ended ones as far as the containment counts them;
    /// `None` if unknown.
    pub cpu: Option<Duration>,
    /// Time that the live threads have waited for a CPU so far; `None` if the kernel does not say.
    pub waited: Option<Duration>,
}

/// Evidence of the job that a process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Located {
    /// The process is alive.
    Alive(Membership),
    /// The process has ended, or cannot be inspected.
    Gone,
}

/// Evidence of the job that a living process belongs to, as the kernel tells it.
///
/// Nothing of it is the choice of the process: neither its environment nor its session nor its
/// pipes count (SEC-05).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Membership {
    /// Job in whose control group it was started, or an ancestor of it: no process was ever moved
    /// into that group.
    pub group: Option<JobId>,
    /// Job from whose living command or guard it descends.
    pub descent: Option<JobId>,
    /// Whether it may belong to another job, or to one that has ended: it is followed for that, is
    /// in a group into which processes were moved, or is an orphan.
    pub is_doubtful: bool,
}

/// A report of a supervisor.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// Progress of the tool. Limited to about a hundred per second and job; excess reports are
    /// dropped except the last.
    Progress {
        /// The job.
        job: JobId,
        /// Current progress; finite.
        progress: f64,
        /// Total, if known; finite.
        total: Option<f64>,
        /// Description of the current step.
        message: Option<String>,
    },
    /// The command printed something. At most once a second for each job.
    Line {
        /// The job.
        job: JobId,
        /// The last line, without escape sequences, shortened.
        line: String,
    },
    /// The command has exited without an order, but processes it started are alive. Sent at most
    /// once per job. They may be about to exit: wait a moment, then order their end.
    Lingering {
        /// The job.
        job: JobId,
    },
    /// The job was ordered to be killed a second time and is not over: its processes cannot be
    /// killed now. Sent at most once per job, with its state so far. It is still watched, and
    /// reported as ended.
    Outlasting {
        /// The job.
        job: JobId,
        /// Exit of its command, if it has exited, and the number of live processes.
        exit: Box<Exit>,
    },
    /// No process of the job is left (STOP-01). Sent exactly once per launch, as its last report.
    Ended {
        /// The job.
        job: JobId,
        /// Its ending.
        ending: Ending,
    },
    /// Processes of the running jobs among those asked about.
    Surveyed {
        /// Number of the [`Order::Survey`].
        ticket: u64,
        /// The live processes of each job, unordered.
        processes: Vec<(JobId, Vec<Process>)>,
        /// CPU time and memory of each job.
        usage: Vec<(JobId, Usage)>,
    },
    /// Evidence about a job. Nothing is alive of a job that has ended.
    Examined {
        /// Number of the [`Order::Examine`].
        ticket: u64,
        /// The evidence.
        evidence: Evidence,
    },
    /// An [`Order::EndBorn`] was carried out.
    BornEnded {
        /// Number of the order.
        ticket: u64,
        /// Number of processes that were signalled and have ended.
        ended: u32,
        /// Number of processes that SIGKILL does not end.
        left: u32,
        /// Whether the job's processes were all visible. Otherwise some may be alive.
        is_complete: bool,
    },
    /// Evidence of the job of a process.
    Located {
        /// Number of the [`Order::Locate`].
        ticket: u64,
        /// The evidence.
        located: Located,
    },
}

/// Ending of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The command ran.
    Exited(Box<Exit>),
    /// The command could not be started; the text names the command and the cause.
    NotStarted(String),
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exit {
    /// The exit code, if it exited. Both this and `signal` are `None` if another process reaped the
    /// command or the guard was killed.
    pub code: Option<i32>,
    /// The signal that ended the command, if any.
    pub signal: Option<i32>,
    /// Captured standard output.
    pub stdout: Captured,
    /// Captured standard error.
    pub stderr: Captured,
    /// Time from the launch to the exit of the command.
    pub duration: Duration,
    /// The highest step ordered against it.
    pub stopped: Stopped,
    /// Number of its processes signalled by those steps, as far as known.
    pub signalled: u32,
    /// Number of its live processes. 0 once it has ended; `None` if unknown:
    /// [`Containment::Groups`](crate::Containment::Groups) does not find descendants in a session
    /// of their own, and an orphan that left its control group may belong to several jobs.
    pub survivors: Option<u32>,
    /// Bounds that it has reached.
    pub reached: Reached,
    /// Time at which no process of it was left, or of the last check.
    pub gone: Instant,
}

/// The highest stop step of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stopped {
    /// None: it ended without one.
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
