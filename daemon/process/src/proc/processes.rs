//! Processes of a job, for views.

use std::fs;

use rustix::process::Pid;

use crate::proc::table::Stat;

/// Maximum number of listed processes per job.
pub(crate) const LISTED_MAX: usize = 256;

/// A process of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Parent process id, which may be outside the job.
    pub parent: i32,
    /// Name, at most 15 bytes, without arguments, which may be secret.
    pub name: String,
    /// Bytes of resident memory.
    pub memory: u64,
    /// Time of its start in clock ticks since the boot. Process ids are used again, so that a higher
    /// one may be that of an older process.
    pub started: u64,
}

impl Process {
    /// Looks up a live process of this machine.
    #[must_use]
    pub fn find(pid: i32) -> Option<Self> {
        Self::look_up(Pid::from_raw(pid)?)
    }

    /// Looks up the live ones of these processes.
    pub(crate) fn of(pids: impl IntoIterator<Item = Pid>) -> Vec<Self> {
        pids.into_iter().filter_map(Self::look_up).take(LISTED_MAX).collect()
    }

    fn look_up(pid: Pid) -> Option<Self> {
        let stat = Stat::of(pid).filter(|stat| !stat.is_dead)?;
        let pid = pid.as_raw_nonzero().get();
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&name);
        let name = name.trim_end().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let memory = stat.resident.saturating_mul(rustix::param::page_size() as u64);
        Some(Self { pid, parent: stat.parent, name, memory, started: stat.start })
    }
}
