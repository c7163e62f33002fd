//! Pre-started guards and pre-created control groups.
//!
//! To become a guard takes a program longer than most commands take in all. So one does, and makes
//! copies of itself, which takes a tenth of that.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroI32;

use rustix::process::{Signal, pidfd_send_signal};

use crate::cgroup::{Cgroup, Group};
use crate::containment::Containment;
use crate::guard::{Program, Started};
use crate::isolation::Isolation;

/// What guards are called in a process listing until they know their job.
const LABEL: &str = "spare";

/// After so many failures in a row each guard is started by itself.
const FAILURES_MAX: u32 = 3;

/// At most one guard that guards nothing yet, and one that never will and is copied; or one empty
/// group. The numbers of the guards are among `own_children`, for they are nobody's orphans.
#[derive(Debug, Default)]
pub(crate) struct SparePool {
    original: Option<Started>,
    /// How often in a row it was not copied.
    failures: u32,
    guard: Option<Started>,
    group: Option<Group>,
    /// Groups that were ever made.
    groups: u64,
    wanted: bool,
}

impl SparePool {
    /// A group for a job: the spare one, or one that is made now.
    pub(crate) fn take_group(&mut self, cgroup: &Cgroup) -> io::Result<Group> {
        self.wanted = true;
        // It may have been removed.
        match self.group.take_if(|group| matches!(group.is_populated(), Ok(false))) {
            Some(group) => Ok(group),
            None => self.make_group(cgroup),
        }
    }

    fn make_group(&mut self, cgroup: &Cgroup) -> io::Result<Group> {
        self.groups += 1;
        cgroup.job(self.groups)
    }

    /// A guard: the spare one, or one that is started now.
    pub(crate) fn take_guard(
        &mut self,
        program: &Program,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) -> io::Result<Started> {
        self.wanted = true;
        if let Some(guard) = self.guard.take_if(|guard| guard.is_alive()) {
            // It may have been stopped.
            let _ = pidfd_send_signal(&guard.pidfd, Signal::CONT);
            return Ok(guard);
        }
        end(&mut self.guard, own_children);
        self.make_guard(program, own_children)
    }

    /// A guard in a pid namespace of its own. There is no spare one: it would keep mounts busy.
    pub(crate) fn take_isolated(
        &mut self,
        program: &Program,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) -> io::Result<Started> {
        let original = match self.original.take_if(|original| original.is_alive()) {
            Some(original) => original,
            None => {
                end(&mut self.original, own_children);
                let original = program.start(LABEL)?;
                own_children.insert(original.pid.as_raw_nonzero());
                original
            }
        };
        let original = self.original.insert(original);
        let guard = original.fork(Isolation::Pid);
        if guard.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Unsupported) {
            end(&mut self.original, own_children);
        }
        guard
    }

    /// A copy of the original; where none can be had, a guard that is started like that.
    fn make_guard(
        &mut self,
        program: &Program,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) -> io::Result<Started> {
        if self.failures < FAILURES_MAX {
            match self.copy(program, own_children) {
                Ok(guard) => {
                    self.failures = 0;
                    return Ok(guard);
                }
                Err(error) => {
                    tracing::debug!(%error, "a guard is not copied");
                    self.failures += 1;
                    end(&mut self.original, own_children);
                }
            }
        }
        program.start(LABEL)
    }

    fn copy(
        &mut self,
        program: &Program,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) -> io::Result<Started> {
        if let Some(original) = &self.original {
            return original.fork(Isolation::None);
        }
        let original = self.original.insert(program.start(LABEL)?);
        own_children.insert(original.pid.as_raw_nonzero());
        original.fork(Isolation::None)
    }

    /// Makes another in the place of one that was taken.
    pub(crate) fn refill(
        &mut self,
        containment: &Containment,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) {
        if !std::mem::take(&mut self.wanted) {
            return;
        }
        let made = match containment {
            Containment::Guard(program) if self.guard.is_none() => {
                self.make_guard(program, own_children).map(|guard| {
                    own_children.insert(guard.pid.as_raw_nonzero());
                    self.guard = Some(guard);
                })
            }
            Containment::Cgroup { group, .. } if self.group.is_none() => {
                self.make_group(group).map(|group| self.group = Some(group))
            }
            Containment::Guard(_) | Containment::Cgroup { .. } | Containment::Groups => Ok(()),
        };
        // The next command tries again, and says why if it has to.
        if let Err(error) = made {
            tracing::debug!(%error, "nothing spare for the next command");
        }
    }

    /// Has one made at the next chance.
    pub(crate) const fn want(&mut self) {
        self.wanted = true;
    }

    /// Ends the guards and waits until they are gone.
    pub(crate) fn end(&mut self, own_children: &mut BTreeSet<NonZeroI32>) {
        end(&mut self.guard, own_children);
        end(&mut self.original, own_children);
    }
}

fn end(guard: &mut Option<Started>, own_children: &mut BTreeSet<NonZeroI32>) {
    if let Some(mut guard) = guard.take() {
        guard.end();
        own_children.remove(&guard.pid.as_raw_nonzero());
    }
}
