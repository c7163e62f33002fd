//! The state of the server.

use super::state::client_directory::ClientDirectories;
use super::state::clock::Clock;
use super::state::connections::Connections;
use super::state::endings::{Endings, OnEndPolicy};
use super::state::handshakes::Handshakes;
use super::state::job_output::JobOutputs;
use super::state::listeners::Listeners;
use super::state::observer::Observer;
use super::state::partial_frames::PartialFrames;
use super::state::record_limiter::RecordLimiter;
use super::state::reload::{Guards, Reload};
use super::state::remote_instances::Remotes;
use super::state::running_jobs::RunningJobs;
use super::state::shutdown::Stopping;
use super::state::store_location::StoreLocation;
use super::state::upkeep::Upkeep;
use super::state::upstream_instances::Upstreams;
use super::state::wrong_tokens::WrongTokens;
use crate::http::endpoint::Endpoint as HttpEndpoint;

use crate::event_loop::mailbox::{LoopReceiver, LoopSender, Report};
#[cfg(feature = "fleet")]
use crate::fleet::Reader;
use crate::observability::audit::Audit;
use crate::observability::calls::CallPolicy;
use crate::observability::ended::{EndedLimits, Export};
use crate::observability::metrics::Thresholds;
use crate::record::Recorded;
use crate::signals::Signals;
use crate::store::manifests::Manifests;
use crate::store::open::OpenedStore;
use crate::store::thread::StoreThread;
use crate::store::{StateDir, StoreError};
use crate::tools::worker_pool::Pool;
use ceased_core::action::Action;
use ceased_core::settings::Settings;
use ceased_core::time::Instant;
use ceased_process::{Containment, Orphans, Supervisor};
use ceased_transports::http::Response;
use mio::Poll;
use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The parts of a server at its start.
pub(crate) struct Options {
    /// Tools, limits and access. Every tool's payload must come from [`crate::tools::catalog`].
    pub settings: Arc<Settings>,
    /// How processes of command tools are kept together.
    pub containment: Containment,
    /// Treatment of processes that lose their guard.
    pub orphans: Orphans,
    /// How long a shutdown may take.
    pub shutdown_grace: Duration,
    /// How long calls may go on after a peer that ends with its input has closed it.
    pub eof_grace: Duration,
    /// Time limit for a peer to authenticate, where it has to.
    pub authenticate_within: Duration,
    /// Bounds on the memory of peers that never end a line.
    pub guards: Guards,
    /// Where everything the engine is handed and does is written, if it is.
    pub record: Option<File>,
    /// The audit log.
    pub audit: Audit,
    /// The recorded part of each call.
    pub calls: CallPolicy,
    /// Calls that are kept once they have ended.
    pub ended: EndedLimits,
    /// Commands after the end of calls.
    pub on_end: OnEndPolicy,
    /// Delivers spans of ended calls.
    pub exporter: Option<Box<dyn Export>>,
    /// When to warn.
    pub thresholds: Thresholds,
    /// Where tasks are kept; `None`: in memory alone. The settings must agree.
    pub kept: Option<OpenedStore>,
}

/// Why a server ended that was not asked to.
#[derive(Debug)]
#[non_exhaustive]
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
    pub(super) listeners: Listeners,
    pub(super) connections: Connections,
    pub(super) handshakes: Handshakes,
    /// HTTP connections and their sessions.
    pub(super) http: HttpEndpoint,
    pub(super) wrong_http_tokens: WrongTokens,
    /// The latest page of numbers, and the time of its turn.
    pub(super) numbers: Option<(Instant, Response)>,
    pub(super) jobs: RunningJobs,
    /// Messages that have begun and not ended.
    pub(super) partial_frames: PartialFrames,
    /// Counts records instead of writing them all.
    pub(super) record_limiter: RecordLimiter,
    /// Output of running jobs and of jobs that ended lately.
    pub(super) outputs: JobOutputs,
    /// Processes of upstreams.
    pub(super) upstreams: Upstreams,
    /// Manifests and approvals of servers, with a state directory.
    pub(super) manifests: Option<Manifests>,
    /// Connections to servers by URL.
    pub(super) remotes: Remotes,
    /// Commands after the end of calls.
    pub(super) endings: Endings,
    pub(super) client_directories: ClientDirectories,
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
    pub(super) upkeep: Upkeep,
    pub(super) stopping: Stopping,
    pub(super) observer: Observer,
    /// Why the one peer it was there for could not be served to the end.
    pub(super) lost_stdio: Option<io::Error>,
    pub(super) store: Option<StoreThread>,
    /// Asks the table that several daemons share.
    #[cfg(feature = "fleet")]
    pub(super) reader: Option<Reader>,
    pub(super) store_location: StoreLocation,
    /// The store failed for good.
    pub(super) failed: Option<StoreError>,
    /// Held for life.
    pub(super) state_dir: Option<Arc<StateDir>>,
}
