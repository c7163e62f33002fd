//! Containment: means to find every process of a job when it has to end.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::bounds::{Controller, Unenforced};
use crate::cgroup::{self, Cgroup};
use crate::guard::Program;
use crate::guard::roster::Roster;
use crate::launch::trial;
use crate::proc::descent::Followed;

/// Time for which the group of a trial may still appear populated.
const TRIAL_WITHIN: Duration = Duration::from_secs(2);

/// Means by which a supervisor finds every process of a job.
#[derive(Debug)]
pub enum Containment {
    /// A control group per job: the kernel's list of its processes, killed by one write.
    Cgroup {
        /// Parent of the jobs' groups.
        group: Cgroup,
        /// Program of the keeper, which ends the groups if this process is killed. Without one,
        /// tools outlive a killed supervisor until another one starts in the same place.
        keeper: Option<Program>,
    },
    /// A guard process per job, a subreaper that all descendants of the job stay below.
    Guard(Program),
    /// Process groups and sessions only: descendants in a session of their own are not found, and
    /// nothing is stopped if this process is killed.
    Groups,
}

impl Containment {
    /// Selects the best containment that works, by running a command in it: control groups, else
    /// guards, else process groups.
    ///
    /// `guard` is usually [`Program::this`]. Failed attempts are logged, as a warning if they
    /// reduce safety.
    ///
    /// # Errors
    ///
    /// If no command can be run in any of them: the text names the missing feature of the system.
    pub fn detect(guard: Option<Program>) -> io::Result<Self> {
        let mut reasons = Vec::new();
        let guard = guard.filter(|program| {
            let checked = program.check();
            if let Err(error) = &checked {
                tracing::warn!(%error, "cannot use the guard program");
                reasons.push(format!("guards: {error}"));
            }
            checked.is_ok()
        });
        let group = Cgroup::create().and_then(|group| {
            let tried = Self::Cgroup { group, keeper: guard.clone() };
            tried.try_out().map(|()| tried)
        });
        match group {
            Ok(group) => return Ok(group),
            Err(error) => {
                tracing::info!(%error, "cannot use control groups; trying guards");
                reasons.push(format!("control groups: {error}"));
            }
        }
        if let Some(program) = guard {
            return Ok(Self::Guard(program));
        }
        Self::Groups.try_out().map(|()| Self::Groups).map_err(|error| {
            reasons.push(format!("process groups: {error}"));
            let reasons = reasons.join("; ");
            io::Error::new(error.kind(), format!("no command can be run here: {reasons}"))
        })
    }

    /// Tests whether a command can be started.
    fn try_out(&self) -> io::Result<()> {
        match self {
            Self::Cgroup { group, .. } => {
                // Jobs are numbered from 1.
                let trial = group.job(0)?;
                let tried = trial::try_out(Some(trial.as_fd()));
                // The process has ended; the kernel may update the group with a delay.
                cgroup::end(trial.path(), Followed::default(), TRIAL_WITHIN)?;
                tried
            }
            Self::Guard(program) => program.check(),
            Self::Groups => trial::try_out(None),
        }
    }

    /// Passes a descriptor to keeper and guards, which hold it until they have cleaned up.
    #[must_use]
    #[doc(hidden)]
    pub fn leased(self, lease: OwnedFd) -> Self {
        let lease = Arc::new(lease);
        self.with_program(|program| program.leased(lease))
    }

    /// Records keeper and guards in the roster, so that the next start can end those that hang.
    #[must_use]
    #[doc(hidden)]
    pub fn recorded(self, roster: Arc<Roster>) -> Self {
        self.with_program(|program| program.recorded(roster))
    }

    fn with_program(self, change: impl FnOnce(Program) -> Program) -> Self {
        match self {
            Self::Cgroup { group, keeper } => Self::Cgroup { group, keeper: keeper.map(change) },
            Self::Guard(program) => Self::Guard(change(program)),
            Self::Groups => Self::Groups,
        }
    }

