//! The supervisor: one thread that starts, watches and ends every command of a program.
//!
//! It never waits for anything but its poll, and it knows no deadlines but that of its own end.
//! It never waits for children it did not start: their statuses belong to somebody else.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded, unbounded};
use mio::{Poll, Waker};
use rustix::process::{getpid, set_child_subreaper};

use crate::cgroup::families::{self, Families, Orphanage};
use crate::cgroup::roll::Roll;
use crate::containment::Containment;
use crate::guard::Program;
use crate::launch::environment::inherited;
use crate::launch::limits;
use crate::supervisor::child_exits::ChildExits;
use crate::supervisor::event_loop::{CHILDREN, CLEAN_UP_WITHIN, SCRATCH_BYTES, State, WAKER};
use crate::supervisor::mailbox::{Mailbox, Message, SupervisorGone};
use crate::supervisor::orphans::Orphans;
use crate::supervisor::report::Order;
use crate::supervisor::report::Report;
use crate::supervisor::shared::Shared;
use crate::supervisor::spares::SparePool;
use crate::sys;

/// How long a supervisor that is dropped waits for what it killed.
const DROP_WITHIN: Duration = Duration::from_secs(5);
/// How much later than that the thread may say so before it is held to be held up.
const SLACK: Duration = Duration::from_millis(500);
/// The longest time for an end: no clock counts forever.
const WITHIN_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs commands on one thread of its own. See the [crate](crate) for what it promises.
///
/// Dropping it kills whatever it runs and waits, at most five seconds, until that is gone.
#[derive(Debug)]
pub struct Supervisor {
    mailbox: Mailbox,
    thread: Option<Thread>,
}

/// The supervisor's thread, and whether it left nothing, which it says when it has ended.
#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    is_clean: Receiver<bool>,
}

impl Supervisor {
    /// Starts a supervisor.
    ///
    /// `report` is called on the supervisor's thread; it must not block. The environment of this
    /// process is read now; a launch says what it inherits of it. What speaks to
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
            tracing::warn!(%containment, "processes are not wholly contained: {weakness}: {remedy}");
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
            // Signals are for the threads of whoever embeds us; SIGPIPE of a pipe to a tool is an
            // error code here.
            sys::block_signals();
            let _ = ended.send(state.run());
        })?;
        Ok(Self { mailbox, thread: Some(Thread { handle, is_clean }) })
    }

    /// Gives an order; returns at once. An order about a job that has ended does nothing.
    ///
    /// # Errors
    ///
    /// When the supervisor's thread has ended, which only a panic in `report` brings about.
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

    /// Kills whatever runs, waits for it at most `within`, and removes what the supervisor made,
    /// which may take another four seconds. True when nothing is left; a thread that is held up,
    /// by a `report` that blocks, is left behind.
    #[must_use]
    pub fn shutdown(mut self, within: Duration) -> bool {
        self.stop(within)
    }

    fn stop(&mut self, within: Duration) -> bool {
        let Some(thread) = self.thread.take() else { return true };
        // That it has ended already shows in its result.
        let within = within.min(WITHIN_MAX);
        let _ = self.mailbox.tell(Message::Stop(Instant::now() + within));
        match thread.is_clean.recv_timeout(within + 2 * CLEAN_UP_WITHIN + SLACK) {
            Ok(is_clean) => thread.handle.join().is_ok() && is_clean,
            Err(RecvTimeoutError::Disconnected) => false,
            Err(RecvTimeoutError::Timeout) => {
                tracing::error!("the supervisor of processes is held up, and is left behind");
                false
            }
        }
    }
}

/// What jobs have beside what control groups show of them, where these are used.
fn families(containment: &Containment, adopts: bool) -> io::Result<Families> {
    Ok(match containment {
        Containment::Cgroup { keeper, .. } => {
            let roll = keeper.as_ref().map(|_| Roll::new()).transpose()?;
            Families::new(families::orphanage(adopts), roll)
        }
        Containment::Guard(_) | Containment::Groups => Families::new(Orphanage::Closed, None),
    })
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop(DROP_WITHIN);
    }
}
