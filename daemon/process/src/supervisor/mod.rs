//! The supervisor: one thread that starts, watches and ends every command of a program.
//!
//! It blocks only in its poll, and has no deadline except that of its own shutdown. It never reaps
//! children that it did not start: their statuses belong to other parts of the program.

mod direct;
mod event_loop;
mod guarded;
mod job;
mod orphans;
mod pipes;
pub(crate) mod report;
mod shared;
mod spares;
mod uid_lookup;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use mio::{Poll, Waker};
use rustix::process::{getpid, set_child_subreaper};

use crate::account::Account;
use crate::cgroup::families::{self, Families, OrphanOrigin};
use crate::cgroup::roll::Roll;
use crate::containment::Containment;
use crate::guard::Program;
use crate::launch::environment::inherited;
use crate::launch::limits;
use crate::supervisor::event_loop::{CHILDREN, CLEAN_UP_WITHIN, SCRATCH_BYTES, State, WAKER};
use crate::supervisor::job::Shared;
use crate::supervisor::orphans::ChildExits;
use crate::supervisor::report::Order;
use crate::supervisor::report::Report;
use crate::supervisor::spares::SparePool;
use crate::sys;

/// Time that a dropped supervisor waits for killed processes.
const DROP_WITHIN: Duration = Duration::from_secs(5);
/// Additional time for the thread to report before it counts as blocked.
const SLACK: Duration = Duration::from_millis(500);
/// Longest shutdown time: larger values overflow the clock.
const WITHIN_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Treatment of orphans that are reparented to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orphans {
    /// Ignored. For a program that has children of its own.
    #[default]
    Leave,
    /// Every child of this process that the supervisor did not start is an orphan of one of its
    /// jobs: it is reaped, and killed when its job ends. Makes this process a child subreaper when
    /// control groups or guards are used, and handles `SIGCHLD`. Only for a program that starts no
    /// other processes.
    Adopt,
}

/// Runs commands on one thread of its own. See the [crate](crate) for what it promises.
///
/// Dropping it kills whatever it runs and waits, at most five seconds, until that is gone.
#[derive(Debug)]
pub struct Supervisor {
    mailbox: Mailbox,
    thread: Option<Thread>,
}

/// Sender of messages to the supervisor's thread.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    messages: Sender<Message>,
    waker: Arc<Waker>,
}

impl Mailbox {
    /// Sends a message without blocking.
    pub(crate) fn tell(&self, message: Message) -> Result<(), SupervisorGone> {
        self.messages.send(message).map_err(|_| SupervisorGone)?;
        self.waker.wake().map_err(|_| SupervisorGone)
    }
}

/// The supervisor's thread, and its final report whether it left no process.
#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    is_clean: Receiver<bool>,
}

/// The supervisor's thread has ended; the order was not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SupervisorGone;

impl fmt::Display for SupervisorGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process supervisor has ended; commands can no longer be run")
    }
}

impl Error for SupervisorGone {}

/// A message to the thread.
pub(crate) enum Message {
    Order(Order),
    /// Result of a user lookup that launches wait for.
    Account(u32, Result<Account, String>),
    /// A question whether the thread still turns: called in its next turn.
    Probe(Box<dyn FnOnce() + Send>),
    /// Kill everything and end, by this time.
    Stop(Instant),
}

