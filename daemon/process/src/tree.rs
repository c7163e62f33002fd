//! Process trees: a command that is started, waited for and ended as a whole by a plain function
//! call.
//!
//! A [`Runner`] is a [`Supervisor`] for programs without an event loop of their own.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::containment::Containment;
use crate::guard::Program;
use crate::ids::JobId;
use crate::launch::Launch;
use crate::supervisor::report::{Ending, Exit, Order, Report};
use crate::supervisor::{Orphans, Supervisor, SupervisorGone};

/// How long processes may take to end after the first SIGKILL, and after the second. The kernel
/// ends a process at once unless it waits for a device or is being traced.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// The senders to trees that have not ended. A tree gets at most three reports: lingering,
/// outlasting, ended.
type Trees = Arc<Mutex<BTreeMap<JobId, Sender<Report>>>>;

/// Starts commands as process trees, in the best containment that works here.
///
/// Its thread ends with it and the last of its trees. The [crate documentation](crate) has an
/// example.
#[derive(Debug)]
pub struct Runner {
    supervisor: Arc<Supervisor>,
    trees: Trees,
    last: AtomicU64,
}

impl Runner {
    /// Starts a runner in the best containment: control groups, else guard processes if this
    /// program called [`guard::init`](crate::guard::init) first in `main`, else process groups.
    ///
    /// # Errors
    /// When no containment works here, or no thread can be started.
    pub fn start() -> io::Result<Self> {
        Self::with(Containment::detect(Program::this())?)
    }

    /// Starts a runner in this containment.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn with(containment: Containment) -> io::Result<Self> {
        let trees = Trees::default();
        let known = Arc::clone(&trees);
        let report = move |report: Report| deliver(&known, report);
        let supervisor = Supervisor::start(containment, Orphans::Leave, Box::new(report))?;
        Ok(Self { supervisor: Arc::new(supervisor), trees, last: AtomicU64::new(0) })
    }

    /// Starts a command. Its number, [`Launch::job`], is chosen here.
    ///
    /// # Errors
    /// When the runner's thread has ended. A command that cannot be started is told by
    /// [`ProcessTree::wait`].
    pub fn spawn(&self, mut launch: Launch) -> Result<ProcessTree, SupervisorGone> {
        let job = JobId::new(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        launch.job = job;
        let (sender, reports) = unbounded();
        self.trees.lock().unwrap_or_else(PoisonError::into_inner).insert(job, sender);
        self.supervisor.order(Order::Launch(Box::new(launch)))?;
        let supervisor = Arc::clone(&self.supervisor);
        Ok(ProcessTree { job, supervisor, reports, ending: None })
    }
}

/// Hands a report to its tree.
fn deliver(trees: &Trees, report: Report) {
    let mut trees = trees.lock().unwrap_or_else(PoisonError::into_inner);
    let sender = match &report {
        Report::Ended { job, .. } => trees.remove(job),
        Report::Lingering { job } | Report::Outlasting { job, .. } => trees.get(job).cloned(),
        Report::Progress { .. }
        | Report::Line { .. }
        | Report::Surveyed { .. }
        | Report::Examined { .. }
        | Report::BornEnded { .. }
        | Report::Located { .. } => None,
    };
    if let Some(sender) = sender {
        // A tree that was dropped hears nothing.
        let _ = sender.send(report);
    }
}

/// A command and every process that it started, directly or not.
///
/// Dropping it kills all of them, without waiting.
#[derive(Debug)]
pub struct ProcessTree {
    job: JobId,
    supervisor: Arc<Supervisor>,
    reports: Receiver<Report>,
    ending: Option<Ending>,
}

/// How far a process tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeState {
    /// The command runs.
    Running,
    /// The command has exited, and processes that it started live on.
    LeftBehind,
    /// No process of the tree is alive.
    Ended(Ending),
}

/// Why a process tree has not ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum EndError {
    /// The command never ran; the text says why.
    NotStarted(String),
    /// Processes outlast SIGKILL: they wait for a device, are traced, or may not be killed by this
    /// user. They are still watched, and killed again.
    Outlasting(Box<Exit>),
    /// The runner's thread has ended.
    Gone(SupervisorGone),
}

impl fmt::Display for EndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(reason) => f.write_str(reason),
            Self::Outlasting(exit) => match exit.survivors {
                Some(left) => write!(f, "{left} processes outlast SIGKILL"),
                None => f.write_str("processes outlast SIGKILL"),
            },
            Self::Gone(gone) => gone.fmt(f),
        }
    }
}

