//! Defaults of the configuration, which need no parser.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::time::Duration;

use super::discover::Environment;
use super::{
    Alerts, Daemon, Keeping, Limits, Listen, Log, OnDisconnect, OnEnd, OnTtl, RecordCalls, Tasks,
};
use crate::store::Damaged;
use crate::tools::name::DEFAULT_HEARTBEAT;
use ceased_process::Isolation;

const HOUR: Duration = Duration::from_secs(3_600);
/// Default mode: only the daemon's user.
pub(super) const MODE_DEFAULT: u32 = 0o600;
/// Default of `session_idle`: longer than a person thinks between two questions to a model.
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);
/// Default of `gone`: as long as events are kept for a client that comes back.
pub(crate) const GONE: Duration = Duration::from_secs(60);
/// Default of `keep_alive`: beyond the 60 seconds after which common proxies close their side.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Default of `sessions_per_identity`: half of the default of `connections`.
pub(crate) const SESSIONS_PER_IDENTITY: usize = 512;
/// Default of `connections_per_address`: half of the default of `connections`. All clients of a
/// reverse proxy have one address.
pub(crate) const CONNECTIONS_PER_ADDRESS: usize = 512;
/// Default of `replay_bytes`: some hundred progress notifications and a usual result.
pub(crate) const REPLAY_BYTES: usize = 1024 * 1024;

/// Default share of a resource for one identity: all but an eighth, and all but one of four to
/// seven. Fewer than four are not divided, since a reserved part would leave too little.
pub(crate) const fn most_of(all: usize) -> usize {
    match all {
        0..4 => all,
        4..8 => all - 1,
        8.. => all - all / 8,
    }
}

/// Greatest value of `servers.start_at_once`.
pub(super) const STARTS_MAX: usize = 1024;

impl Listen {
    /// The listener of a file without `[[listen]]`.
    pub(super) fn default_in(environment: &Environment) -> Self {
        Self::Unix { path: environment.socket(), mode: MODE_DEFAULT, group: None, allow: None }
    }
}

impl Daemon {
    /// The default of a user with this environment.
    pub(super) fn default_in(environment: &Environment) -> Self {
        Self {
            state_dir: environment.state_dir(),
            store: Keeping::Auto,
            store_reserve: 8 << 20,
            store_retry: Duration::from_secs(2),
            damaged_store: Damaged::Refuse,
            workers: 64,
            queue: 1024,
            shutdown_grace: Duration::from_secs(10),
            // The official SDKs send SIGTERM two seconds after they have closed a server's input.
            eof_grace: Duration::from_millis(1500),
            on_disconnect: OnDisconnect::Cancel,
            isolation: Isolation::None,
            roots: Vec::new(),
            allow_run: false,
            operators: BTreeSet::new(),
            heartbeat: Some(DEFAULT_HEARTBEAT),
            text_limit: 32 << 10,
            title: None,
            website: None,
            instructions: None,
            on_end: OnEnd::default(),
            on_end_after: Duration::from_secs(30),
            on_end_timeout: Duration::from_secs(10),
            on_end_running: 4,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_identity: None,
            operator_connections: 8,
            message_bytes: 16 << 20,
            json_depth: 128,
            inflight_per_connection: 1024,
            tasks_per_identity: 256,
            stored_tasks_per_identity: 10_000,
            stored_bytes_per_identity: 256 << 20,
            resident_result_bytes: 16 << 10,
            task_ops_per_second: 1000,
            workers_per_identity: None,
            queue_per_identity: None,
            idempotency_keys_per_identity: 1024,
            idempotency_ttl: Duration::from_secs(600),
            output_bytes: 64 << 20,
            output_bytes_per_identity: 16 << 20,
            write_buffer_bytes: 8 << 20,
            write_stall: Duration::from_secs(30),
            authenticate_within: Duration::from_secs(10),
            frame_time: Duration::from_secs(30),
            held_bytes: 512 << 20,
            held_bytes_per_identity: None,
            partial_bytes: 256 << 20,
            partial_bytes_per_identity: None,
            asks_per_job: 64,
            parked_per_identity: 16,
            parked_for: Duration::from_secs(300),
            subscriptions_per_connection: 64,
            tasks_per_subscription: 1024,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        let redact = ["*password*", "*passwd*", "*secret*", "*token*", "*credential*", "*api*key*"];
        Self {
            level: None,
            audit: None,
            calls: RecordCalls::default(),
            redact: redact.map(str::to_owned).to_vec(),
            ended_calls: 1000,
            ended_for: 12 * HOUR,
        }
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            default_ttl: HOUR,
            max_ttl: 24 * HOUR,
            on_ttl: OnTtl::Finish,
            late_result: Duration::from_secs(300),
            anonymous_ttl: Duration::from_secs(600),
            poll_interval: Duration::from_secs(1),
            page_size: 100,
            status_notifications: true,
        }
    }
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            high_water: 80,
            slow_stop: Duration::from_secs(10),
            window: Duration::from_secs(60),
            unknown_tasks: 20,
            fast_polls: 120,
        }
    }
}

/// Servers that may be starting at once (UPS-09) if the file does not say.
pub(crate) fn start_at_once_default() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    cores.saturating_mul(2).min(STARTS_MAX)
}
