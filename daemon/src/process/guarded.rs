//! A command behind a guard, and what is left of one whose guard was killed.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroI32;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, pidfd_send_signal, waitid};

use super::guard::Started;
use super::job::{Part, World, reap, watch};
use super::launch::Prepared;
use super::pipes::Watched;
use super::supervisor::Orphans;
use super::survey::Process;
use super::tree::{self, Blind, KILL, Stat};
use super::wire::{FromGuard, ToGuardSocket};

/// How often in a row nothing must be found of a job whose guard was killed: a process that forks
/// and exits can slip through one look.
const EMPTY_LOOKS: u32 = 2;

/// A command behind a guard.
pub(super) struct Guarded {
    pid: Pid,
    exit: Watched,
    socket: ToGuardSocket,
    leader: Option<Pid>,
    /// Whether the command exited and left processes behind.
    others: bool,
    state: State,
    /// Whether the kernel would not watch the guard for us, so that we have to ask.
    is_unwatched: bool,
    signalled: u32,
}

/// How far the guard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Guarding,
    /// It said that no process of the job is left, and is about to exit.
    Done,
    /// It exited after that.
    Over,
    /// It exited without that.
    Lost,
}

impl Guarded {
    /// Watches a guard.
    pub(super) fn new(started: Started, slot: usize, registry: &Registry) -> Self {
        let fd = started.socket.as_fd().as_raw_fd();
        let token = Part::Control.token(slot);
        let control = registry.register(&mut SourceFd(&fd), token, Interest::READABLE);
        let (exit, is_watched) = watch(started.pidfd, registry, Part::Exit.token(slot));
        Self {
            pid: started.pid,
            exit,
            socket: started.socket,
            leader: None,
            others: false,
            state: State::Guarding,
            is_unwatched: control.is_err() || !is_watched,
            signalled: 0,
        }
    }

    /// Hands the command over; a guard that does not take it is ended.
    pub(super) fn run(&mut self, prepared: &Prepared, theirs: &[OwnedFd; 4]) -> io::Result<()> {
        let sent = self.socket.run(prepared, theirs);
        if sent.is_err() {
            self.state = State::Done;
            self.signal(Signal::KILL);
        }
        sent
    }

    /// The guard's process.
    pub(super) const fn pid(&self) -> Pid {
        self.pid
    }

    /// The command's process, once it is known.
    pub(super) const fn leader(&self) -> Option<Pid> {
        self.leader
    }

    /// Whether its exit announces itself to nobody.
    pub(super) const fn is_unwatched(&self) -> bool {
        self.is_unwatched
    }

    /// Whether processes of the job outlive its command.
    pub(super) fn has_survivors(&self) -> bool {
        self.others && self.state == State::Guarding
    }

    /// Whether no process of the job is left, the guard included.
    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether the guard was killed.
    pub(super) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// The next thing the guard says, if it said anything.
    pub(super) fn hear(&mut self, registry: &Registry) -> Option<FromGuard> {
        let message = match self.socket.receive() {
            Ok(Some(message)) => message,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            // That it is dead is announced by its pidfd.
            Ok(None) | Err(_) => {
                let fd = self.socket.as_fd().as_raw_fd();
                let _ = registry.deregister(&mut SourceFd(&fd));
                return None;
            }
        };
        match message {
            FromGuard::Started { leader } => self.leader = Pid::from_raw(leader),
            FromGuard::Exited { others, .. } => self.others = others,
            FromGuard::Gone { signalled } => {
                self.signalled = signalled;
                self.state = match self.state {
                    State::Guarding | State::Done => State::Done,
                    State::Over | State::Lost => State::Over,
                };
            }
            FromGuard::Ready { .. } | FromGuard::Failed(_) => {}
        }
        Some(message)
    }

    /// Whether the guard has exited just now; what it said before is still to be heard.
    pub(super) fn look_for_exit(&mut self, world: &mut World) -> bool {
        let is_new = match self.state {
            State::Guarding | State::Done => reap(&mut self.exit, self.pid, world),
            State::Over | State::Lost => false,
        };
        if is_new {
            self.state = if self.state == State::Done { State::Over } else { State::Lost };
        }
        is_new
    }

