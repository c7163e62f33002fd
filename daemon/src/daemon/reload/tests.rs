//! Every configuration key is applied at a reload, or named as one that needs a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::*;
use crate::config::declared_keys;
use crate::tools::catalog::{Payload, PayloadRun};

/// Every key outside the lists of tables, and a value other than the default.
const KEYS: &[(&str, &str)] = &[
    ("daemon.state_dir", "\"/elsewhere\""),
    ("daemon.store", "\"memory\""),
    ("daemon.store_reserve", "\"9MiB\""),
    ("daemon.store_retry", "\"3s\""),
    ("daemon.damaged_store", "\"set_aside\""),
    ("daemon.workers", "3"),
    ("daemon.queue", "3"),
    ("daemon.shutdown_grace", "\"3s\""),
    ("daemon.eof_grace", "\"3s\""),
    ("daemon.on_disconnect", "\"detach\""),
    ("daemon.isolation", "\"pid\""),
    ("daemon.roots", "[\"/srv\"]"),
    ("daemon.allow_run", "true"),
    ("daemon.operators", "[\"token:x\"]"),
    ("daemon.heartbeat", "\"3s\""),
    ("daemon.text_limit", "\"3KiB\""),
    ("daemon.title", "\"x\""),
    ("daemon.website", "\"https://x\""),
    ("daemon.instructions", "\"x\""),
    ("limits.output_bytes", "\"3MiB\""),
    ("limits.output_bytes_per_identity", "\"3KiB\""),
    ("limits.connections", "3"),
    ("limits.connections_per_identity", "3"),
    ("limits.operator_connections", "3"),
    ("limits.message_bytes", "\"5KiB\""),
    ("limits.inflight_per_connection", "3"),
    ("limits.json_depth", "64"),
    ("limits.tasks_per_identity", "3"),
    ("limits.stored_tasks_per_identity", "3"),
    ("limits.stored_bytes_per_identity", "\"3MiB\""),
    ("limits.resident_result_bytes", "\"3KiB\""),
    ("limits.task_ops_per_second", "3"),
    ("limits.workers_per_identity", "3"),
    ("limits.queue_per_identity", "3"),
    ("limits.idempotency_keys_per_identity", "3"),
    ("limits.idempotency_ttl", "\"3s\""),
    ("limits.write_buffer_bytes", "\"70KiB\""),
    ("limits.write_stall", "\"3s\""),
    ("limits.authenticate_within", "\"3s\""),
    ("limits.frame_time", "\"3s\""),
    ("limits.held_bytes", "\"300MiB\""),
    ("limits.held_bytes_per_identity", "\"30MiB\""),
    ("limits.partial_bytes", "\"300MiB\""),
    ("limits.partial_bytes_per_identity", "\"30MiB\""),
    ("limits.asks_per_job", "3"),
    ("limits.parked_per_identity", "3"),
    ("limits.parked_for", "\"3s\""),
    ("limits.subscriptions_per_connection", "3"),
    ("limits.tasks_per_subscription", "3"),
    ("daemon.on_end", "[\"x\"]"),
    ("daemon.on_end_after", "\"3s\""),
    ("daemon.on_end_timeout", "\"3s\""),
    ("daemon.on_end_running", "3"),
    ("tasks.default_ttl", "\"3s\""),
    ("tasks.max_ttl", "\"90m\""),
    ("tasks.on_ttl", "\"stop\""),
    ("tasks.late_result", "\"3s\""),
    ("tasks.anonymous_ttl", "\"3s\""),
    ("tasks.poll_interval", "\"3s\""),
    ("tasks.page_size", "3"),
    ("tasks.status_notifications", "false"),
    ("log.level", "\"debug\""),
    ("log.audit", "\"/elsewhere\""),
    ("log.calls", "\"none\""),
    ("log.redact", "[\"x\"]"),
    ("log.ended_calls", "3"),
    ("log.ended_for", "\"3h\""),
    ("metrics.listen", "\"127.0.0.1:9464\""),
    ("servers.start_at_once", "3"),
    ("alerts.high_water", "3"),
    ("alerts.slow_stop", "\"3s\""),
    ("alerts.window", "\"3s\""),
    ("alerts.unknown_tasks", "3"),
    ("alerts.fast_polls", "3"),
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
    let declared: BTreeMap<&str, bool> =
        declared_keys().into_iter().chain([("servers.start_at_once", false)]).collect();
    let known: BTreeSet<&str> = KEYS.iter().map(|(key, _)| *key).collect();
    assert_eq!(known, declared.keys().copied().collect(), "the test knows other keys");
    let known: BTreeSet<String> = known.into_iter().map(str::to_owned).collect();
    assert_eq!(known, documented(), "the reference has other keys");
    let (before, warned) = reloaded("");
    assert_eq!(warned, Vec::<&str>::new());
    let mut wrong = BTreeMap::new();
    for (key, value) in KEYS {
        let needs_restart = declared.get(key).copied().unwrap_or_default();
        let (table, name) = key.split_once('.').unwrap();
        let (after, warned) = reloaded(&format!("[{table}]\n{name} = {value}\n"));
        let expected: Vec<&str> = needs_restart.then_some(*key).into_iter().collect();
        if warned != expected || (after != before) == needs_restart {
            wrong.insert(*key, (warned, after != before));
        }
    }
    assert!(wrong.is_empty(), "warned of, applied: {wrong:#?}");
    let otlp = reloaded("[otlp]\nendpoint = \"http://127.0.0.1:4318\"\n");
    assert_eq!(otlp, (before.clone(), vec!["[otlp]"]));
    let fleet = reloaded("[fleet]\ndatabase = \"postgres://ceased@db/ceased\"\n");
    assert_eq!(fleet, (before, vec!["[fleet]"]));
}

/// The page about reloads names the keys that a reload does not apply.
#[test]
fn keys_that_need_a_restart_are_documented() {
    let page = include_str!("../../../../docs/src/operations/reload.md");
    let sentence = page.split("\n\n").find(|text| text.starts_with("These keys need a restart"));
    let named = sentence.expect("the sentence").split('`').skip(1).step_by(2);
    let named: BTreeSet<&str> = named.filter(|name| name.contains('.')).collect();
    let at_start = declared_keys().into_iter().filter(|(_, at_start)| *at_start);
    assert_eq!(named, at_start.map(|(key, _)| key).collect());
}
