//! Resource bounds of one job.

use std::collections::BTreeSet;
use std::fmt;

/// Resource bounds of the processes of one job, all together. `None` is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Bytes of memory. At the bound the kernel ends the whole job; the job uses no swap space.
    pub memory_max: Option<u64>,
    /// Processes and threads at once. At the bound the start of another one fails.
    pub pids_max: Option<u32>,
    /// CPU time, in percent of one processor. At the bound the processes wait.
    pub cpu_max: Option<u32>,
    /// Niceness, 0 to 19: a larger one leaves the CPU to other processes. A command keeps a larger
    /// one that it inherits.
    pub nice: Option<u8>,
}

impl Bounds {
    /// The controllers of control groups that enforce them.
    #[must_use]
    pub fn controllers(&self) -> BTreeSet<Controller> {
        let wanted = [
            (Controller::Memory, self.memory_max.is_some()),
            (Controller::Pids, self.pids_max.is_some()),
            (Controller::Cpu, self.cpu_max.is_some()),
        ];
        wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(it, _)| it).collect()
    }
}

/// A controller of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Enforces [`Bounds::memory_max`].
    Memory,
    /// Enforces [`Bounds::pids_max`].
    Pids,
    /// Enforces [`Bounds::cpu_max`].
    Cpu,
}

impl Controller {
    /// Name in the files of the kernel.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }

    /// Name of the bound that it enforces.
    #[must_use]
    pub const fn bound(self) -> &'static str {
        match self {
            Self::Memory => "memory_max",
            Self::Pids => "pids_max",
            Self::Cpu => "cpu_max",
        }
    }
}

/// A bound that has no effect here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unenforced {
    /// The controller that is missing.
    pub controller: Controller,
    /// The reason, and the remedy.
    pub why: String,
}

impl fmt::Display for Unenforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no effect here: {}", self.controller.bound(), self.why)
    }
}

impl std::error::Error for Unenforced {}

/// Bounds that a job has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reached {
    /// The [`Bounds::memory_max`] for which the kernel ended the job.
    pub memory_max: Option<u64>,
    /// The [`Bounds::pids_max`] at which the start of a process failed.
    pub pids_max: Option<u32>,
}
