//! The descriptors of a job that the poll watches.

use std::os::fd::{AsRawFd as _, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::supervisor::pipes::{Pipe, Watched};
use crate::supervisor::shared::Shared;

/// What a descriptor of a job is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Pipe(Pipe),
    /// The socket to the guard.
    Control,
    /// The pidfd of the guard, or of the command where there is no guard.
    Exit,
    /// Whether the control group has processes.
    Population,
}

impl Part {
    const ALL: [Self; 7] = [
        Self::Pipe(Pipe::Stdout),
        Self::Pipe(Pipe::Stderr),
        Self::Pipe(Pipe::Progress),
        Self::Pipe(Pipe::Stdin),
        Self::Control,
        Self::Exit,
        Self::Population,
    ];

    /// The token of this part of the job in `slot`.
    pub(crate) fn token(self, slot: usize) -> Token {
        let part = Self::ALL.iter().position(|part| *part == self);
        Token(slot * Self::ALL.len() + part.expect("every part is in the list"))
    }

    /// The slot and the part that a token stands for.
    pub(crate) fn of(token: Token) -> (usize, Self) {
        let part = Self::ALL.get(token.0 % Self::ALL.len());
        (token.0 / Self::ALL.len(), *part.expect("the remainder is within the list"))
    }
}

/// Watches a descriptor; one that cannot be watched is held all the same, and false comes with it.
pub(crate) fn watch(fd: OwnedFd, registry: &Registry, token: Token) -> (Watched, bool) {
    let is_watched = registry
        .register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)
        .inspect_err(|error| tracing::warn!(%error, "a process has to be watched by asking"))
        .is_ok();
    (Watched::held(fd), is_watched)
}

/// Reaps our child behind a pidfd, if it has exited.
pub(crate) fn reap(exit: &mut Watched, pid: Pid, world: &mut Shared) -> bool {
    let Some(fd) = exit.fd() else { return true };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let is_reaped = !matches!(retry_on_intr(|| waitid(WaitId::PidFd(fd), options)), Ok(None));
    if is_reaped {
        exit.close(&world.registry);
        world.own_children.remove(&pid.as_raw_nonzero());
    }
    is_reaped
}