impl Supervisor {
    /// Starts a supervisor.
    ///
    /// `report` is called on the supervisor's thread; it must not block. The environment of this
    /// process is read now; a launch says what it [inherits](crate::launch::environment::Inherit) of it. What speaks to
    /// this process alone nobody does: `NOTIFY_SOCKET`, `WATCHDOG_*`, `LISTEN_*` and names of ours.
    ///
    /// # Errors
    ///
    /// When the thread, its poll or the keeper cannot be made.
    pub fn start(
        containment: Containment,
        orphans: Orphans,
        report: Box<dyn FnMut(Report) + Send>,
    ) -> io::Result<Self> {
        if let Some(weakness) = containment.weakness() {
            let remedy = Containment::remedy(Program::this().is_some());
            tracing::warn!(%containment, "processes are not fully contained: {weakness}: {remedy}");
        } else {
            tracing::info!(%containment, "processes are contained");
        }
        let adopts = orphans == Orphans::Adopt;
        if adopts && !matches!(containment, Containment::Groups) {
            set_child_subreaper(Some(getpid()))?;
        }
        let families = families(&containment, adopts)?;
        limits::note_original();
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (messages, inbox) = unbounded();
        let mailbox = Mailbox { messages, waker };
        let world = Shared {
            registry: poll.registry().try_clone()?,
            containment,
            orphans,
            inherited: inherited(),
            null: File::open("/dev/null")?,
            scratch: vec![0; SCRATCH_BYTES],
            report,
            spare: SparePool::default(),
            families,
            own_children: BTreeSet::new(),
            emptied: Vec::new(),
            removals: Vec::new(),
            table: None,
        };
        let child_exits = match orphans {
            Orphans::Adopt => Some(ChildExits::announce(poll.registry(), CHILDREN)?),
            Orphans::Leave => None,
        };
        if sys::ignores_child_exits() {
            tracing::warn!(
                "SIGCHLD is ignored in this process: exit codes of commands are lost; call \
                 ceased_process::reset_signals() first in main"
            );
        }
        let mut state = State::new(poll, inbox, mailbox.clone(), world, child_exits);
        state.start_keeper()?;
        state.world.spare.want();
        state.world.refill();
        let (ended, is_clean) = bounded(1);
        let handle = thread::Builder::new().name("ceased-process".into()).spawn(move || {
            // Signals are handled by threads of the embedding program; a broken pipe to a tool is
            // reported as an error code.
            sys::block_signals();
            let _ = ended.send(state.run());
        })?;
        Ok(Self { mailbox, thread: Some(Thread { handle, is_clean }) })
    }

    /// Sends an order without blocking. An order about an ended job has no effect.
    ///
    /// # Errors
    ///
    /// If the supervisor's thread has ended, which only a panic in `report` causes.
    pub fn order(&self, order: Order) -> Result<(), SupervisorGone> {
        self.mailbox.tell(Message::Order(order))
    }

    /// Has the thread call `answer` in its next turn, which tells a watchdog that it is not stuck.
    ///
    /// # Errors
    ///
    /// As [`Supervisor::order`].
    pub fn probe(&self, answer: Box<dyn FnOnce() + Send>) -> Result<(), SupervisorGone> {
        self.mailbox.tell(Message::Probe(answer))
    }

    /// Kills all jobs, waits for their end at most `within`, and removes the supervisor's
    /// resources, which may take another four seconds. True if no process is left; a thread blocked
    /// in `report` is left behind.
    #[must_use]
    pub fn shutdown(mut self, within: Duration) -> bool {
        self.stop(within)
    }

    fn stop(&mut self, within: Duration) -> bool {
        let Some(thread) = self.thread.take() else { return true };
        // An ended thread shows in its result.
        let within = within.min(WITHIN_MAX);
        let _ = self.mailbox.tell(Message::Stop(Instant::now() + within));
        match thread.is_clean.recv_timeout(within + 2 * CLEAN_UP_WITHIN + SLACK) {
            Ok(is_clean) => thread.handle.join().is_ok() && is_clean,
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => {
                tracing::error!("the process supervisor is blocked; leaving its thread behind");
                false
            }
        }
    }
}

/// The families of jobs, if control groups are used.
fn families(containment: &Containment, adopts: bool) -> io::Result<Families> {
    Ok(match containment {
        Containment::Cgroup { keeper, .. } => {
            let roll = keeper.as_ref().map(|_| Roll::new()).transpose()?;
            Families::new(families::orphan_origin(adopts), roll)
        }
        Containment::Guard(_) | Containment::Groups => {
            Families::new(OrphanOrigin::NotAdopted, None)
        }
    })
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop(DROP_WITHIN);
    }
}
