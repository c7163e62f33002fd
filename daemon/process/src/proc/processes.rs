//! What processes a job has, for views.

use std::fs;

use rustix::process::Pid;

use crate::proc::table::Stat;

/// Processes of one job that are told of at most.
pub(crate) const LISTED_MAX: usize = 256;

/// A process of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent, which need not be of the job.
    pub parent: i32,
    /// What it is called: at most 15 bytes, without its arguments, which may be secret.
    pub name: String,
}

impl Process {
    /// The live ones of these processes.
    pub(crate) fn of(pids: impl IntoIterator<Item = Pid>) -> Vec<Self> {
        pids.into_iter().filter_map(Self::look_up).take(LISTED_MAX).collect()
    }

    fn look_up(pid: Pid) -> Option<Self> {
        let stat = Stat::of(pid).filter(|stat| !stat.is_dead)?;
        let pid = pid.as_raw_nonzero().get();
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&name);
        let name = name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        Some(Self { pid, parent: stat.parent, name })
    }
}
