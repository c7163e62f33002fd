//! Ancestry of a process, to find its job.

use std::fs;

use rustix::process::{Pid, getpid};

use crate::proc::table::Stat;

/// Maximum number of reads of an ancestry that changes meanwhile.
const TRIES: u32 = 8;
/// Maximum number of ancestors.
const ANCESTORS_MAX: usize = 1024;

/// A process, its ancestors, and its control group.
#[derive(Debug)]
pub(crate) struct Lineage {
    /// The process and its ancestors, from child to parent.
    line: Vec<(Pid, Stat)>,
    /// Text of `/proc/PID/cgroup`.
    cgroup: String,
}

impl Lineage {
    /// Reads the ancestry; `None` if the process has ended, or its ancestry cannot be determined.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        let line = (0..TRIES).find_map(|_| Self::trace(pid))?;
        let cgroup = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).ok()?;
        Some(Self { line, cgroup })
    }

    fn trace(pid: Pid) -> Option<Vec<(Pid, Stat)>> {
        let mut line = Vec::new();
        let mut next = Some(pid);
        while let Some(pid) = next {
            if line.len() >= ANCESTORS_MAX {
                return None;
            }
            let stat = Stat::of(pid)?;
            line.push((pid, stat));
            next = Pid::from_raw(stat.parent);
        }
        // A process reparented meanwhile may have hidden a part of the line.
        let holds =
            |(pid, was): &(Pid, Stat)| Stat::of(*pid).is_some_and(|is| is.parent == was.parent);
        line.iter().all(holds).then_some(line)
    }

    /// Text of `/proc/PID/cgroup`.
    pub(crate) fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// Whether a condition holds for the process or one of its ancestors.
    pub(crate) fn any(&self, holds: impl Fn(Pid, Stat) -> bool) -> bool {
        self.line.iter().any(|(pid, stat)| holds(*pid, *stat))
    }

    /// Whether it is `ancestor`, or descends from it.
    pub(crate) fn is_below(&self, ancestor: Pid) -> bool {
        self.any(|pid, _| pid == ancestor)
    }

    /// Whether it or an ancestor is in the session or the process group of a command.
    pub(crate) fn is_with(&self, leader: Pid) -> bool {
        self.any(|_, stat| stat.belongs_to(leader))
    }

    /// Whether it descends from this process: from a job, or as an orphan of one. The first process
    /// of a container also adopts orphans of other origin.
    pub(crate) fn is_below_us(&self) -> bool {
        let us = getpid();
        self.line.iter().skip(1).any(|(pid, _)| *pid == us)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn grandchild_descends_from_this_process() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & echo $!; wait"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        let grandchild = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let lineage = Lineage::of(grandchild).unwrap();
        assert!(lineage.is_below(grandchild) && lineage.is_below(Pid::from_child(&child)));
        assert!(lineage.is_below_us() && lineage.cgroup().contains(":"));
        let own = Lineage::of(getpid()).unwrap();
        assert!(!own.is_below_us() && !own.is_below(grandchild));
        rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(Lineage::of(Pid::from_child(&child)).is_none(), "a process that was reaped");
    }
}
