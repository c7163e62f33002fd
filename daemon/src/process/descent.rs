//! Descent: processes that are followed from parent to child, wherever they move.
//!
//! A process can leave its control group, its session and its process group, and it can lose its
//! parent. It cannot change its number or the moment it started. So a process that was found once
//! as a descendant of a job is known for good.

use std::collections::BTreeMap;
use std::num::NonZeroI32;

use rustix::process::{Pid, Signal};

use super::tree::{self, Stat};

/// Processes known by descent, each by its number and the moment it started.
#[derive(Debug, Default)]
pub(super) struct Followed {
    known: BTreeMap<NonZeroI32, u64>,
}

impl Followed {
    /// Whether none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a process is known; `stat` says when it started.
    pub(super) fn has(&self, pid: Pid, stat: Stat) -> bool {
        self.known.get(&pid.as_raw_nonzero()) == Some(&stat.start)
    }

    /// Adds a process, unless it is dead; true when it was not known before.
    pub(super) fn add(&mut self, pid: Pid, stat: Stat) -> bool {
        let is_new = !stat.is_dead && !self.has(pid, stat);
        if is_new {
            self.known.insert(pid.as_raw_nonzero(), stat.start);
        }
        is_new
    }

    /// Adds the live descendants of a process that `is_wanted` accepts; those of a process that is
    /// not wanted are looked at all the same. False when some could not be looked at.
    pub(super) fn add_below(
        &mut self,
        root: Pid,
        mut is_wanted: impl FnMut(Pid, Stat) -> bool,
    ) -> bool {
        tree::walk(root, |pid, parent| {
            let parent = parent.as_raw_nonzero().get();
            if let Some(stat) = Stat::of(pid)
                && stat.parent == parent
                && is_wanted(pid, stat)
            {
                self.add(pid, stat);
            }
        })
    }

    /// Adds the live descendants of all that are known, and forgets those that are dead. False when
    /// some could not be looked at.
    pub(super) fn refresh(&mut self) -> bool {
        let mut is_complete = true;
        for (pid, start) in self.all() {
            // Another process may have its number by now.
            if !Stat::is_gone(pid, start) {
                is_complete &= self.add_below(pid, |_, _| true);
            }
        }
        self.known.retain(|pid, start| {
            Pid::from_raw(pid.get()).is_some_and(|pid| !Stat::is_gone(pid, *start))
        });
        is_complete
    }

    /// Sends signals to each of them; calls `signalled` for those that took one.
    pub(super) fn signal(&self, signals: &[Signal], mut signalled: impl FnMut(Pid)) {
        for (pid, start) in self.all() {
            let is_same = || Stat::of(pid).is_some_and(|s| !s.is_dead && s.start == start);
            if tree::signal_if(pid, signals, is_same) {
                signalled(pid);
            }
        }
    }

    /// Each process and when it started.
    pub(super) fn all(&self) -> Vec<(Pid, u64)> {
        let pid = |raw: NonZeroI32| Pid::from_raw(raw.get());
        self.known.iter().filter_map(|(raw, start)| Some((pid(*raw)?, *start))).collect()
    }

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}
