//! The configuration as written: every key optional, unknown keys rejected, values not validated
//! yet.
//!
//! Tables are parsed separately, so that one misspelt key hides no other problem.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeOwned, Visitor};

use serde::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue, Error, ValueDeserializer};

use super::check::Checker;
use super::error::{did_you_mean, shown};
use super::json::{Json, Ordered};
use super::values::Wording;
pub(super) use super::values::{Size, Span, Text, Whole};

/// The whole file.
#[derive(Debug, Default)]
pub(super) struct Raw {
    pub(super) daemon: Daemon,
    pub(super) listen: Vec<(usize, Listen)>,
    pub(super) limits: Limits,
    pub(super) tasks: Tasks,
    pub(super) log: Log,
    pub(super) metrics: Metrics,
    pub(super) alerts: Alerts,
    pub(super) otlp: Option<(usize, Otlp)>,
    pub(super) fleet: Option<(usize, Fleet)>,
    pub(super) tools: Vec<(usize, Tool)>,
    pub(super) common: Servers,
    pub(super) servers: Vec<(usize, Server)>,
    pub(super) agents: Vec<(usize, Agent)>,
    pub(super) profiles: Vec<(usize, Profile)>,
}

/// `[daemon]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Daemon {
    pub(super) state_dir: Option<Text>,
    pub(super) store: Option<Text>,
    pub(super) store_reserve: Option<Spanned<Size>>,
    pub(super) store_retry: Option<Spanned<Span>>,
    pub(super) damaged_store: Option<Text>,
    pub(super) workers: Option<Whole>,
    pub(super) queue: Option<Whole>,
    pub(super) shutdown_grace: Option<Spanned<Span>>,
    pub(super) eof_grace: Option<Spanned<Span>>,
    pub(super) on_disconnect: Option<Text>,
    pub(super) isolation: Option<Text>,
    pub(super) roots: Option<Spanned<Vec<Text>>>,
    pub(super) allow_run: Option<bool>,
    pub(super) operators: Option<Spanned<Vec<Text>>>,
    pub(super) heartbeat: Option<Text>,
    pub(super) text_limit: Option<Spanned<Size>>,
    pub(super) title: Option<String>,
    pub(super) website: Option<Text>,
    pub(super) instructions: Option<String>,
    pub(super) on_end: Option<Spanned<Vec<Text>>>,
    pub(super) on_end_after: Option<Spanned<Span>>,
    pub(super) on_end_timeout: Option<Spanned<Span>>,
    pub(super) on_end_running: Option<Whole>,
}

