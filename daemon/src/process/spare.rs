//! What is there before it is needed: a guard, whose start takes longer than most commands, or a
//! control group.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroI32;

use rustix::process::{Signal, pidfd_send_signal};

use super::cgroup::{Cgroup, Group};
use super::containment::Containment;
use super::guard::{Program, Started};

/// What guards are called in a process listing until they know their job.
const LABEL: &str = "spare";

/// At most one guard that guards nothing yet, or one empty group. The number of the guard is among
/// `own_children`, for it is nobody's orphan.
#[derive(Debug, Default)]
pub(super) struct Spare {
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
        self.end(own_children);
        program.start(LABEL)
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
                program.start(LABEL).map(|guard| {
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

    /// Ends the guard and waits until it is gone.
    pub(super) fn end(&mut self, own_children: &mut BTreeSet<NonZeroI32>) {
        if let Some(mut guard) = self.guard.take() {
            guard.end();
            own_children.remove(&guard.pid.as_raw_nonzero());
        }
    }
}
