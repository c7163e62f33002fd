//! The supervisor: one thread that starts, watches and ends every command of a program.
//!
//! It blocks only in its poll, and has no deadline except that of its own shutdown. It never reaps
//! children that it did not start: their statuses belong to other parts of the program.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded, unbounded};
use mio::{Poll, Waker};
use rustix::io::Errno;
use rustix::process::{getpid, set_child_subreaper};

use crate::cgroup::families::{self, Families, OrphanOrigin};
use crate::cgroup::roll::Roll;
use crate::containment::Containment;
use crate::guard::Program;
use crate::launch::environment::inherited;
use crate::launch::limits;
use crate::null_device;
use crate::proc::boot_clock::BootClock;
use crate::supervisor::activity::Activity;
use crate::supervisor::child_exits::ChildExits;
use crate::supervisor::event_loop::{CHILDREN, CLEAN_UP_WITHIN, SCRATCH_BYTES, State, WAKER};
use crate::supervisor::mailbox::{Mailbox, Message, SupervisorGone};
use crate::supervisor::orphans::Orphans;
use crate::supervisor::report::Order;
use crate::supervisor::report::Report;
use crate::supervisor::shared::Shared;
use crate::supervisor::spares::SparePool;
use crate::sys;

/// Time that a dropped supervisor waits for killed processes.
const DROP_WITHIN: Duration = Duration::from_secs(5);
/// Additional time for the thread to report before it counts as blocked.
const SLACK: Duration = Duration::from_millis(500);
/// Longest shutdown time: larger values overflow the clock.
const WITHIN_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs commands on a thread of its own; see the [crate](crate) for its guarantees.
///
/// Dropping it kills all running commands and waits at most five seconds for their end.
#[derive(Debug)]
pub struct Supervisor {
    mailbox: Mailbox,
    activity: Arc<Activity>,
    thread: Option<Thread>,
}

/// The supervisor's thread, and its final report whether it left no process.
#[derive(Debug)]
struct Thread {
    handle: JoinHandle<()>,
    is_clean: Receiver<bool>,
}

impl Supervisor {
    /// Starts a supervisor.
    ///
    /// `report` is called on the supervisor's thread; it must not block. The environment of this
    /// process is read now; a launch names the variables that it inherits. Those that speak to this
    /// process alone are never inherited: `NOTIFY_SOCKET`, `WATCHDOG_*`, `LISTEN_*` and names of
    /// ours.
    ///
    /// # Errors
    ///
    /// If the thread, its poll or the keeper cannot be created.
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
        let orphans = match containment {
            Containment::Groups => orphans,
            Containment::Cgroup { .. } | Containment::Guard(_) => adopting(orphans)?,
        };
        let families = families(&containment, orphans == Orphans::Adopt)?;
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
            null: null_device::open()?,
            scratch: vec![0; SCRATCH_BYTES],
            report,
            spare: SparePool::default(),
            families,
            own_children: BTreeSet::new(),
            emptied: Vec::new(),
            removals: Vec::new(),
            boot_clock: BootClock::new(),
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
        let activity = Arc::new(Activity::default());
        let shared = Arc::clone(&activity);
        let mut state = State::new(poll, inbox, mailbox.clone(), world, shared, child_exits);
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
        Ok(Self { mailbox, activity, thread: Some(Thread { handle, is_clean }) })
    }

    /// Sends an order without blocking. An order about an ended job has no effect.
    ///
    /// # Errors
    ///
    /// If the supervisor's thread has ended, which only a panic in `report` causes.
    pub fn order(&self, order: Order) -> Result<(), SupervisorGone> {
        if matches!(order, Order::Launch(_)) {
            self.activity.note_launch();
        }
        self.mailbox.tell(Message::Order(order))
    }

    /// Whether a process that a job has started may be alive. If not, no process needs to be
    /// located.
    #[must_use]
    pub fn has_processes(&self) -> bool {
        self.activity.has_processes()
    }

    /// Makes the thread call `answer` in its next turn, which shows a watchdog that it is
    /// responsive.
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
/// Makes this process adopt orphans, if it is to. Every kernel lets it, but not every emulator of
/// another processor, where orphans are left.
fn adopting(orphans: Orphans) -> io::Result<Orphans> {
    match orphans {
        Orphans::Leave => Ok(Orphans::Leave),
        Orphans::Adopt => match set_child_subreaper(Some(getpid())) {
            Ok(()) => Ok(Orphans::Adopt),
            Err(Errno::INVAL) => {
                tracing::warn!(
                    "this system has no child subreaper: orphans of jobs are not adopted"
                );
                Ok(Orphans::Leave)
            }
            Err(error) => Err(error.into()),
        },
    }
}

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