/// `[[listen]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listen {
    pub(super) transport: Option<Text>,
    pub(super) path: Option<Text>,
    pub(super) mode: Option<Spanned<Mode>>,
    pub(super) group: Option<Spanned<Account>>,
    pub(super) allow_users: Option<Spanned<Vec<Spanned<Account>>>>,
    pub(super) allow_groups: Option<Spanned<Vec<Spanned<Account>>>>,
    pub(super) address: Option<Text>,
    pub(super) token_file: Option<Text>,
    pub(super) anonymous: Option<Text>,
    pub(super) allow_origins: Option<Spanned<Vec<Text>>>,
    pub(super) session_idle: Option<Spanned<Span>>,
    pub(super) gone: Option<Spanned<Span>>,
    pub(super) keep_alive: Option<Spanned<Span>>,
    pub(super) sessions_per_identity: Option<Whole>,
    pub(super) connections_per_address: Option<Whole>,
    pub(super) replay_bytes: Option<Spanned<Size>>,
    pub(super) view: Option<Spanned<bool>>,
    pub(super) tls_cert: Option<Text>,
    pub(super) tls_key: Option<Text>,
    pub(super) resource: Option<Text>,
    pub(super) issuer: Option<Spanned<Vec<Text>>>,
    pub(super) audience: Option<Spanned<Vec<Text>>>,
    pub(super) jwks: Option<Text>,
    pub(super) issuer_ca_file: Option<Text>,
    pub(super) scopes: Option<Spanned<Vec<Text>>>,
    pub(super) groups_claim: Option<Text>,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) connections: Option<Whole>,
    pub(super) connections_per_identity: Option<Whole>,
    pub(super) operator_connections: Option<Whole>,
    pub(super) message_bytes: Option<Spanned<Size>>,
    pub(super) json_depth: Option<Whole>,
    pub(super) inflight_per_connection: Option<Whole>,
    pub(super) tasks_per_identity: Option<Whole>,
    pub(super) stored_tasks_per_identity: Option<Whole>,
    pub(super) stored_bytes_per_identity: Option<Spanned<Size>>,
    pub(super) resident_result_bytes: Option<Spanned<Size>>,
    pub(super) task_ops_per_second: Option<Whole>,
    pub(super) workers_per_identity: Option<Whole>,
    pub(super) queue_per_identity: Option<Whole>,
    pub(super) idempotency_keys_per_identity: Option<Whole>,
    pub(super) idempotency_ttl: Option<Spanned<Span>>,
    pub(super) output_bytes: Option<Spanned<Size>>,
    pub(super) output_bytes_per_identity: Option<Spanned<Size>>,
    pub(super) write_buffer_bytes: Option<Spanned<Size>>,
    pub(super) write_stall: Option<Spanned<Span>>,
    pub(super) authenticate_within: Option<Spanned<Span>>,
    pub(super) frame_time: Option<Spanned<Span>>,
    pub(super) held_bytes: Option<Spanned<Size>>,
    pub(super) held_bytes_per_identity: Option<Spanned<Size>>,
    pub(super) partial_bytes: Option<Spanned<Size>>,
    pub(super) partial_bytes_per_identity: Option<Spanned<Size>>,
    pub(super) asks_per_job: Option<Whole>,
    pub(super) parked_per_identity: Option<Whole>,
    pub(super) parked_for: Option<Spanned<Span>>,
    pub(super) subscriptions_per_connection: Option<Whole>,
    pub(super) tasks_per_subscription: Option<Whole>,
}

/// `[tasks]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tasks {
    pub(super) default_ttl: Option<Spanned<Span>>,
    pub(super) max_ttl: Option<Spanned<Span>>,
    pub(super) on_ttl: Option<Text>,
    pub(super) late_result: Option<Spanned<Span>>,
    pub(super) anonymous_ttl: Option<Spanned<Span>>,
    pub(super) poll_interval: Option<Spanned<Span>>,
    pub(super) page_size: Option<Whole>,
    pub(super) status_notifications: Option<bool>,
}

/// `[log]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    pub(super) level: Option<Text>,
    pub(super) audit: Option<Text>,
    pub(super) calls: Option<Text>,
    pub(super) redact: Option<Spanned<Vec<Text>>>,
    pub(super) ended_calls: Option<Whole>,
    pub(super) ended_for: Option<Spanned<Span>>,
}

/// `[metrics]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Metrics {
    pub(super) listen: Option<Text>,
}

/// `[otlp]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Otlp {
    pub(super) endpoint: Option<Text>,
    pub(super) headers_file: Option<Text>,
    pub(super) ca_file: Option<Text>,
    pub(super) service_name: Option<String>,
    pub(super) timeout: Option<Spanned<Span>>,
    pub(super) queue: Option<Whole>,
}

/// `[fleet]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fleet {
    pub(super) database: Option<Text>,
    pub(super) database_file: Option<Text>,
    pub(super) name: Option<String>,
    pub(super) lease: Option<Spanned<Span>>,
    pub(super) drain: Option<Spanned<Span>>,
    pub(super) on_engine_loss: Option<Text>,
    pub(super) shared_users: Option<bool>,
    pub(super) require: Option<Text>,
}

/// `[alerts]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Alerts {
    pub(super) high_water: Option<Whole>,
    pub(super) slow_stop: Option<Spanned<Span>>,
    pub(super) window: Option<Spanned<Span>>,
    pub(super) unknown_tasks: Option<Whole>,
    pub(super) fast_polls: Option<Whole>,
}

