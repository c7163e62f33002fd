//! Every configuration key is applied at a reload, or named as one that needs a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::*;
use crate::tools::catalog::{Payload, PayloadRun};

/// Every key outside the lists of tables, a value other than the default, and whether a reload
/// warns instead of applying it.
const KEYS: &[(&str, &str, bool)] = &[
    ("daemon.state_dir", "\"/elsewhere\"", true),
    ("daemon.store", "\"memory\"", true),
    ("daemon.store_reserve", "\"9MiB\"", true),
    ("daemon.store_retry", "\"3s\"", false),
    ("daemon.damaged_store", "\"set_aside\"", true),
    ("daemon.workers", "3", false),
    ("daemon.queue", "3", false),
    ("daemon.shutdown_grace", "\"3s\"", false),
    ("daemon.eof_grace", "\"3s\"", false),
    ("daemon.on_disconnect", "\"detach\"", false),
    ("daemon.isolation", "\"pid\"", false),
    ("daemon.roots", "[\"/srv\"]", false),
    ("daemon.allow_run", "true", false),
    ("daemon.operators", "[\"token:x\"]", false),
    ("daemon.heartbeat", "\"3s\"", false),
    ("daemon.text_limit", "\"3KiB\"", false),
    ("daemon.title", "\"x\"", false),
    ("daemon.website", "\"https://x\"", false),
    ("daemon.instructions", "\"x\"", false),
    ("limits.output_bytes", "\"3MiB\"", false),
    ("limits.output_bytes_per_identity", "\"3KiB\"", false),
    ("limits.connections", "3", false),
    ("limits.connections_per_identity", "3", false),
    ("limits.operator_connections", "3", false),
    ("limits.message_bytes", "\"5KiB\"", false),
    ("limits.inflight_per_connection", "3", false),
    ("limits.json_depth", "64", false),
    ("limits.tasks_per_identity", "3", false),
    ("limits.stored_tasks_per_identity", "3", false),
    ("limits.stored_bytes_per_identity", "\"3MiB\"", false),
    ("limits.resident_result_bytes", "\"3KiB\"", false),
    ("limits.task_ops_per_second", "3", false),
    ("limits.workers_per_identity", "3", false),
    ("limits.queue_per_identity", "3", false),
    ("limits.idempotency_keys_per_identity", "3", false),
    ("limits.idempotency_ttl", "\"3s\"", false),
    ("limits.write_buffer_bytes", "\"70KiB\"", false),
    ("limits.write_stall", "\"3s\"", false),
    ("limits.authenticate_within", "\"3s\"", false),
    ("limits.frame_time", "\"3s\"", false),
    ("limits.held_bytes", "\"300MiB\"", false),
    ("limits.held_bytes_per_identity", "\"30MiB\"", false),
    ("limits.partial_bytes", "\"300MiB\"", false),
    ("limits.partial_bytes_per_identity", "\"30MiB\"", false),
    ("limits.asks_per_job", "3", false),
    ("limits.parked_per_identity", "3", false),
    ("limits.parked_for", "\"3s\"", false),
    ("limits.subscriptions_per_connection", "3", false),
    ("limits.tasks_per_subscription", "3", false),
    ("daemon.on_end", "[\"x\"]", false),
    ("daemon.on_end_after", "\"3s\"", false),
    ("daemon.on_end_timeout", "\"3s\"", false),
    ("daemon.on_end_running", "3", false),
    ("tasks.default_ttl", "\"3s\"", false),
    ("tasks.max_ttl", "\"90m\"", false),
    ("tasks.on_ttl", "\"stop\"", false),
    ("tasks.late_result", "\"3s\"", false),
    ("tasks.anonymous_ttl", "\"3s\"", false),
    ("tasks.poll_interval", "\"3s\"", false),
    ("tasks.page_size", "3", false),
    ("tasks.status_notifications", "false", false),
    ("log.level", "\"debug\"", false),
    ("log.audit", "\"/elsewhere\"", true),
    ("log.calls", "\"none\"", true),
    ("log.redact", "[\"x\"]", true),
    ("log.ended_calls", "3", true),
    ("log.ended_for", "\"3h\"", true),
    ("metrics.listen", "\"127.0.0.1:9464\"", true),
    ("servers.start_at_once", "3", false),
    ("alerts.high_water", "3", false),
    ("alerts.slow_stop", "\"3s\"", false),
    ("alerts.window", "\"3s\"", false),
    ("alerts.unknown_tasks", "3", false),
    ("alerts.fast_polls", "3", false),
];