impl Error for EndError {}

impl From<SupervisorGone> for EndError {
    fn from(gone: SupervisorGone) -> Self {
        Self::Gone(gone)
    }
}

/// Result of waiting for a tree.
enum News {
    Lingering,
    Outlasting(Box<Exit>),
    Ended,
    Nothing,
}

impl ProcessTree {
    /// Sends SIGTERM, and SIGCONT to those that are stopped, to every process of the tree.
    ///
    /// # Errors
    /// When the runner's thread has ended.
    pub fn terminate(&self) -> Result<(), SupervisorGone> {
        self.supervisor.order(Order::Terminate(self.job))
    }

    /// Sends SIGKILL to every process of the tree, until none is left.
    ///
    /// # Errors
    /// When the runner's thread has ended.
    pub fn kill(&self) -> Result<(), SupervisorGone> {
        self.supervisor.order(Order::Kill(self.job))
    }

    /// Waits until the command has exited, at most `within`.
    ///
    /// # Errors
    /// When the runner's thread has ended.
    pub fn wait(&mut self, within: Duration) -> Result<TreeState, SupervisorGone> {
        let news = self.hear(Instant::now().checked_add(within))?;
        Ok(match (&self.ending, news) {
            (Some(ending), _) => TreeState::Ended(ending.clone()),
            (None, News::Lingering) => TreeState::LeftBehind,
            (None, News::Nothing | News::Outlasting(_) | News::Ended) => TreeState::Running,
        })
    }

    /// Ends the whole tree: SIGTERM, then SIGKILL for processes alive after `grace`. Returns when
    /// no process of it is alive.
    ///
    /// # Errors
    /// [`EndError::Outlasting`] for processes that two SIGKILLs have not ended within ten seconds.
    pub fn end(mut self, grace: Duration) -> Result<Exit, EndError> {
        let outlasting = self.order_the_end(grace)?;
        match (self.ending.take(), outlasting) {
            (Some(Ending::Exited(exit)), _) => Ok(*exit),
            (Some(Ending::NotStarted(reason)), _) => Err(EndError::NotStarted(reason)),
            (None, Some(exit)) => Err(EndError::Outlasting(exit)),
            (None, None) => Err(EndError::Gone(SupervisorGone)),
        }
    }

    /// Takes the steps of [`ProcessTree::end`]; returns the remaining processes of a tree that does
    /// not end.
    fn order_the_end(&mut self, grace: Duration) -> Result<Option<Box<Exit>>, SupervisorGone> {
        self.terminate()?;
        self.hear_the_end(grace)?;
        for _ in 0..2 {
            if self.ending.is_none() {
                self.kill()?;
                if let Some(exit) = self.hear_the_end(KILLED_WITHIN)? {
                    return Ok(Some(exit));
                }
            }
        }
        Ok(None)
    }

    fn hear_the_end(&mut self, within: Duration) -> Result<Option<Box<Exit>>, SupervisorGone> {
        let until = Instant::now().checked_add(within);
        loop {
            match self.hear(until)? {
                News::Lingering => {}
                News::Outlasting(exit) => return Ok(Some(exit)),
                News::Ended | News::Nothing => return Ok(None),
            }
        }
    }

    /// The next report, until a time; forever without one.
    fn hear(&mut self, until: Option<Instant>) -> Result<News, SupervisorGone> {
        if self.ending.is_some() {
            return Ok(News::Ended);
        }
        let heard = match until {
            Some(until) => self.reports.recv_deadline(until),
            None => self.reports.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match heard {
            Ok(Report::Ended { ending, .. }) => {
                self.ending = Some(ending);
                Ok(News::Ended)
            }
            Ok(Report::Outlasting { exit, .. }) => Ok(News::Outlasting(exit)),
            Ok(
                Report::Lingering { .. }
                | Report::Progress { .. }
                | Report::Line { .. }
                | Report::Surveyed { .. }
                | Report::Examined { .. }
                | Report::BornEnded { .. }
                | Report::Located { .. },
            ) => Ok(News::Lingering),
            Err(RecvTimeoutError::Timeout) => Ok(News::Nothing),
            Err(RecvTimeoutError::Disconnected) => Err(SupervisorGone),
        }
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if self.ending.is_none() {
            let _ = self.kill();
        }
    }
}
