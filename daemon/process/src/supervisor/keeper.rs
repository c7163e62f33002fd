//! The keeper, from the side of the supervisor: started, watched, and replaced when it dies.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroI32;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::cgroup;
use crate::containment::Containment;
use crate::guard::protocol::Lease;
use crate::guard::{Program, Started};
use crate::ready::ready;

/// Pause before replacing a keeper that died early. It doubles with each early death, so that a
/// process that kills keepers does not cause a loop of restarts.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest such pause, during which tools would survive a death of the daemon.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Lifetime after which a keeper is replaced without a pause.
const LIVES: Duration = Duration::from_secs(5);

/// The supervisor's handle of its keeper, which is restarted whenever it dies.
#[derive(Debug)]
pub(crate) struct Keeper {
    running: Option<(Started, Instant)>,
    /// Time to start the next one, if none runs.
    due: Option<Instant>,
    pause: Duration,
    /// The deadline that each keeper is told.
    lease: Lease,
}

impl Default for Keeper {
    fn default() -> Self {
        Self { running: None, due: None, pause: PAUSE_MIN, lease: Lease::default() }
    }
}

impl Keeper {
    /// Starts the keeper if control groups are used; `roll` names additional processes.
    ///
    /// # Errors
    ///
    /// If it cannot be started or watched.
    pub(crate) fn start(
        &mut self,
        containment: &Containment,
        roll: Option<BorrowedFd<'_>>,
        registry: &Registry,
        token: Token,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) -> io::Result<()> {
        let Containment::Cgroup { group, keeper: Some(program) } = containment else {
            return Ok(());
        };
        let mut keeper = start(program, group, roll)?;
        let fd = keeper.pidfd.as_raw_fd();
        if let Err(error) = registry.register(&mut SourceFd(&fd), token, Interest::READABLE) {
            keeper.end();
            return Err(error);
        }
        own_children.insert(keeper.pid.as_raw_nonzero());
        self.running = Some((keeper, Instant::now()));
        if self.lease != Lease::default() {
            self.tell_lease();
        }
        Ok(())
    }

    /// Sets a deadline for the groups of some jobs.
    pub(crate) fn lease(&mut self, lease: Lease) {
        if self.lease != lease {
            self.lease = lease;
            self.tell_lease();
        }
    }

    fn tell_lease(&self) {
        if let Some((keeper, _)) = &self.running
            && let Err(error) = keeper.socket.lease(&self.lease)
        {
            tracing::warn!(%error, "cannot send a deadline to the keeper");
        }
    }

    /// Handles the keeper's exit and schedules its replacement: at once, or after a pause if it
    /// died early.
    pub(crate) fn has_exited(
        &mut self,
        registry: &Registry,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) {
        let Some((keeper, since)) = self.running.take() else { return };
        let _ = registry.deregister(&mut SourceFd(&keeper.pidfd.as_raw_fd()));
        reap(&keeper, own_children);
        let now = Instant::now();
        if since.elapsed() < LIVES {
            self.due = Some(now + self.pause);
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        } else {
            self.pause = PAUSE_MIN;
            self.due = Some(now);
        }
        tracing::warn!(
            pid = %keeper.pid.as_raw_nonzero(),
            "the keeper was killed; until it is replaced, tools would outlive this process"
        );
    }

    /// Time until a keeper is to be started.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Starts a keeper that is due.
    pub(crate) fn tick(
        &mut self,
        containment: &Containment,
        roll: Option<BorrowedFd<'_>>,
        registry: &Registry,
        token: Token,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) {
        if self.due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        self.due = None;
        match self.start(containment, roll, registry, token, own_children) {
            Ok(()) => tracing::info!("replaced the keeper"),
            Err(error) => {
                tracing::error!(%error, "cannot replace the keeper; tools may outlive this process");
                self.due = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// Ends the keeper; false if it does not exit in time.
    pub(crate) fn end(
        &mut self,
        within: Duration,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) -> bool {
        self.due = None;
        let Some((keeper, _)) = self.running.take() else { return true };
        // A stopped keeper would not read the end of its socket.
        let _ = rustix::process::pidfd_send_signal(&keeper.pidfd, rustix::process::Signal::CONT);
        let Started { pid, pidfd, socket, .. } = keeper;
        // End of file ends the keeper.
        drop(socket);
        let has_exited = ready(pidfd.as_fd(), within).unwrap_or(false);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(pidfd.as_fd()), options);
        own_children.remove(&pid.as_raw_nonzero());
        has_exited
    }
}

fn reap(keeper: &Started, own_children: &mut BTreeSet<NonZeroI32>) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let _ = waitid(WaitId::PidFd(keeper.pidfd.as_fd()), options);
    own_children.remove(&keeper.pid.as_raw_nonzero());
}

fn start(
    program: &Program,
    group: &cgroup::Cgroup,
    roll: Option<BorrowedFd<'_>>,
) -> io::Result<Started> {
    let keeper = program.start("keeper")?;
    keeper.socket.keep(group.path(), roll)?;
    Ok(keeper)
}
