//! A guard that is there before it is needed: its start takes longer than most commands.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroI32;

use rustix::process::{Signal, pidfd_send_signal};

use super::guard::{Program, Started};

/// What guards are called in a process listing until they know their job.
const LABEL: &str = "spare";

/// At most one guard that guards nothing yet. Its number is among `own_children`, for it is nobody's
/// orphan.
#[derive(Debug, Default)]
pub(super) struct Spare {
    guard: Option<Started>,
    wanted: bool,
}

impl Spare {
    /// A guard: the spare one, or one that is started now.
    pub(super) fn take(
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

    /// Starts another in the place of one that was taken.
    pub(super) fn restock(&mut self, program: &Program, own_children: &mut BTreeSet<NonZeroI32>) {
        if !std::mem::take(&mut self.wanted) || self.guard.is_some() {
            return;
        }
        match program.start(LABEL) {
            Ok(guard) => {
                own_children.insert(guard.pid.as_raw_nonzero());
                self.guard = Some(guard);
            }
            // The next command tries again, and says why if it has to.
            Err(error) => tracing::debug!(%error, "no spare guard"),
        }
    }

    /// Has one started at the next chance.
    pub(super) const fn want(&mut self) {
        self.wanted = true;
    }

    /// Ends it and waits until it is gone.
    pub(super) fn end(&mut self, own_children: &mut BTreeSet<NonZeroI32>) {
        if let Some(mut guard) = self.guard.take() {
            guard.end();
            own_children.remove(&guard.pid.as_raw_nonzero());
        }
    }
}
