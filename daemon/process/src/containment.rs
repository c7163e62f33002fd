//! How the processes of a job are kept together, so that none is missed when it has to end.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::cgroup::{self, Cgroup};
use crate::guard::Program;
use crate::guard::roster::Roster;
use crate::launch::trial;
use crate::proc::descent::Followed;

/// How long a group in which a command was tried out may seem to have a process.
const TRIAL_WITHIN: Duration = Duration::from_secs(2);

/// The means by which a supervisor finds every process of a job.
#[derive(Debug)]
pub enum Containment {
    /// A control group per job: the kernel's own list, ended by one write.
    Cgroup {
        /// The group above the jobs' groups.
        group: Cgroup,
        /// Runs as the keeper, which ends the groups when this process is killed. Without one,
        /// tools outlive a killed supervisor until another starts in the same place.
        keeper: Option<Program>,
    },
    /// A guard process per job, that no descendant of the job can get away from.
    Guard(Program),
    /// Process groups and sessions only: descendants that start a session of their own are missed,
    /// and so is everything when this process is killed.
    Groups,
}

impl Containment {
    /// The best that works here, found by running a command in it: a control group, else guards,
    /// else groups.
    ///
    /// `guard` is usually [`Program::this`]. What does not work is logged, as a warning when it
    /// costs safety.
    ///
    /// # Errors
    ///
    /// When no command can be run in any of them: the text says what the system lacks.
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
                tracing::info!(%error, "cannot use control groups");
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

    /// Tries whether a command can be started.
    fn try_out(&self) -> io::Result<()> {
        match self {
            Self::Cgroup { group, .. } => {
                // Jobs are numbered from 1.
                let trial = group.job(0)?;
                let tried = trial::try_out(Some(trial.as_fd()));
                // The process is gone, and the kernel may need a moment to see it.
                cgroup::end(trial.path(), Followed::default(), TRIAL_WITHIN)?;
                tried
            }
            Self::Guard(program) => program.check(),
            Self::Groups => trial::try_out(None),
        }
    }

    /// Has the processes that end what outlives this one hold a descriptor until they have.
    #[must_use]
    #[doc(hidden)]
    pub fn leased(self, lease: OwnedFd) -> Self {
        let lease = Arc::new(lease);
        self.with_program(|program| program.leased(lease))
    }

    /// Has these processes recorded, so that the next start can end those that do not do it.
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

    /// The control group that holds everything, where there is one.
    #[must_use]
    #[doc(hidden)]
    pub fn group(&self) -> Option<&Path> {
        match self {
            Self::Cgroup { group, .. } => Some(group.path()),
            Self::Guard(_) | Self::Groups => None,
        }
    }

    /// The program that guards and keepers run, where there is one.
    pub(crate) const fn guard(&self) -> Option<&Program> {
        match self {
            Self::Guard(program) | Self::Cgroup { keeper: Some(program), .. } => Some(program),
            Self::Cgroup { keeper: None, .. } | Self::Groups => None,
        }
    }

    /// Tries whether commands can have a pid namespace ([`Isolation::Pid`](crate::isolation::Isolation::Pid)).
    ///
    /// # Errors
    ///
    /// When they cannot; the text says why, and what to do about it.
    pub fn check_isolation(&self) -> io::Result<()> {
        match self.guard() {
            Some(program) => program.check_isolation(),
            None => Err(io::Error::other("isolation = \"pid\" needs a guard program")),
        }
    }

    /// What this containment cannot do, for a warning; `None` when it keeps STOP-01 whole.
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

    /// What to do about that; `is_guard` says whether the running program can be a guard itself:
    /// then it is for its operator to do, otherwise for its author.
    pub(crate) const fn remedy(is_guard: bool) -> &'static str {
        if is_guard {
            "leave CEASED_CONTAINMENT unset; where it is, the log says at level \"info\" why no \
             better way works here"
        } else {
            "call ceased_process::guard::init() first in main, or name a guard program"
        }
    }
}

impl Containment {
    /// A word for records.
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