    /// The live processes of the job: what is below the guard, without it.
    pub(super) fn processes(&self) -> Vec<Process> {
        let mut below = Vec::new();
        tree::walk(self.pid, |pid, _| below.push(pid));
        Process::of(below)
    }

    /// SIGTERM and SIGCONT to every process of the job.
    pub(super) fn terminate(&self) {
        self.order(self.socket.terminate());
    }

    /// SIGKILL to every process of the job, until none is left.
    pub(super) fn kill(&self) {
        self.order(self.socket.kill());
    }

    /// Somebody may have stopped the guard; then it must go on to hear the order.
    fn order(&self, sent: io::Result<()>) {
        if let Err(error) = sent {
            tracing::debug!(guard = %self.pid.as_raw_nonzero(), %error, "a guard does not hear");
        }
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(fd) = self.exit.fd() {
            let _ = pidfd_send_signal(fd, signal);
        }
    }

    /// How many processes were signalled, as far as the guard has said.
    pub(super) const fn signalled(&self) -> u32 {
        self.signalled
    }

    /// Gives back what the job held of the kernel; returns how many processes were signalled.
    pub(super) fn release(&mut self, registry: &Registry) -> u32 {
        let fd = self.socket.as_fd().as_raw_fd();
        let _ = registry.deregister(&mut SourceFd(&fd));
        self.exit.close(registry);
        self.signalled
    }
}

/// What is left of a job whose guard was killed.
///
/// Where orphans come to us, everything that did not start here is part of it. Elsewhere only those
/// can be found that stayed in the command's session.
pub(super) struct Lost {
    /// The command, which led that session.
    leader: Option<Pid>,
    empty_looks: u32,
    signalled: BTreeSet<NonZeroI32>,
}

impl Lost {
    /// Nothing has been looked for yet.
    pub(super) const fn new(leader: Option<Pid>) -> Self {
        Self { leader, empty_looks: 0, signalled: BTreeSet::new() }
    }

    /// How many processes were killed.
    pub(super) fn signalled(&self) -> u32 {
        u32::try_from(self.signalled.len()).unwrap_or(u32::MAX)
    }

    /// Kills what is left; true while something may be alive.
    pub(super) fn end(&mut self, world: &mut World) -> bool {
        let leader = self.leader;
        let (mut lost, mut is_blind) = (Vec::new(), false);
        if let Some(leader) = leader {
            let table = world.table();
            lost.extend(table.members(leader));
            is_blind = table.is_blind();
        }
        if world.orphans == Orphans::Adopt {
            match reap_orphans(world) {
                Ok(orphans) => lost.extend(orphans),
                Err(Blind) => is_blind = true,
            }
        }
        let me = getpid().as_raw_nonzero().get();
        for pid in lost.iter().copied() {
            let is_killed = tree::signal_if(pid, KILL, || {
                Stat::of(pid).is_some_and(|stat| {
                    stat.parent == me || leader.is_some_and(|leader| stat.belongs_to(leader))
                })
            });
            if is_killed {
                self.signalled.insert(pid.as_raw_nonzero());
            }
        }
        let is_empty = lost.is_empty() && !is_blind;
        self.empty_looks = if is_empty { self.empty_looks + 1 } else { 0 };
        self.empty_looks < EMPTY_LOOKS
    }
}

/// Reaps the children that came to us as orphans and have exited; returns those still alive.
pub(super) fn reap_orphans(world: &World) -> Result<Vec<Pid>, Blind> {
    let mut alive = tree::children(getpid())?;
    alive.retain(|pid| !world.own_children.contains(&pid.as_raw_nonzero()));
    alive.retain(|pid| {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        matches!(retry_on_intr(|| waitid(WaitId::Pid(*pid), options)), Ok(None))
    });
    Ok(alive)
}
