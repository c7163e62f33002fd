//! A command behind a guard, and cleanup after a killed guard.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroI32;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry};
use rustix::process::{Pid, Signal, getpid, pidfd_send_signal};

use crate::guard::Started;
use crate::guard::protocol::{FromGuard, Lease, ToGuardSocket};
use crate::guard::roster::Entry;
use crate::isolation::Isolation;
use crate::launch::Prepared;
use crate::proc::lineage::Lineage;
use crate::proc::processes::Process;
use crate::proc::sweep::Sweep;
use crate::proc::table::{self, KILL, Stat};
use crate::ready::ready;
use crate::supervisor::orphans::Orphans;
use crate::supervisor::part::{Part, reap, watch};
use crate::supervisor::pipes::Watched;
use crate::supervisor::shared::Shared;
use crate::supervisor::strays::Members;

/// Consecutive empty scans required of the session of a job whose guard was killed.
const EMPTY_LOOKS: u32 = 2;
/// Time for a guard to end its job before it is replaced.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Number of times a guard that has to end its job must be seen stopped before it is replaced: the
/// first may precede its SIGCONT.
const HELD_LOOKS: u32 = 5;

/// A command behind a guard.
pub(crate) struct Guarded {
    pid: Pid,
    exit: Watched,
    socket: ToGuardSocket,
    leader: Option<Leader>,
    /// Whether the command exited and left processes behind.
    others: bool,
    state: State,
    /// Whether the guard's exit cannot be watched with epoll and must be polled.
    is_unwatched: bool,
    /// Whether it is the first process of a namespace, so that no process of the job outlives it.
    isolation: Isolation,
    /// Time of the order to end its job.
    killing: Option<Instant>,
    /// Number of times it was seen stopped since then.
    held_looks: u32,
    /// Sweep from outside, for a guard that does not end its job in time and whose death would lose
    /// the job.
    sweep: Option<Sweep>,
    /// Its line in the roster.
    entry: Option<Entry>,
    /// Whether the supervisor killed it because it did not end its job.
    is_replaced: bool,
    signalled: u32,
}

/// The command behind a guard. Its id may be reused once it is reaped, which is not done here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leader {
    pid: Pid,
    /// Its start time.
    start: u64,
}

impl Leader {
    fn of(pid: Pid) -> Option<Self> {
        Some(Self { pid, start: Stat::of(pid)?.start })
    }

    /// Whether a process is in the session or the process group of the command, and neither older
    /// than it nor of another process that has got its id.
    fn leads(self, pid: Pid) -> bool {
        let is_own = |stat: Stat| stat.belongs_to(self.pid) && stat.start >= self.start;
        let is_reused = Stat::of(self.pid).is_some_and(|stat| stat.start != self.start);
        !is_reused && Stat::of(pid).is_some_and(is_own)
    }
}

/// State of the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Guarding,
    /// It reported that no process of the job is left, and is about to exit.
    Done,
    /// It exited after that report.
    Over,
    /// It exited without that report.
    Lost,
}

