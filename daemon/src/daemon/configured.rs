//! The settings of a daemon that a configuration stands for.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use ceased_core::identity::Identity;
use ceased_core::limits::{FrameLimits, Limits, TaskPolicy};
use ceased_core::policy::abuse::SuspicionPolicy;
use ceased_core::settings::ServerInfo;
#[cfg(feature = "tls")]
use ceased_transports::tls::TlsAcceptor;
use ceased_transports::{Address, SocketMode};
use rustix::process::getuid;

use crate::access::Access;
use crate::config::{self, Config, Listen, most_of};
use crate::event_loop::{Guards, ListenSpec, OnEndPolicy};
#[cfg(feature = "fleet")]
use crate::fleet::FleetSettings;
use crate::http::access::HttpRules;
use crate::http::pages::Serves;
use crate::http::secure::Secure;
use crate::http::signed::SignedTokens;
use crate::needed_scopes::NeededScopes;
use crate::observability::ended::EndedLimits;
use crate::observability::metrics::Thresholds;
use crate::start_error::StartError;
use crate::store::open::{OnDisk, StoreLocation};
use ceased_process::{Controller, Isolation, Unenforced};

/// How the server of a configuration names itself.
pub(super) fn server_info(config: &Config) -> ServerInfo {
    let config::Daemon { title, website, instructions, .. } = &config.daemon;
    let text = |text: &Option<String>| text.as_deref().map(Into::into);
    ServerInfo {
        title: text(title),
        website: text(website),
        instructions: text(instructions),
        ..ServerInfo::default()
    }
}

/// Operators of every daemon: the administrator, and the user this runs as.
pub(super) fn own_operators() -> Vec<Identity> {
    vec![Identity::User(0), Identity::User(getuid().as_raw())]
}

/// Operators: the administrator, the user this runs as, and those of the configuration.
pub(super) fn operators(config: &Config) -> Vec<Identity> {
    let mut operators = own_operators();
    operators.extend(config.daemon.operators.iter().cloned());
    operators
}

/// Calls that are kept once they have ended.
pub(super) const fn ended(config: &Config) -> EndedLimits {
    EndedLimits { count: config.log.ended_calls, span: config.log.ended_for }
}

/// Commands after the end of calls.
pub(super) fn on_end(config: &Config) -> OnEndPolicy {
    let daemon = &config.daemon;
    OnEndPolicy {
        command: daemon.on_end.clone(),
        after: daemon.on_end_after,
        timeout: daemon.on_end_timeout,
        running_max: daemon.on_end_running,
    }
}

pub(super) const fn thresholds(config: &Config) -> Thresholds {
    let alerts = &config.alerts;
    Thresholds { high_water: alerts.high_water, slow_stop: alerts.slow_stop }
}

/// Tools, servers and agents with a bound, by the controller that enforces it.
pub(super) fn bounded(config: &Config) -> BTreeMap<Controller, Vec<String>> {
    let mut found: BTreeMap<Controller, Vec<String>> = BTreeMap::new();
    for tool in &config.tools {
        let config::Run::Command(command) = &tool.run else { continue };
        for controller in command.bounds.controllers() {
            found.entry(controller).or_default().push(tool.name.clone());
        }
    }
    for server in &config.servers {
        for controller in server.launch.bounds.controllers() {
            found.entry(controller).or_default().push(format!("the server {}", server.name));
        }
    }
    for agent in &config.agents {
        for controller in agent.launch.bounds.controllers() {
            found.entry(controller).or_default().push(format!("the agent {}", agent.name));
        }
    }
    found
}

/// One line for each bound that has no effect, with the tools and servers that have it.
pub(super) fn unenforced(
    bounded: &BTreeMap<Controller, Vec<String>>,
    missing: &[Unenforced],
) -> Vec<String> {
    let line = |missing: &Unenforced| {
        let tools = bounded.get(&missing.controller).map_or_else(String::new, |it| it.join(", "));
        format!("{missing}: calls of {tools} run without it")
    };
    missing.iter().map(line).collect()
}

/// Names of the tools configured to run in a pid namespace.
pub(super) fn isolated(config: &Config) -> Vec<String> {
    let is_isolated = |run: &config::Run| match run {
        config::Run::Command(command) => command.isolation == Isolation::Pid,
        config::Run::Builtin(_) => false,
    };
    let tools = config.tools.iter().filter(|tool| is_isolated(&tool.run));
    tools.map(|tool| tool.name.clone()).collect()
}

pub(super) fn guards(config: &Config) -> Guards {
    let limits = &config.limits;
    let own = limits.partial_bytes_per_identity;
    let half = (limits.partial_bytes / 2).max(limits.message_bytes);
    Guards {
        frame_time: limits.frame_time,
        partial_bytes: limits.partial_bytes,
        partial_bytes_per_identity: own.unwrap_or(half),
    }
}