const REST: &str = "[[listen]]\ntransport = \"unix\"\npath = \"/run/x.sock\"\n\
                    [[tool]]\nname = \"t\"\ncommand = [\"true\"]\ncwd = \"client\"\n";

/// The documented keys, except those of listeners and tools.
fn documented() -> BTreeSet<String> {
    let file = include_str!("../../../../config.toml");
    let (file, _) = file.split_once("\n# Tools. Each has a `name`").expect("they come last");
    let (mut table, mut keys) = (String::new(), BTreeSet::new());
    for line in file.lines() {
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']').to_owned();
        }
        let example = line.strip_prefix("#     ");
        // A table that is there only where it is written.
        if example.is_some_and(|line| line.starts_with('[')) {
            table = "[".to_owned();
        }
        let key = example.or(line.strip_prefix('#')).unwrap_or(line).split_once(" = ");
        let is_key = |key: &str| key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        if let Some((key, _)) = key.filter(|(key, _)| is_key(key))
            && !table.starts_with('[')
        {
            keys.insert(format!("{table}.{key}"));
        }
    }
    keys
}

/// The reloaded settings as text, and the warnings.
fn reloaded(text: &str) -> (String, Vec<&'static str>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let started = Config::parse(REST, &path).unwrap();
    std::fs::write(&path, format!("{text}\n{REST}")).unwrap();
    let level = Arc::new(Mutex::new(Level::Off));
    let set = Arc::clone(&level);
    let set_level: SetLevel = Arc::new(move |level| *set.lock().unwrap() = level);
    let load = Arc::new(move || Config::load(&path).map_err(|why| why.to_string()));
    let brought = reload(load, started, true, Level::Info, set_level, KnownServers::default())()
        .unwrap_or_else(|why| panic!("{why}"));
    let Reloaded { settings, set_level, needs_restart, .. } = &brought;
    set_level();
    let isolation = |tool| match Payload::of(tool).map(|payload| &payload.run) {
        Some(PayloadRun::Command { command, .. }) => {
            Some((command.isolation, &command.client_roots, command.text_limit))
        }
        Some(PayloadRun::Handler(_)) | None => None,
    };
    let tools =
        settings.catalog.iter().map(|tool| (&tool.on_disconnect, tool.heartbeat, isolation(tool)));
    let tools: Vec<_> = tools.collect();
    let level = *level.lock().unwrap();
    let times = (brought.shutdown_grace, brought.eof_grace, brought.authenticate_within);
    let (guards, thresholds) = (&brought.guards, &brought.thresholds);
    let (limits, tasks) = (&settings.limits, &settings.tasks);
    let (server, run, starts) = (&settings.server, &settings.run, settings.start_at_once);
    let (operators, on_end) = (&settings.operators, &brought.on_end);
    let told = format!(
        "{operators:?} {on_end:?} {server:?} {run:?} {starts} {limits:?} {tasks:?} {tools:?} {level:?} {times:?} {guards:?} {thresholds:?}"
    );
    (told, needs_restart.clone())
}

#[test]
fn every_key_is_applied_or_warned_about() {
    let known: BTreeSet<String> = KEYS.iter().map(|(key, ..)| (*key).to_owned()).collect();
    assert_eq!(known, documented(), "the reference has other keys than this test");
    let (before, warned) = reloaded("");
    assert_eq!(warned, Vec::<&str>::new());
    let mut wrong = BTreeMap::new();
    for (key, value, needs_restart) in KEYS {
        let (table, name) = key.split_once('.').unwrap();
        let (after, warned) = reloaded(&format!("[{table}]\n{name} = {value}\n"));
        let expected: Vec<&str> = needs_restart.then_some(*key).into_iter().collect();
        if warned != expected || (after != before) == *needs_restart {
            wrong.insert(*key, (warned, after != before));
        }
    }
    assert!(wrong.is_empty(), "warned of, applied: {wrong:#?}");
    let otlp = reloaded("[otlp]\nendpoint = \"http://127.0.0.1:4318\"\n");
    assert_eq!(otlp, (before.clone(), vec!["[otlp]"]));
    let fleet = reloaded("[fleet]\ndatabase = \"postgres://ceased@db/ceased\"\n");
    assert_eq!(fleet, (before, vec!["[fleet]"]));
}