impl Guarded {
    /// Watches a guard.
    pub(crate) fn new(started: Started, slot: usize, registry: &Registry) -> Self {
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
            isolation: started.isolation,
            killing: None,
            held_looks: 0,
            sweep: None,
            entry: started.entry,
            is_replaced: false,
            signalled: 0,
        }
    }

    /// Hands the command over; a guard that rejects it is ended.
    pub(crate) fn run(&mut self, prepared: &Prepared, theirs: &[OwnedFd; 4]) -> io::Result<()> {
        let sent = self.socket.run(prepared, theirs);
        if sent.is_err() {
            self.state = State::Done;
            self.signal(Signal::KILL);
        }
        sent
    }

    /// Whether a process descends from the guard, whose id is unique until it is reaped.
    pub(crate) fn is_above(&self, lineage: &Lineage) -> bool {
        self.exit.fd().is_some() && lineage.is_below(self.pid)
    }

    /// The guard's process.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// The command's process, once known.
    pub(crate) const fn leader(&self) -> Option<Leader> {
        self.leader
    }

    /// Whether it must be polled: its exit cannot be watched, or it may have to be replaced.
    pub(crate) const fn needs_tick(&self) -> bool {
        self.is_unwatched || self.killing.is_some()
    }

    /// The rest of the job after the guard's death.
    pub(crate) fn lose(&mut self, leader: Option<Leader>) -> Lost {
        Lost::new(leader, self.entry.take())
    }

    /// Whether the guard was killed, by anything, before it had ended its job.
    pub(crate) const fn was_killed(&self) -> bool {
        self.is_replaced
    }

    /// Whether processes of the job outlive its command.
    pub(crate) fn has_survivors(&self) -> bool {
        self.others && self.state == State::Guarding
    }

    /// Whether no process of the job is left, including the guard.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Whether the guard was killed.
    pub(crate) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// The next message of the guard, if any.
    pub(crate) fn hear(&mut self, registry: &Registry) -> Option<FromGuard> {
        let message = match self.socket.receive() {
            Ok(Some(message)) => message,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            // Its death is announced by its pidfd.
            Ok(None) | Err(_) => {
                let fd = self.socket.as_fd().as_raw_fd();
                let _ = registry.deregister(&mut SourceFd(&fd));
                return None;
            }
        };
        match message {
            // In a namespace of its own its process id has another value outside.
            FromGuard::Started { leader } if self.isolation == Isolation::None => {
                self.leader = Pid::from_raw(leader).and_then(Leader::of);
                if let (Some(entry), Some(leader)) = (&self.entry, self.leader) {
                    entry.lead(leader.pid);
                }
            }
            FromGuard::Exited { others, .. } => self.others = others,
            FromGuard::Gone { signalled } => {
                self.signalled = signalled;
                // It only has to exit now.
                self.killing.get_or_insert_with(Instant::now);
                self.state = match self.state {
                    State::Guarding | State::Done => State::Done,
                    State::Over | State::Lost => State::Over,
                };
            }
            FromGuard::Ready { .. } | FromGuard::Started { .. } | FromGuard::Failed(_) => {}
        }
        Some(message)
    }

    /// Whether the guard has just exited; its earlier messages are still unread.
    pub(crate) fn look_for_exit(&mut self, world: &mut Shared) -> bool {
        let is_new = match self.state {
            State::Guarding | State::Done => {
                reap(&mut self.exit, self.pid, world) || self.is_dead_and_traced(world)
            }
            State::Over | State::Lost => false,
        };
        if is_new {
            // The kernel delays the exit of the first process of a namespace until all others have
            // exited.
            let is_done = self.state == State::Done;
            let is_over = is_done || self.isolation == Isolation::Pid;
            self.state = if is_over { State::Over } else { State::Lost };
            self.is_replaced |= !is_done;
            self.killing = None;
        }
        is_new
    }

    /// Whether the guard is dead but held by a tracer. It is reaped as an orphan once the tracer
    /// has ended.
    fn is_dead_and_traced(&mut self, world: &mut Shared) -> bool {
        let is_dead = self.exit.fd().is_some_and(|fd| ready(fd, Duration::ZERO).unwrap_or(false));
        if is_dead {
            self.exit.close(&world.registry);
            world.own_children.remove(&self.pid.as_raw_nonzero());
        }
        is_dead
    }

    /// Replaces a guard that does not end its job in time.
    pub(crate) fn tick(&mut self, world: &Shared) {
        let Some(since) = self.killing else { return };
        if Stat::is_held(self.pid) {
            self.held_looks += 1;
            self.signal(Signal::CONT);
        }
        if self.sweep.is_none() && self.held_looks < HELD_LOOKS && since.elapsed() < ENDS_WITHIN {
            return;
        }
        if self.state == State::Done {
            self.signal(Signal::KILL);
            return;
        }
        let is_safe = world.orphans == Orphans::Adopt || self.isolation == Isolation::Pid;
        if !self.is_replaced && (is_safe || self.sweep_below()) {
            tracing::warn!(
                guard = %self.pid.as_raw_nonzero(),
                "a guard did not end its job in time; killing it and ending the job directly"
            );
            self.is_replaced = true;
            self.signal(Signal::KILL);
        }
    }

    /// Ends the processes below the guard; true if none is left. Unless this process adopts
    /// orphans, the guard must stay alive meanwhile, even stopped, since the orphans are reparented
    /// to it.
    fn sweep_below(&mut self) -> bool {
        let pid = self.pid;
        let sweep = self.sweep.get_or_insert_with(|| Sweep::new(pid));
        let is_empty = sweep.turn(&BTreeSet::new());
        self.signalled = sweep.signalled();
        if is_empty {
            self.state = State::Done;
        }
        is_empty
    }

    /// Every visible process of the job.
    pub(crate) fn members(&self) -> Members {
        let mut found = Vec::new();
        // One walk may miss a process that moves meanwhile.
        let is_complete = (0..2).all(|_| table::walk(self.pid, |pid, _| found.push(pid)));
        Members::new(found, self.leader.map(|leader| leader.pid), is_complete)
    }

    /// CPU time of all processes of the job so far: the guard reaps those that lost their parent.
    pub(crate) fn cpu(&self, members: &Members, world: &Shared) -> Duration {
        let reaped = Stat::of(self.pid).map_or(0, |stat| stat.reaped_cpu);
        world.boot_clock.to_duration(members.cpu().saturating_add(reaped))
    }

    /// The live processes of the job: the descendants of the guard.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let mut below = Vec::new();
        table::walk(self.pid, |pid, _| below.push(pid));
        Process::of(below)
    }

    /// Sets a deadline for the job.
    pub(crate) fn lease(&self, until: Option<Duration>) {
        if let Err(error) = self.socket.lease(&Lease { until, groups: Vec::new() }) {
            tracing::debug!(guard = %self.pid.as_raw_nonzero(), %error, "cannot send a deadline to a guard");
        }
    }

    /// Sends SIGTERM and SIGCONT to every process of the job.
    pub(crate) fn terminate(&self) {
        self.order(self.socket.terminate());
    }

    /// Sends SIGKILL to every process of the job until none is left.
    pub(crate) fn kill(&mut self) {
        self.killing.get_or_insert_with(Instant::now);
        self.order(self.socket.kill());
    }

    /// A stopped guard must be continued to receive the order.
    fn order(&self, sent: io::Result<()>) {
        if let Err(error) = sent {
            tracing::debug!(guard = %self.pid.as_raw_nonzero(), %error, "cannot send an order to a guard");
        }
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(fd) = self.exit.fd() {
            let _ = pidfd_send_signal(fd, signal);
        }
    }

    /// Number of signalled processes reported by the guard.
    pub(crate) const fn signalled(&self) -> u32 {
        self.signalled
    }

    /// Releases the kernel resources of the job; returns the number of signalled processes.
    pub(crate) fn release(&mut self, registry: &Registry) -> u32 {
        let fd = self.socket.as_fd().as_raw_fd();
        let _ = registry.deregister(&mut SourceFd(&fd));
        self.exit.close(registry);
        self.signalled
    }
}

