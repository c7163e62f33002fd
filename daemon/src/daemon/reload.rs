//! The reload of a configuration while a daemon runs.

use std::sync::Arc;

use ceased_core::settings::Settings;

use super::configured::{
    bounded, guards, limits, listen_spec, on_end, operators, server_info, task_policy, thresholds,
};
use super::servers::{self, KnownServers};
use crate::config::{Config, Declared, Level, Listen};
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
        let limits =
            scarcity::within_files(limits(&config), operators(&config).len(), has_http, &servers);
        let (set_level, level) = (Arc::clone(&set_level), config.log.level.unwrap_or(level));
        Ok(Reloaded {
            set_level: Box::new(move || set_level(level)),
            settings: Arc::new(Settings {
                server: server_info(&config),
                limits,
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
pub(super) fn needs_restart(started: &Config, now: &Config) -> Vec<&'static str> {
    let is_stdio = |config: &Config| config.listen.contains(&Listen::Stdio);
    let (bounded_then, bounded_now) = (bounded(started), bounded(now));
    let is_new = |controller| {
        bounded_now.contains_key(&controller) && !bounded_then.contains_key(&controller)
    };
    let keys = [
        ("[otlp]", started.otlp != now.otlp),
        ("[fleet]", started.fleet != now.fleet),
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
    let of_tables = [
        started.daemon.differing_at_start(&now.daemon),
        started.limits.differing_at_start(&now.limits),
        started.tasks.differing_at_start(&now.tasks),
        started.log.differing_at_start(&now.log),
        started.metrics.differing_at_start(&now.metrics),
        started.alerts.differing_at_start(&now.alerts),
    ];
    let others = keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key);
    of_tables.into_iter().flatten().chain(others).collect()
}

#[cfg(test)]
mod tests;
