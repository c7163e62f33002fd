//! What is there before it is needed: a guard, or a control group.
//!
//! To become a guard takes a program longer than most commands take in all. So one does, and makes
//! copies of itself, which takes a tenth of that.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroI32;

use rustix::process::{Signal, pidfd_send_signal};

use super::cgroup::{Cgroup, Group};
use super::containment::Containment;
use super::guard::{Program, Started};

/// What guards are called in a process listing until they know their job.
const LABEL: &str = "spare";

/// At most one guard that guards nothing yet, and one that never will and is copied; or one empty
/// group. The numbers of the guards are among `own_children`, for they are nobody's orphans.
#[derive(Debug, Default)]
pub(super) struct Spare {
    original: Option<Started>,
    guard: Option<Started>,
    group: Option<Group>,
    /// Groups that were ever made.
    groups: u64,
    wanted: bool,
}

impl Spare {
    /// A group for a job: the spare one, or one that is made now.
    pub(super) fn take_group(&mut self, cgroup: &Cgroup) -> io::Result<Group> {
        self.wanted = true;
        // Somebody may have removed it.
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
    pub(super) fn take_guard(
        &mut self,
        program: &Program,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) -> io::Result<Started> {
        self.wanted = true;
        if let Some(guard) = self.guard.take_if(|guard| guard.is_alive()) {
            // Somebody may have stopped it.
            let _ = pidfd_send_signal(&guard.pidfd, Signal::CONT);
            return Ok(guard);
        }
        end(&mut self.guard, own_children);
        self.make_guard(program, own_children)
    }

    /// A copy of the original; where none can be had, the original.
    fn make_guard(
        &mut self,
        program: &Program,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) -> io::Result<Started> {
        if !self.original.as_ref().is_some_and(Started::is_alive) {
            end(&mut self.original, own_children);
            let original = program.start(LABEL)?;
            own_children.insert(original.pid.as_raw_nonzero());
            self.original = Some(original);
        }
        let copied = self.original.as_ref().map(Started::fork);
        match (copied, self.original.take()) {
            (Some(Ok(guard)), original) => {
                self.original = original;
                Ok(guard)
            }
            (Some(Err(error)), Some(original)) if error.kind() != io::ErrorKind::TimedOut => {
                tracing::debug!(%error, "guards are not copied");
                Ok(original)
            }
            (_, mut original) => {
                end(&mut original, own_children);
                program.start(LABEL)
            }
        }
    }

    /// Makes another in the place of one that was taken.
    pub(super) fn restock(
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
    pub(super) const fn want(&mut self) {
        self.wanted = true;
    }

    /// Ends the guards and waits until they are gone.
    pub(super) fn end(&mut self, own_children: &mut BTreeSet<NonZeroI32>) {
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