    /// The base group, if control groups are used.
    #[must_use]
    #[doc(hidden)]
    pub fn group(&self) -> Option<&Path> {
        match self {
            Self::Cgroup { group, .. } => Some(group.path()),
            Self::Guard(_) | Self::Groups => None,
        }
    }

    /// The program of guards and keepers, if any.
    pub(crate) const fn guard(&self) -> Option<&Program> {
        match self {
            Self::Guard(program) | Self::Cgroup { keeper: Some(program), .. } => Some(program),
            Self::Cgroup { keeper: None, .. } | Self::Groups => None,
        }
    }

    /// Makes the controllers available that bounds of jobs need
    /// ([`Launch::bounds`](crate::Launch::bounds)). Returns those that are not, with the reasons: a
    /// bound without its controller has no effect.
    ///
    /// In a control group that the system has given to this process alone, it moves this process to
    /// a group below, because the kernel requires that. So call it before other threads or processes
    /// depend on the group.
    pub fn enable(&mut self, wanted: &BTreeSet<Controller>) -> Vec<Unenforced> {
        match self {
            Self::Cgroup { group, .. } => group.enable(wanted),
            Self::Guard(_) | Self::Groups => unavailable(wanted),
        }
    }

    /// Tests whether commands can have a pid namespace
    /// ([`Isolation::Pid`](crate::isolation::Isolation::Pid)).
    ///
    /// # Errors
    ///
    /// If they cannot; the text gives the cause and the remedy.
    pub fn check_isolation(&self) -> io::Result<()> {
        match self.guard() {
            Some(program) => program.check_isolation(),
            None => Err(io::Error::other("isolation = \"pid\" needs a guard program")),
        }
    }

    /// The limitation of this containment, for a warning; `None` if it guarantees STOP-01
    /// completely.
    #[must_use]
    pub const fn weakness(&self) -> Option<&'static str> {
        match self {
            Self::Cgroup { keeper: Some(_), .. } | Self::Guard(_) => None,
            Self::Cgroup { keeper: None, .. } => {
                Some("tools outlive this process if it is killed with SIGKILL")
            }
            Self::Groups => Some(
                "a tool's descendants that start their own session are not stopped, and nothing \
                 is if this process is killed with SIGKILL",
            ),
        }
    }

    /// The remedy for it. `is_guard`: the running program can be a guard itself, so the remedy is
    /// up to its operator, otherwise to its author.
    pub(crate) const fn remedy(is_guard: bool) -> &'static str {
        if is_guard {
            "leave CEASED_CONTAINMENT unset; if it is, the log at level \"info\" gives the reason that no \
             better way works here"
        } else {
            "call ceased_process::guard::init() first in main, or name a guard program"
        }
    }
}

/// Why no controller is available without control groups.
fn unavailable(wanted: &BTreeSet<Controller>) -> Vec<Unenforced> {
    let why = "the jobs of this daemon are not in control groups, the only means to bound a job as a \
               whole; the log at level \"info\" gives the reason";
    wanted.iter().map(|it| Unenforced { controller: *it, why: why.into() }).collect()
}

/// Predicts the controllers that a daemon started here, with the containment that it would detect,
/// would not have. Changes nothing.
#[must_use]
pub fn predict_unenforced(wanted: &BTreeSet<Controller>) -> Vec<Unenforced> {
    cgroup::predict_unenforced(wanted)
}

impl Containment {
    /// Name for records.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Cgroup { .. } => "cgroup",
            Self::Guard(_) => "guard",
            Self::Groups => "groups",
        }
    }
}

impl fmt::Display for Containment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup { group, keeper: Some(_) } => {
                write!(f, "a control group per job below {group}, with a keeper")
            }
            Self::Cgroup { group, keeper: None } => {
                write!(f, "a control group per job below {group}, without a keeper")
            }
            Self::Guard(program) => {
                write!(f, "a guard process per job ({})", program.path().display())
            }
            Self::Groups => f.write_str("process groups only"),
        }
    }
}
