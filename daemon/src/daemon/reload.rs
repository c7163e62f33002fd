//! The reload of a configuration while a daemon runs.

use std::sync::Arc;

use ceased_core::settings::Settings;

use super::configured::{
    bounded, guards, limits, listen_spec, on_end, operators, server_info, task_policy, thresholds,
};
use super::servers::{self, KnownServers};
use crate::config::{self, Config, Level, Listen};
use crate::event_loop::{Reload, Reloaded};
use crate::needed_scopes::NeededScopes;
use crate::observability::logging::SetLevel;
use crate::scarcity;
use crate::tools::{catalog, run_command};
use ceased_process::Controller;

/// Reads the configuration that a reload applies.
pub(crate) type LoadConfig = Arc<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// Creates the reload function of a daemon started with `started`, which listens where the
/// configuration says only if `listens`. `level` is that of the log where the file has none.
pub(crate) fn reload(
    load: LoadConfig,
    started: Config,
    listens: bool,
    level: Level,
    set_level: SetLevel,
    known: KnownServers,
) -> Reload {
    Arc::new(move || {
        let config = load()?;
        let scopes = NeededScopes::of(&config);
        let state_dir = &config.daemon.state_dir;
        let specs = config.listen.iter().map(|listen| listen_spec(listen, &scopes, state_dir));
        let doors = || specs.collect::<Result<Vec<_>, _>>();
        let listen = listens.then(doors).transpose().map_err(|error| error.to_string())?;
        let catalog = catalog::catalog(config.tools.iter().map(catalog::configured).collect());
        let (servers, agents) = (known.of(&config)?, servers::agents(&config)?);
        let has_http = config.listen.iter().any(|listen| matches!(listen, Listen::Http(_)));
        let (set_level, level) = (Arc::clone(&set_level), config.log.level.unwrap_or(level));
        Ok(Reloaded {
            set_level: Box::new(move || set_level(level)),
            settings: Arc::new(Settings {
                server: server_info(&config),
                limits: scarcity::within_files(limits(&config), operators(&config).len(), has_http),
                tasks: task_policy(&config),
                catalog: catalog.map_err(|error| error.to_string())?,
                outputs: true,
                run: run_command::tool(&config).map_err(|error| error.to_string())?,
                servers,
                agents,
                start_at_once: config.start_at_once,
                operators: operators(&config),
                profiles: config.profiles.clone(),
                own_spans: started.otlp.is_some(),
                ..Settings::default()
            }),
            listen,
            shutdown_grace: config.daemon.shutdown_grace,
            eof_grace: config.daemon.eof_grace,
            authenticate_within: config.limits.authenticate_within,
            guards: guards(&config),
            thresholds: thresholds(&config),
            on_end: on_end(&config),
            needs_restart: needs_restart(&started, &config),
        })
    })
}

/// Names the keys that are read only at the start and have changed.
///
/// The tables with such keys are destructured completely, so that a new key must be put on either
/// side.
pub(super) fn needs_restart(started: &Config, now: &Config) -> Vec<&'static str> {
    let is_stdio = |config: &Config| config.listen.contains(&Listen::Stdio);
    let config::Daemon {
        state_dir,
        store,
        store_reserve,
        damaged_store,
        store_retry: _,
        workers: _,
        queue: _,
        shutdown_grace: _,
        on_disconnect: _,
        isolation: _,
        eof_grace: _,
        roots: _,
        allow_run: _,
        operators: _,
        heartbeat: _,
        text_limit: _,
        title: _,
        website: _,
        instructions: _,
        on_end: _,
        on_end_after: _,
        on_end_timeout: _,
        on_end_running: _,
    } = &now.daemon;
    let config::Log { audit, calls, redact, ended_calls, ended_for, level: _ } = &now.log;
    let config::Metrics { listen: metrics } = &now.metrics;
    let was = &started.daemon;
    let (bounded_then, bounded_now) = (bounded(started), bounded(now));
    let is_new = |controller| {
        bounded_now.contains_key(&controller) && !bounded_then.contains_key(&controller)
    };
    let keys = [
        ("daemon.state_dir", was.state_dir != *state_dir),
        ("daemon.store", was.store != *store),
        ("daemon.store_reserve", was.store_reserve != *store_reserve),
        ("daemon.damaged_store", was.damaged_store != *damaged_store),
        ("log.audit", started.log.audit != *audit),
        ("log.calls", started.log.calls != *calls),
        ("log.redact", started.log.redact != *redact),
        ("log.ended_calls", started.log.ended_calls != *ended_calls),
        ("log.ended_for", started.log.ended_for != *ended_for),
        ("[otlp]", started.otlp != now.otlp),
        ("[fleet]", started.fleet != now.fleet),
        ("metrics.listen", started.metrics.listen != *metrics),
        (
            "memory_max of a [[tool]], [[server]] or [[agent]], the first one",
            is_new(Controller::Memory),
        ),
        (
            "pids_max of a [[tool]], [[server]] or [[agent]], the first one",
            is_new(Controller::Pids),
        ),
        ("cpu_max of a [[tool]], [[server]] or [[agent]], the first one", is_new(Controller::Cpu)),
        ("[[listen]] of transport \"stdio\"", is_stdio(started) != is_stdio(now)),
    ];
    keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests;