pub(super) fn address(listen: &Listen) -> Address {
    match listen.socket() {
        Listen::Unix { path, mode, .. } => Address::Unix {
            path: path.clone(),
            mode: SocketMode::from_bits(*mode).unwrap_or_default(),
        },
        Listen::Tcp { address, .. } => Address::Tcp(*address),
        Listen::Stdio | Listen::Http(_) => Address::Stdio,
    }
}

/// The address and the access rule of a listener. `scopes`: those that some requests need.
pub(super) fn listen_spec(
    listen: &Listen,
    scopes: &Arc<NeededScopes>,
    state_dir: &Path,
) -> Result<ListenSpec, StartError> {
    let group = match listen.socket() {
        Listen::Unix { group, .. } => *group,
        Listen::Tcp { .. } | Listen::Stdio | Listen::Http(_) => None,
    };
    let access = Access::of(listen)?;
    let http = match listen {
        Listen::Http(http) => {
            Some(Arc::new(http_rules(http, access.clone(), (scopes, state_dir))?))
        }
        Listen::Unix { .. } | Listen::Tcp { .. } | Listen::Stdio => None,
    };
    Ok(ListenSpec { address: address(listen), group, access, http })
}

/// A listener for HTTP that is open to every peer that can connect.
pub(super) fn open_http(address: &Address) -> ListenSpec {
    let mut spec = ListenSpec::open(address.clone());
    spec.http = Some(Arc::new(HttpRules {
        // An embedding program serves /mcp; the view belongs to a daemon of its own.
        view: false,
        serves: Serves::Endpoint,
        address: address.clone(),
        access: spec.access.clone(),
        allow_origins: Arc::default(),
        any_host: matches!(address, Address::Unix { .. }),
        session_idle: config::SESSION_IDLE,
        gone: config::GONE,
        keep_alive: config::KEEP_ALIVE,
        sessions_per_identity: config::SESSIONS_PER_IDENTITY,
        connections_per_address: config::CONNECTIONS_PER_ADDRESS,
        replay_bytes: config::REPLAY_BYTES,
        signed: None,
        secure: None,
    }));
    spec
}

/// The listener of `[metrics]`.
pub(super) fn numbers(address: Address) -> ListenSpec {
    let mut spec = open_http(&address);
    let rules = spec.http.take().and_then(Arc::into_inner);
    spec.http = rules.map(|rules| Arc::new(HttpRules { serves: Serves::Numbers, ..rules }));
    spec
}

/// The rules of a listener for HTTP.
fn http_rules(
    http: &config::HttpListen,
    access: Access,
    (scopes, state_dir): (&Arc<NeededScopes>, &Path),
) -> Result<HttpRules, StartError> {
    // No page can reach a Unix socket, and on an address of the network every request needs a
    // token; so it does with signed tokens, behind a proxy of another name.
    let any_host = match &*http.socket {
        Listen::Tcp { address, anonymous, .. } => {
            !address.ip().to_canonical().is_loopback() || http.oauth.is_some() && !anonymous
        }
        Listen::Unix { .. } | Listen::Stdio | Listen::Http(_) => true,
    };
    Ok(HttpRules {
        signed: { http.oauth.as_ref() }
            .map(|policy| resource_server(policy, scopes, state_dir))
            .transpose()?,
        secure: http.tls.as_ref().map(secure).transpose()?,
        address: address(&http.socket),
        access,
        allow_origins: http.allow_origins.as_slice().into(),
        any_host,
        session_idle: http.session_idle,
        gone: http.gone,
        keep_alive: http.keep_alive,
        sessions_per_identity: http.sessions_per_identity,
        connections_per_address: http.connections_per_address,
        serves: Serves::Endpoint,
        replay_bytes: http.replay_bytes,
        view: http.view,
    })
}

#[cfg(feature = "tls")]
#[allow(clippy::unnecessary_wraps, reason = "a build without OAuth fails here")]
fn resource_server(
    policy: &config::OAuth,
    scopes: &Arc<NeededScopes>,
    state_dir: &Path,
) -> Result<Arc<dyn SignedTokens>, StartError> {
    Ok(Arc::new(crate::oauth::ResourceServer::new(policy, scopes, state_dir)))
}

#[cfg(not(feature = "tls"))]
fn resource_server(
    _: &config::OAuth,
    _: &Arc<NeededScopes>,
    _: &Path,
) -> Result<Arc<dyn SignedTokens>, StartError> {
    Err(StartError::Tls("`issuer` needs a build with the feature `tls`".into()))
}

