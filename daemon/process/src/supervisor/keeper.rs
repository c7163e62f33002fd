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
use crate::guard::{Program, Started};
use crate::ready::ready;

/// The pause before a keeper is replaced that did not live long. It doubles with each that dies
/// early, so that a process that kills keepers does not make us start programs all the time.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest such pause, in which a death of the daemon would leave the tools running.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A keeper that lived this long is replaced without a pause.
const LIVES: Duration = Duration::from_secs(5);

/// The supervisor's side of its keeper, which is replaced whenever it dies.
#[derive(Debug)]
pub(crate) struct Keeper {
    running: Option<(Started, Instant)>,
    /// When the next one is started, if none runs.
    due: Option<Instant>,
    pause: Duration,
}

impl Default for Keeper {
    fn default() -> Self {
        Self { running: None, due: None, pause: PAUSE_MIN }
    }
}

impl Keeper {
    /// Starts the keeper, where there is something for it to keep; `roll` names processes besides
    /// those of the control groups.
    ///
    /// # Errors
    ///
    /// When it cannot be started or watched.
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
        Ok(())
    }

    /// Takes in that the keeper has exited, and has another started: at once, or after a pause if it
    /// did not live long.
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
            "the keeper was killed; tools would outlive this process until there is another"
        );
    }

    /// How long the supervisor may sleep before a keeper is to be started.
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
            Ok(()) => tracing::info!("there is a new keeper"),
            Err(error) => {
                tracing::error!(%error, "no new keeper; tools may outlive this process");
                self.due = Some(Instant::now() + self.pause);
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }

    /// Ends the keeper, which has nothing to keep any more; false when it does not exit in time.
    pub(crate) fn end(
        &mut self,
        within: Duration,
        own_children: &mut BTreeSet<NonZeroI32>,
    ) -> bool {
        self.due = None;
        let Some((keeper, _)) = self.running.take() else { return true };
        // A stopped keeper could not see the end of its socket, and has nothing to do but to exit.
        let _ = rustix::process::pidfd_send_signal(&keeper.pidfd, rustix::process::Signal::CONT);
        let Started { pid, pidfd, socket, .. } = keeper;
        // The end of its socket ends the keeper.
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