/// `[[tool]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tool {
    pub(super) name: Option<Text>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) command: Option<Spanned<Vec<Text>>>,
    pub(super) builtin: Option<Text>,
    pub(super) read_only: Option<bool>,
    pub(super) destructive: Option<bool>,
    pub(super) idempotent: Option<bool>,
    pub(super) open_world: Option<bool>,
    pub(super) icon: Option<Text>,
    pub(super) task_support: Option<Text>,
    pub(super) timeout: Option<Spanned<Span>>,
    pub(super) kill_grace: Option<Spanned<Span>>,
    pub(super) max_output: Option<Spanned<Size>>,
    pub(super) heartbeat: Option<Text>,
    pub(super) progress: Option<Text>,
    pub(super) output: Option<Text>,
    pub(super) output_schema: Option<Spanned<Json>>,
    pub(super) text_limit: Option<Spanned<Size>>,
    pub(super) cwd: Option<Text>,
    pub(super) env: Option<Spanned<Ordered<Text>>>,
    pub(super) pass_env: Option<Spanned<Vec<Text>>>,
    pub(super) env_file: Option<Text>,
    pub(super) inherit_env: Option<Spanned<bool>>,
    pub(super) stdin: Option<Text>,
    pub(super) confirm: Option<Text>,
    pub(super) run_as: Option<Text>,
    pub(super) isolation: Option<Text>,
    pub(super) memory_max: Option<Spanned<Size>>,
    pub(super) pids_max: Option<Whole>,
    pub(super) cpu_max: Option<Text>,
    pub(super) nice: Option<Whole>,
    pub(super) on_disconnect: Option<Text>,
    pub(super) allow: Option<Spanned<Vec<Text>>>,
    pub(super) max_running: Option<Whole>,
    pub(super) lock: Option<Text>,
    pub(super) on_end: Option<Spanned<Vec<Text>>>,
    pub(super) input: Option<Spanned<Ordered<Input>>>,
    pub(super) input_schema: Option<Spanned<Json>>,
}

/// `oauth` of a server.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Oauth {
    pub(super) grant: Option<Text>,
    pub(super) client_id: Option<Text>,
    pub(super) client_secret_file: Option<Text>,
    pub(super) client_metadata: Option<Text>,
    pub(super) scopes: Option<Spanned<Vec<Text>>>,
}

/// `[servers]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Servers {
    pub(super) start_at_once: Option<Whole>,
}

/// `[[server]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Server {
    pub(super) name: Option<Text>,
    pub(super) command: Option<Spanned<Vec<Text>>>,
    pub(super) url: Option<Text>,
    pub(super) headers: Option<Spanned<Ordered<Text>>>,
    pub(super) headers_file: Option<Text>,
    pub(super) token_file: Option<Text>,
    pub(super) oauth: Option<Spanned<Oauth>>,
    pub(super) protocol: Option<Text>,
    pub(super) connect_timeout: Option<Spanned<Span>>,
    pub(super) read_timeout: Option<Spanned<Span>>,
    pub(super) max_connections: Option<Whole>,
    pub(super) ca_file: Option<Text>,
    pub(super) client_cert: Option<Text>,
    pub(super) client_key: Option<Text>,
    pub(super) allow_private: Option<Spanned<bool>>,
    pub(super) cwd: Option<Text>,
    pub(super) env: Option<Spanned<Ordered<Text>>>,
    pub(super) pass_env: Option<Spanned<Vec<Text>>>,
    pub(super) env_file: Option<Text>,
    pub(super) inherit_env: Option<Spanned<bool>>,
    pub(super) prefix: Option<Text>,
    pub(super) revision: Option<Text>,
    pub(super) share: Option<Text>,
    pub(super) warm: Option<Whole>,
    pub(super) start: Option<Text>,
    pub(super) start_timeout: Option<Spanned<Span>>,
    pub(super) idle_exit: Option<Text>,
    pub(super) max_instances: Option<Whole>,
    pub(super) max_instances_per_identity: Option<Whole>,
    pub(super) max_calls: Option<Whole>,
    pub(super) timeout: Option<Spanned<Span>>,
    pub(super) heartbeat: Option<Text>,
    pub(super) cancel_grace: Option<Spanned<Span>>,
    pub(super) kill_grace: Option<Spanned<Span>>,
    pub(super) drain: Option<Spanned<Span>>,
    pub(super) on_ignored_cancel: Option<Text>,
    pub(super) task_support: Option<Text>,
    pub(super) pin: Option<Text>,
    pub(super) tools: Option<Spanned<Vec<Text>>>,
    pub(super) hide: Option<Spanned<Vec<Text>>>,
    pub(super) allow: Option<Spanned<Vec<Text>>>,
    pub(super) confirm: Option<Spanned<Ordered<Text>>>,
    pub(super) run_as: Option<Text>,
    pub(super) isolation: Option<Text>,
    pub(super) memory_max: Option<Spanned<Size>>,
    pub(super) pids_max: Option<Whole>,
    pub(super) cpu_max: Option<Text>,
    pub(super) nice: Option<Whole>,
}