/// TLS of a listener.
#[cfg(feature = "tls")]
fn secure(files: &config::TlsFiles) -> Result<Secure, StartError> {
    let pem = files.read().map_err(StartError::Tls)?;
    let failed = |why| StartError::Tls(format!("{}: {why}", files.cert.display()));
    let config = TlsAcceptor::new(&pem.cert, &pem.key).map_err(failed)?;
    Ok(Secure::new(move |below| config.accept(below)))
}

#[cfg(not(feature = "tls"))]
fn secure(_: &config::TlsFiles) -> Result<Secure, StartError> {
    Err(StartError::Tls("`tls_cert` needs a build with the feature `tls`".into()))
}

/// The store location of a configured daemon.
pub(super) fn keep(config: &Config) -> StoreLocation {
    let daemon = &config.daemon;
    let own = match daemon.store {
        config::Keeping::Auto | config::Keeping::Disk => Some(on_disk(daemon)),
        config::Keeping::Memory => None,
    };
    #[cfg(feature = "fleet")]
    if let Some(fleet) = &config.fleet {
        return StoreLocation::Fleet(Box::new(fleet_settings(fleet)), own);
    }
    own.map_or(StoreLocation::Memory, StoreLocation::Disk)
}

/// The membership that `[fleet]` stands for.
#[cfg(feature = "fleet")]
pub(crate) fn fleet_settings(fleet: &config::Fleet) -> FleetSettings {
    FleetSettings {
        database: fleet.database.clone(),
        database_file: fleet.database_file.clone(),
        name: fleet.name.clone(),
        lease: fleet.lease,
        stops: fleet.on_engine_loss == config::OnEngineLoss::Stop,
        shared_users: fleet.shared_users,
        is_strict: fleet.require == config::Durability::Strict,
    }
}

pub(super) fn on_disk(daemon: &config::Daemon) -> OnDisk {
    OnDisk {
        dir: daemon.state_dir.clone(),
        reserve: daemon.store_reserve as u64,
        damaged: daemon.damaged_store,
    }
}

pub(super) fn limits(config: &Config) -> Limits {
    let limits = &config.limits;
    Limits {
        frames: FrameLimits { frame_bytes_max: limits.message_bytes },
        depth_max: limits.json_depth,
        connections_max: limits.connections,
        connections_per_identity_max: limits
            .connections_per_identity
            .unwrap_or_else(|| most_of(limits.connections)),
        operator_connections: limits.operator_connections,
        inflight_max: limits.inflight_per_connection,
        running_max: config.daemon.workers,
        running_per_identity_max: limits
            .workers_per_identity
            .unwrap_or_else(|| most_of(config.daemon.workers)),
        queued_max: config.daemon.queue,
        queued_per_identity_max: limits
            .queue_per_identity
            .unwrap_or(config.daemon.queue - config.daemon.queue / 8),
        keys_max: limits.idempotency_keys_per_identity,
        keys_for: limits.idempotency_ttl,
        task_ops_per_second: NonZeroU32::new(limits.task_ops_per_second),
        live_tasks_max: limits.tasks_per_identity,
        stored_tasks_max: limits.stored_tasks_per_identity,
        stored_bytes_max: limits.stored_bytes_per_identity,
        resident_result_bytes: limits.resident_result_bytes,
        output_bytes_max: limits.output_bytes,
        output_bytes_per_identity_max: limits.output_bytes_per_identity,
        held_bytes_max: limits.held_bytes,
        held_bytes_per_identity_max: limits
            .held_bytes_per_identity
            .unwrap_or((limits.held_bytes / 2).max(limits.message_bytes)),
        write_buffer_bytes: limits.write_buffer_bytes,
        write_stall: limits.write_stall,
        suspicion: SuspicionPolicy {
            window: config.alerts.window,
            unknown_tasks: config.alerts.unknown_tasks,
            fast_polls: config.alerts.fast_polls,
        },
        asks_max: limits.asks_per_job,
        parked_max: limits.parked_per_identity,
        parked_for: limits.parked_for,
        subscriptions_max: limits.subscriptions_per_connection,
        subscribed_tasks_max: limits.tasks_per_subscription,
        ..Limits::default()
    }
}

pub(super) fn task_policy(config: &Config) -> TaskPolicy {
    let tasks = &config.tasks;
    TaskPolicy {
        // Set by [`Daemon::build`], depending on the store.
        durable: false,
        shared: false,
        store_retry: config.daemon.store_retry,
        default_ttl: tasks.default_ttl,
        max_ttl: tasks.max_ttl,
        anonymous_ttl: tasks.anonymous_ttl,
        on_ttl: tasks.on_ttl,
        late_result: tasks.late_result,
        poll_interval: tasks.poll_interval,
        page_size: tasks.page_size,
        status_notifications: tasks.status_notifications,
    }
}