/// The rest of a job whose guard was killed.
///
/// If this process adopts orphans, all children it did not start belong to the job. Otherwise only
/// processes in the command's session can be found.
pub(crate) struct Lost {
    /// The command, which led that session.
    leader: Option<Leader>,
    empty_looks: u32,
    signalled: BTreeSet<NonZeroI32>,
    sweep: Sweep,
    /// Roster line of the guard, which names the command.
    _entry: Option<Entry>,
}

impl Lost {
    /// Starts with no scan done.
    fn new(leader: Option<Leader>, entry: Option<Entry>) -> Self {
        let (signalled, sweep) = (BTreeSet::new(), Sweep::new(getpid()));
        Self { leader, empty_looks: 0, signalled, sweep, _entry: entry }
    }

    /// Whether a process may belong to the job.
    pub(crate) fn may_hold(&self, lineage: &Lineage) -> bool {
        self.leader.is_some_and(|leader| lineage.any(|pid, _| leader.leads(pid)))
    }

    /// Number of killed processes.
    pub(crate) fn signalled(&self) -> u32 {
        let members = u32::try_from(self.signalled.len()).unwrap_or(u32::MAX);
        members.saturating_add(self.sweep.signalled())
    }

    /// Kills remaining processes; true while some may be alive.
    pub(crate) fn end(&mut self, world: &mut Shared) -> bool {
        let is_ended = self.end_session(world);
        match world.orphans {
            // Even if the session is empty: its last process may have left it.
            Orphans::Adopt => !(self.sweep.turn(&world.own_children) && is_ended),
            Orphans::Leave => !is_ended,
        }
    }

    /// Kills the members of the command's session; true if there are none.
    fn end_session(&mut self, world: &mut Shared) -> bool {
        let Some(leader) = self.leader else { return true };
        let table = world.table();
        let (mut members, is_blind) = (table.members(leader.pid), table.is_blind());
        members.retain(|pid| leader.leads(*pid));
        for pid in members.iter().copied() {
            if table::signal_if(pid, KILL, || leader.leads(pid)) && world.orphans == Orphans::Leave
            {
                self.signalled.insert(pid.as_raw_nonzero());
            }
        }
        let is_empty = members.is_empty() && !is_blind;
        self.empty_looks = if is_empty { self.empty_looks + 1 } else { 0 };
        self.empty_looks >= EMPTY_LOOKS
    }
}