/// `[[agent]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Agent {
    pub(super) name: Option<Text>,
    pub(super) command: Option<Spanned<Vec<Text>>>,
    pub(super) cwd: Option<Text>,
    pub(super) env: Option<Spanned<Ordered<Text>>>,
    pub(super) pass_env: Option<Spanned<Vec<Text>>>,
    pub(super) env_file: Option<Text>,
    pub(super) inherit_env: Option<Spanned<bool>>,
    pub(super) start_timeout: Option<Spanned<Span>>,
    pub(super) max_instances: Option<Whole>,
    pub(super) max_instances_per_identity: Option<Whole>,
    pub(super) turn_timeout: Option<Text>,
    pub(super) stall_timeout: Option<Text>,
    pub(super) cancel_grace: Option<Spanned<Span>>,
    pub(super) kill_grace: Option<Spanned<Span>>,
    pub(super) drain: Option<Spanned<Span>>,
    pub(super) on_ignored_cancel: Option<Text>,
    pub(super) allow: Option<Spanned<Vec<Text>>>,
    pub(super) run_as: Option<Text>,
    pub(super) isolation: Option<Text>,
    pub(super) memory_max: Option<Spanned<Size>>,
    pub(super) pids_max: Option<Whole>,
    pub(super) cpu_max: Option<Text>,
    pub(super) nice: Option<Whole>,
}

/// `[[profile]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    pub(super) name: Option<Text>,
    pub(super) servers: Option<Spanned<Vec<Text>>>,
    pub(super) tools: Option<Spanned<Vec<Text>>>,
    pub(super) hide: Option<Spanned<Vec<Text>>>,
    pub(super) allow: Option<Spanned<Vec<Text>>>,
}

/// `[tool.input.NAME]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    pub(super) r#type: Option<Text>,
    pub(super) description: Option<String>,
    pub(super) required: Option<bool>,
    pub(super) default: Option<Spanned<Json>>,
    pub(super) r#enum: Option<Spanned<Vec<Json>>>,
    pub(super) minimum: Option<Spanned<Json>>,
    pub(super) maximum: Option<Spanned<Json>>,
}

/// The permission bits of a socket as written.
#[derive(Debug)]
pub(super) struct Mode(pub(super) String);

/// A user or a group as written: its name, or its number as text.
#[derive(Debug)]
pub(super) struct Account(pub(super) String);

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Wording("octal digits in quotes, such as \"0600\"", Self))
    }
}

