//! Tracking of processes by descent, independent of group, session and parent.
//!
//! A process can leave its control group, its session and its process group, and can lose its
//! parent. It cannot change its process id or start time. So a process once found as a descendant
//! of a job stays identified.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroI32;

use rustix::process::{Pid, Signal};

use crate::proc::table::{self, Blind, Stat, Table};

/// Processes known by descent, identified by process id and start time.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    known: BTreeMap<NonZeroI32, u64>,
}

impl Followed {
    /// Whether no process is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a process is known; `stat` has its start time.
    pub(crate) fn has(&self, pid: Pid, stat: Stat) -> bool {
        self.known.get(&pid.as_raw_nonzero()) == Some(&stat.start)
    }

    /// Adds a process unless it is dead; true if it is new.
    pub(crate) fn add(&mut self, pid: Pid, stat: Stat) -> bool {
        let is_new = !stat.is_dead && !self.has(pid, stat);
        if is_new {
            self.known.insert(pid.as_raw_nonzero(), stat.start);
        }
        is_new
    }

    /// Adds the live children of a process except those in `others`. False if some could not be
    /// inspected.
    pub(crate) fn add_children(&mut self, parent: Pid, others: &BTreeSet<NonZeroI32>) -> bool {
        let children = table::children(parent);
        let is_complete = children.is_ok();
        for child in children.unwrap_or_default() {
            if !others.contains(&child.as_raw_nonzero())
                && let Some(stat) = Stat::of(child)
                && stat.parent == parent.as_raw_nonzero().get()
            {
                self.add(child, stat);
            }
        }
        is_complete
    }

    /// Adds the live processes in the sessions led by known processes or `others`: only descendants
    /// can be in such a session.
    pub(crate) fn add_sessions(&mut self, others: impl Iterator<Item = Pid>) {
        let known = self.all().into_iter().map(|(pid, _)| pid);
        let leaders: BTreeSet<i32> =
            known.chain(others).map(|pid| pid.as_raw_nonzero().get()).collect();
        for (pid, stat) in Table::read().led_by(&leaders) {
            self.add(pid, stat);
        }
    }

    /// Adds the live descendants of a process except those in `others`. False if some could not be
    /// inspected.
    pub(crate) fn add_below(&mut self, root: Pid, others: &BTreeSet<NonZeroI32>) -> bool {
        table::walk(root, |pid, parent| {
            if !others.contains(&pid.as_raw_nonzero())
                && let Some(stat) = Stat::of(pid)
                && stat.parent == parent.as_raw_nonzero().get()
            {
                self.add(pid, stat);
            }
        })
    }

    /// Adds the live descendants of all known processes, and forgets dead ones. False if some could
    /// not be inspected.
    pub(crate) fn refresh(&mut self) -> bool {
        let mut is_complete = true;
        for (pid, start) in self.all() {
            // The process id may have been reused.
            match Stat::of_started(pid, start) {
                Ok(Some(_)) => is_complete &= self.add_below(pid, &BTreeSet::new()),
                Ok(None) => {}
                Err(Blind) => is_complete = false,
            }
        }
        self.known.retain(|raw, start| {
            Pid::from_raw(raw.get()).is_some_and(|pid| !Stat::is_gone(pid, *start))
        });
        is_complete
    }

    /// Sends signals to each process accepted by `is_meant`; calls `signalled` for those that
    /// received one.
    pub(crate) fn signal(
        &self,
        signals: &[Signal],
        is_meant: impl Fn(Pid) -> bool,
        mut signalled: impl FnMut(Pid),
    ) {
        for (pid, start) in self.all() {
            let is_same = || matches!(Stat::of_started(pid, start), Ok(Some(_)));
            if is_meant(pid) && table::signal_if(pid, signals, is_same) {
                signalled(pid);
            }
        }
    }

    /// Process id and start time of each process.
    pub(crate) fn all(&self) -> Vec<(Pid, u64)> {
        let pid = |raw: NonZeroI32| Pid::from_raw(raw.get());
        self.known.iter().filter_map(|(raw, start)| Some((pid(*raw)?, *start))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn process_is_tracked_by_start_time_and_through_its_parents() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & wait"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let stat = Stat::of(pid).unwrap();
        let mut kin = Followed::default();
        assert!(kin.add(pid, stat));
        assert!(!kin.add(pid, stat), "it is known");
        assert!(!kin.has(pid, Stat { start: stat.start + 1, ..stat }), "another of its number");
        while kin.all().len() < 2 {
            assert!(kin.refresh());
        }
        let mut killed = 0;
        kin.signal(table::KILL, |_| true, |_| killed += 1);
        assert_eq!(killed, 2);
        child.wait().unwrap();
        while !kin.is_empty() {
            assert!(kin.refresh());
        }
    }
}
