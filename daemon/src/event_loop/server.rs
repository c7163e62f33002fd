//! The state of the server.

use super::bound_listener::BoundListener;
use super::clock::Clock;
use super::guesses::Guesses;
use super::partial_frames::PartialFrames;
use super::peer::{Peer, Sending};
use super::read_scheduler::ReadScheduler;
use super::reload::{Guards, Reload};
use super::repeats::Repeats;
use super::running_jobs::Runs;
use super::shutdown::Stopping;
use super::store_place::Place;
use super::trail::Trail;
use super::upkeep_state::Upkeep;
use super::vetting_queue::Vetting;

use crate::event_loop::mailbox::{LoopReceiver, LoopSender, Report};
use crate::observability::audit::Audit;
use crate::observability::calls::CallPolicy;
use crate::observability::metrics::{Endpoint, Thresholds};
use crate::record::Recorded;
use crate::signals::Signals;
use crate::store::open::OpenedStore;
use crate::store::thread::StoreThread;
use crate::store::{StateDir, StoreError};
use crate::tools::worker_pool::Pool;
use ceased_core::action::Action;
use ceased_core::ids::ConnId;
use ceased_core::outgoing::call::{Answer, Caller};
use ceased_core::settings::Settings;
use ceased_core::time::Instant;
use ceased_process::{Containment, Orphans, Supervisor};
use crossbeam_channel::Sender;
use mio::Poll;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// What a server needs to start.
pub(crate) struct Options {
    /// What it offers and allows. Every tool's payload must come from [`crate::tools::catalog`].
    pub settings: Arc<Settings>,
    /// How processes of command tools are kept together.
    pub containment: Containment,
    /// What becomes of processes that lose their guard.
    pub orphans: Orphans,
    /// How long a shutdown may take.
    pub shutdown_grace: Duration,
    /// How long calls may go on after a peer that ends with its input has closed it.
    pub eof_grace: Duration,
    /// How long a peer may take to say who it is, where it has to.
    pub authenticate_within: Duration,
    /// What peers that never end a line may take.
    pub guards: Guards,
    /// Where everything the engine is handed and does is written, if it is.
    pub record: Option<File>,
    /// The audit log.
    pub audit: Audit,
    /// What is recorded of each call.
    pub calls: CallPolicy,
    /// When to warn.
    pub thresholds: Thresholds,
    /// Where the metrics are served, if they are.
    pub metrics: Option<ceased_transports::Address>,
    /// Where tasks are kept; `None`: in memory alone. The settings must agree.
    pub kept: Option<OpenedStore>,
}

/// Why a server ended that was not asked to.
#[derive(Debug)]
pub enum RunError {
    /// The poll failed.
    Io(io::Error),
    /// The store cannot be used any more, and a new process might: nothing more may be promised
    /// by this one (DUR-01).
    Store(StoreError),
    /// It was asked to end, and processes of its tools cannot be ended: they belong to another
    /// user, or the kernel keeps them.
    Outlasted,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the daemon cannot go on: {error}"),
            Self::Store(error) => write!(f, "the daemon cannot go on without its store: {error}"),
            Self::Outlasted => f.write_str(
                "processes of tools are left that SIGKILL did not end; the audit log has their \
                 jobs, `ps` their owners and states",
            ),
        }
    }
}

impl std::error::Error for RunError {}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// One daemon. Made on the thread that runs it.
pub struct Server {
    pub(super) poll: Poll,
    pub(super) engine: Recorded,
    pub(super) settings: Arc<Settings>,
    pub(super) clock: Clock,
    pub(super) doors: Vec<BoundListener>,
    pub(super) links: BTreeMap<ConnId, Box<Peer>>,
    /// Peers the engine does not know, and when they go.
    pub(super) strangers: BTreeSet<(Instant, ConnId)>,
    /// Peers whose process is being looked at.
    pub(super) vetting: Vetting,
    /// Wrong tokens that were tried lately.
    pub(super) guesses: Guesses,
    /// Records that are counted instead of written.
    pub(super) repeats: Repeats,
    pub(super) next_conn: u64,
    pub(super) ready: ReadScheduler,
    /// Bytes that were read ahead of their turn.
    pub(super) ahead_bytes: usize,
    /// Connections to be sent what waits for them, and why.
    pub(super) unsent: Vec<(ConnId, Sending)>,
    pub(super) runs: Runs,
    /// Output of running jobs and of jobs that ended lately.
    pub(super) outputs: super::job_output::JobOutputs,
    /// Processes of upstreams.
    pub(super) upstreams: super::upstream_instances::Upstreams,
    pub(super) client_directories: super::client_directory::ClientDirectories,
    /// Handlers that wait for an answer of their peer.
    pub(super) asking: BTreeMap<Caller, Sender<Answer>>,
    pub(super) pool: Pool,
    pub(super) supervisor: Supervisor,
    pub(super) reports: LoopSender,
    pub(super) inbound: LoopReceiver,
    /// Where reports are heard from, empty in between.
    pub(super) heard: Vec<Report>,
    pub(super) signals: Option<(Signals, Option<Reload>)>,
    /// There is a signal to take.
    pub(super) signalled: bool,
    pub(super) actions: Vec<Action>,
    pub(super) scratch: Box<[u8]>,
    pub(super) shutdown_grace: Duration,
    pub(super) eof_grace: Duration,
    pub(super) authenticate_within: Duration,
    pub(super) guards: Guards,
    /// Messages that have begun and not ended.
    pub(super) unended: PartialFrames,
    pub(super) upkeep: Upkeep,
    pub(super) stopping: Stopping,
    pub(super) trail: Trail,
    /// Served while this lives.
    pub(super) _metrics: Option<Endpoint>,
    /// Why the one peer it was there for could not be served to the end.
    pub(super) lost_stdio: Option<io::Error>,
    pub(super) store: Option<StoreThread>,
    /// Where that keeps its tasks.
    pub(super) place: Place,
    /// The store failed for good.
    pub(super) failed: Option<StoreError>,
    /// Held for life.
    pub(super) state_dir: Option<Arc<StateDir>>,
}

/// Reaches into a running server from another thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    pub(super) reports: LoopSender,
}

impl ServerHandle {
    /// A connection to the server, as a peer with this process's user.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.reports.send(Report::Adopt(theirs));
        Ok(ours)
    }

    /// Asks the server to shut down, as SIGTERM does.
    pub fn shut_down(&self) {
        self.reports.send(Report::ShutDown);
    }
}