impl<'de> Deserialize<'de> for Account {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Account;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name such as \"alice\", or a number")
            }

            fn visit_str<E>(self, text: &str) -> Result<Account, E> {
                Ok(Account(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Account, E> {
                Ok(Account(number.to_string()))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// The tables of a file.
const TABLES: [&str; 14] = [
    "daemon", "listen", "limits", "tasks", "log", "metrics", "alerts", "otlp", "fleet", "servers",
    "tool", "server", "agent", "profile",
];

/// Parses all valid tables and reports the problems of the others.
pub(super) fn read(check: &mut Checker<'_>) -> Raw {
    let mut raw = Raw::default();
    let root = match DeTable::parse(check.text) {
        Ok(root) => root.into_inner(),
        Err(error) => {
            syntax(&error, check);
            return raw;
        }
    };
    for (key, value) in &root {
        let (name, at) = (key.get_ref().as_ref(), key.span().start);
        match name {
            "daemon" => raw.daemon = table(&root, "[daemon]", value, check).unwrap_or_default(),
            "limits" => raw.limits = table(&root, "[limits]", value, check).unwrap_or_default(),
            "tasks" => raw.tasks = table(&root, "[tasks]", value, check).unwrap_or_default(),
            "log" => raw.log = table(&root, "[log]", value, check).unwrap_or_default(),
            "metrics" => raw.metrics = table(&root, "[metrics]", value, check).unwrap_or_default(),
            "alerts" => raw.alerts = table(&root, "[alerts]", value, check).unwrap_or_default(),
            "otlp" => {
                let otlp = table(&root, "[otlp]", value, check);
                raw.otlp = otlp.map(|otlp| (value.span().start, otlp));
            }
            "fleet" => {
                let fleet = table(&root, "[fleet]", value, check);
                raw.fleet = fleet.map(|fleet| (value.span().start, fleet));
            }
            "servers" => raw.common = table(&root, "[servers]", value, check).unwrap_or_default(),
            "listen" => raw.listen = tables(&root, name, value, check),
            "tool" => raw.tools = tables(&root, name, value, check),
            "server" => raw.servers = tables(&root, name, value, check),
            "agent" => raw.agents = tables(&root, name, value, check),
            "profile" => raw.profiles = tables(&root, name, value, check),
            _ => check.problem(
                at,
                format!("unknown table or key `{name}`"),
                did_you_mean(name, "tables", &TABLES),
            ),
        }
    }
    raw
}

/// Parses a table, or reports the problem.
fn table<T: DeserializeOwned>(
    root: &DeTable<'_>,
    heading: &str,
    value: &Spanned<DeValue<'_>>,
    check: &mut Checker<'_>,
) -> Option<T> {
    // Serde would read an array as the values of a struct without its keys.
    if value.get_ref().is_array() {
        let what = format!("{heading} is {}", written(value.span(), check));
        check.problem(value.span().start, what, format!("it takes a table, headed {heading}"));
        return None;
    }
    // Each attempt finds one problem: without its key, the next attempt finds another.
    let mut left = value.clone();
    loop {
        let error = match T::deserialize(ValueDeserializer::from(left.clone())) {
            Ok(table) => return Some(table),
            Err(error) => error,
        };
        explain(&error, root, value.span(), check);
        let at = error.span()?.start;
        let DeValue::Table(table) = left.get_mut() else { return None };
        if !remove(table, at, &mut check.partial) {
            return None;
        }
        check.partial.push(value.span().start);
    }
}

/// Removes the innermost key whose name or value covers the byte at `at`. The starts of the tables
/// around it are added to `partial`.
fn remove(table: &mut DeTable<'_>, at: usize, partial: &mut Vec<usize>) -> bool {
    let mut covering = None;
    for (key, value) in table.iter_mut() {
        let is_inside = match value.get_mut() {
            DeValue::Table(inner) => remove(inner, at, partial),
            DeValue::Array(items) => items.iter_mut().any(|item| match item.get_mut() {
                DeValue::Table(inner) => remove(inner, at, partial),
                DeValue::Array(_)
                | DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_) => false,
            }),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => false,
        };
        if is_inside {
            partial.push(key.span().start);
            return true;
        }
        if key.span().contains(&at) || value.span().contains(&at) {
            covering = Some(key.get_ref().clone().into_owned());
            break;
        }
    }
    covering.is_some_and(|name| table.remove(name.as_str()).is_some())
}

/// Parses the valid tables of an array of tables, with the position of each.
fn tables<T: DeserializeOwned>(
    root: &DeTable<'_>,
    name: &str,
    value: &Spanned<DeValue<'_>>,
    check: &mut Checker<'_>,
) -> Vec<(usize, T)> {
    let Some(items) = value.get_ref().as_array() else {
        check.problem(
            value.span().start,
            format!("`{name}` is not an array of tables"),
            format!("begin each one with a line [[{name}]]"),
        );
        return Vec::new();
    };
    let heading = format!("[[{name}]]");
    let mut read = |item| table(root, &heading, item, check);
    items.iter().filter_map(|item| Some((item.span().start, read(item)?))).collect()
}

/// Reports a TOML syntax error.
fn syntax(error: &Error, check: &mut Checker<'_>) {
    let at = error.span().map_or(0, |span| span.start);
    let start = check.text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |nl| nl + 1);
    let line =
        shown(check.text.get(start..).unwrap_or_default().lines().next().unwrap_or_default());
    let mut message = error.message().replace('\n', ", ");
    if let Some(key) = error.span().filter(|_| message == "duplicate key") {
        message.push_str(&format!(" `{}`", shown(check.text.get(key).unwrap_or_default())));
    }
    let what = format!("this is not valid TOML: {message}");
    check.problem(at, what, format!("the line reads `{line}`"));
}

/// Hint about a key that was removed.
fn removed(table: &str, key: &str) -> Option<&'static str> {
    match (table, key) {
        ("[[tool]]", "inline") => Some("inline calls were removed: delete this line"),
        _ => None,
    }
}

/// Reports a value of the wrong type.
fn explain(error: &Error, root: &DeTable<'_>, table: Range<usize>, check: &mut Checker<'_>) {
    let span = error.span().unwrap_or(table);
    let place = place_of(root, "", "the file", span.start)
        .unwrap_or_else(|| Place { table: "the file".into(), key: "a value".into() });
    let message = error.message();
    let mut quoted = message.split('`').skip(1).step_by(2);
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let name = quoted.next().unwrap_or(rest);
        let known: Vec<&str> = quoted.collect();
        let hint = removed(&place.table, name)
            .map_or_else(|| did_you_mean(name, "keys", &known), str::to_owned);
        check.problem(span.start, format!("unknown key `{name}` in {}", place.table), hint);
        return;
    }
    let written = written(span.clone(), check);
    let expected = message.rsplit_once(", expected ").map_or(message, |(_, expected)| expected);
    let expected = match expected {
        "u64" => "a whole number from 0 up",
        "a boolean" => "true or false",
        // Type errors of dates, which the parser hands over in a form of its own.
        "floating-point number overflowed" => "a number of a magnitude below 1.8e308",
        "a spanned value" => "a string, number, boolean, array or table",
        "a sequence" => "an array such as [\"first\", \"second\"]",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    let what = format!("`{}` in {} is {written}", place.key, place.table);
    check.problem(span.start, what, format!("it takes {expected}"));
}

/// The text at `span`, as quoted in a message.
fn written(span: Range<usize>, check: &Checker<'_>) -> String {
    shown(check.text.get(span).unwrap_or_default())
}

/// A key and the heading of its table.
struct Place {
    table: String,
    key: String,
}

/// The innermost key below `path` whose name or value covers the byte at `at`.
fn place_of(table: &DeTable<'_>, path: &str, heading: &str, at: usize) -> Option<Place> {
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        let here = || Some(Place { table: heading.to_owned(), key: name.to_owned() });
        if key.span().contains(&at) {
            return here();
        }
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        // The span of a table with a header is only the header: search its content through its
        // keys.
        let inner = match value.get_ref() {
            DeValue::Table(inner) => place_of(inner, &path, &format!("[{path}]"), at),
            DeValue::Array(items) => items
                .iter()
                .filter_map(|item| item.get_ref().as_table())
                .find_map(|item| place_of(item, &path, &format!("[[{path}]]"), at)),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => None,
        };
        if inner.is_some() {
            return inner;
        }
        if value.span().contains(&at) {
            return here();
        }
    }
    None
}
