//! `[daemon]`, `[limits]`, `[tasks]` and `[log]`: defaults and valid ranges.

use std::path::PathBuf;
use std::time::Duration;

use super::check::{Checker, Key};
use super::identities;
use super::units::{parse_duration, show_duration};
use super::{
    Daemon, Keeping, Level, Limits, Log, OnDisconnect, OnEnd, OnTtl, RecordCalls, Tasks, raw,
};
use crate::store::Damaged;
use ceased_process::Isolation;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// Upper bound of durations: beyond any sensible use and far below the range of a clock.
pub(super) const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// More often, and heartbeats are work for a client.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);

/// A smaller depth rejects calls with arguments; a larger one exceeds the recursion limit of the
/// parser.
const DEPTHS: std::ops::RangeInclusive<u64> = 8..=128;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Schemes of a page of the server.
const WEB: [&str; 2] = ["https:", "http:"];

pub(super) fn daemon(raw: &raw::Daemon, check: &mut Checker<'_>) -> Daemon {
    let key = |name| Key { table: "[daemon]", name };
    let daemon = without_endings(raw, check);
    Daemon {
        on_end: on_end(key("on_end"), raw.on_end.as_ref(), check).unwrap_or_default(),
        on_end_after: check.duration(
            key("on_end_after"),
            raw.on_end_after.as_ref(),
            daemon.on_end_after,
            Duration::ZERO..=24 * HOUR,
        ),
        on_end_timeout: check.duration(
            key("on_end_timeout"),
            raw.on_end_timeout.as_ref(),
            daemon.on_end_timeout,
            100 * MS..=HOUR,
        ),
        on_end_running: check.whole(
            key("on_end_running"),
            raw.on_end_running.as_ref(),
            daemon.on_end_running,
            1..=256,
        ),
        ..daemon
    }
}

/// `[daemon]` without the keys of `on_end`.
fn without_endings(raw: &raw::Daemon, check: &mut Checker<'_>) -> Daemon {
    let key = |name| Key { table: "[daemon]", name };
    let default = Daemon::default_in(check.environment);
    let state_dir = match &raw.state_dir {
        None => default.state_dir,
        Some(written) => check.path(key("state_dir"), written).unwrap_or(default.state_dir),
    };
    Daemon {
        state_dir,
        store: check.choice(
            key("store"),
            raw.store.as_ref(),
            default.store,
            &[("auto", Keeping::Auto), ("disk", Keeping::Disk), ("memory", Keeping::Memory)],
        ),
        store_reserve: check.size(
            key("store_reserve"),
            raw.store_reserve.as_ref(),
            default.store_reserve,
            0..=GIB,
        ),
        store_retry: check.duration(
            key("store_retry"),
            raw.store_retry.as_ref(),
            default.store_retry,
            100 * MS..=HOUR,
        ),
        damaged_store: check.choice(
            key("damaged_store"),
            raw.damaged_store.as_ref(),
            default.damaged_store,
            &[("refuse", Damaged::Refuse), ("set_aside", Damaged::SetAside)],
        ),
        workers: check.whole(key("workers"), raw.workers.as_ref(), default.workers, 1..=4096),
        queue: check.whole(key("queue"), raw.queue.as_ref(), default.queue, 0..=1_000_000),
        shutdown_grace: check.duration(
            key("shutdown_grace"),
            raw.shutdown_grace.as_ref(),
            default.shutdown_grace,
            MS..=HOUR,
        ),
        eof_grace: check.duration(
            key("eof_grace"),
            raw.eof_grace.as_ref(),
            default.eof_grace,
            Duration::ZERO..=HOUR,
        ),
        on_disconnect: raw
            .on_disconnect
            .as_ref()
            .and_then(|written| on_disconnect(key("on_disconnect"), written, check))
            .unwrap_or(default.on_disconnect),
        isolation: isolation(key("isolation"), raw.isolation.as_ref(), default.isolation, check),
        roots: roots(key("roots"), raw.roots.as_ref(), check),
        allow_run: raw.allow_run.unwrap_or(default.allow_run),
        operators: identities::operators(key("operators"), raw.operators.as_ref(), check),
        heartbeat: heartbeat(key("heartbeat"), raw.heartbeat.as_ref(), default.heartbeat, check),
        text_limit: check.size(
            key("text_limit"),
            raw.text_limit.as_ref(),
            default.text_limit,
            TEXT_LIMITS,
        ),
        title: raw.title.clone(),
        website: raw.website.as_ref().and_then(|it| uri(key("website"), it, &WEB, check)),
        instructions: raw.instructions.clone(),
        ..default
    }
}

/// A command after the end of a call; `None` if there is none, or it is wrong, which has been noted.
pub(super) fn on_end(
    key: Key,
    raw: Option<&toml::Spanned<Vec<raw::Text>>>,
    check: &mut Checker<'_>,
) -> Option<OnEnd> {
    let written = raw?.get_ref();
    let mut elements: Vec<String> = written.iter().map(|text| text.get_ref().clone()).collect();
    let program = elements.first_mut().filter(|program| program.contains('/'));
    let anchored = program.map(|program| {
        let (base, rest) = check.anchored(program).map_err(|why| (0, why.to_owned()))?;
        *program = base.join(rest).to_string_lossy().into_owned();
        Ok(())
    });
    let elements: Vec<&str> = elements.iter().map(String::as_str).collect();
    match anchored.transpose().and_then(|_| OnEnd::new(&elements)) {
        Ok(on_end) => Some(on_end),
        Err((at, why)) => {
            let element = written.get(at)?;
            check.bad_value(key, element.span().start, &format!("{:?}", element.get_ref()), why);
            None
        }
    }
}

/// Directories below which clients choose where a tool runs.
fn roots(
    key: Key,
    written: Option<&toml::Spanned<Vec<raw::Text>>>,
    check: &mut Checker<'_>,
) -> Vec<PathBuf> {
    let written = written.into_iter().flat_map(|list| list.get_ref());
    written.filter_map(|root| check.path(key, root)).collect()
}

/// Isolation of commands from other processes.
pub(super) fn isolation(
    key: Key,
    written: Option<&raw::Text>,
    default: Isolation,
    check: &mut Checker<'_>,
) -> Isolation {
    check.choice(key, written, default, &[("none", Isolation::None), ("pid", Isolation::Pid)])
}

/// Effect of a disconnect on a plain call.
pub(super) fn on_disconnect(
    key: Key,
    written: &raw::Text,
    check: &mut Checker<'_>,
) -> Option<OnDisconnect> {
    let text = written.get_ref();
    match text.as_str() {
        "cancel" => return Some(OnDisconnect::Cancel),
        "detach" => return Some(OnDisconnect::Detach),
        _ => {}
    }
    if let Ok(grace) = parse_duration(text)
        && (MS..=HOUR).contains(&grace)
    {
        return Some(OnDisconnect::Grace(grace));
    }
    let hint = "it takes \"cancel\", \"detach\", or how long the call continues, such as \"30s\", \
                up to 1h";
    check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
    None
}

/// Less, and a verdict is all that fits; more, and no model can read it.
pub(super) const TEXT_LIMITS: std::ops::RangeInclusive<u64> = KIB..=16 * MIB;

/// A URI of one of these schemes.
pub(super) fn uri(
    key: Key,
    written: &raw::Text,
    schemes: &[&str],
    check: &mut Checker<'_>,
) -> Option<String> {
    let text = written.get_ref();
    let known = schemes.iter().any(|scheme| text.len() > scheme.len() && text.starts_with(scheme));
    if known && !text.contains(char::is_whitespace) {
        return Some(text.clone());
    }
    let hint = format!("it takes a URI that begins with {}", schemes.join(" or "));
    check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
    None
}

/// The time between heartbeats; off for `None`.
pub(super) fn heartbeat(
    key: Key,
    written: Option<&raw::Text>,
    default: Option<Duration>,
    check: &mut Checker<'_>,
) -> Option<Duration> {
    let Some(written) = written else { return default };
    let text = written.get_ref();
    let span = if text == "off" { Ok(Duration::ZERO) } else { parse_duration(text) };
    match span {
        Ok(Duration::ZERO) => None,
        Ok(span) if (HEARTBEAT_MIN..=HOUR).contains(&span) => Some(span),
        Ok(_) | Err(_) => {
            let hint = "it takes 100ms to 1h, such as \"10s\", or \"off\"";
            check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
            default
        }
    }
}

pub(super) fn limits(raw: &raw::Limits, check: &mut Checker<'_>) -> Limits {
    let key = |name| Key { table: "[limits]", name };
    let default = Limits::default();
    let mut count = |name, raw: &Option<raw::Whole>, default, most| {
        check.whole(key(name), raw.as_ref(), default, 1..=most)
    };
    let connections = count("connections", &raw.connections, default.connections, 100_000);
    let operator_connections = count(
        "operator_connections",
        &raw.operator_connections,
        default.operator_connections,
        1024,
    );
    let inflight_per_connection = count(
        "inflight_per_connection",
        &raw.inflight_per_connection,
        default.inflight_per_connection,
        100_000,
    );
    let tasks_per_identity =
        count("tasks_per_identity", &raw.tasks_per_identity, default.tasks_per_identity, 1_000_000);
    let stored_tasks_per_identity = count(
        "stored_tasks_per_identity",
        &raw.stored_tasks_per_identity,
        default.stored_tasks_per_identity,
        10_000_000,
    );
    let idempotency_keys_per_identity = count(
        "idempotency_keys_per_identity",
        &raw.idempotency_keys_per_identity,
        default.idempotency_keys_per_identity,
        1_000_000,
    );
    let task_ops_per_second = count(
        "task_ops_per_second",
        &raw.task_ops_per_second,
        default.task_ops_per_second as usize,
        1_000_000,
    );
    let share = |name, raw: &Option<raw::Whole>, check: &mut Checker<'_>, most| {
        raw.as_ref().map(|written| check.whole(key(name), Some(written), 1, 1..=most))
    };
    let connections_per_identity =
        share("connections_per_identity", &raw.connections_per_identity, check, 100_000);
    let workers_per_identity =
        share("workers_per_identity", &raw.workers_per_identity, check, 4096);
    let queue_per_identity = raw
        .queue_per_identity
        .as_ref()
        .map(|written| check.whole(key("queue_per_identity"), Some(written), 0, 0..=1_000_000));
    let mut size =
        |name, raw: &Option<_>, default, range| check.size(key(name), raw.as_ref(), default, range);
    // The minimum has room for an `initialize` request.
    let message_bytes =
        size("message_bytes", &raw.message_bytes, default.message_bytes, 4 * KIB..=GIB);
    // The minimum has room for one message.
    let held_bytes = size(
        "held_bytes",
        &raw.held_bytes,
        default.held_bytes.max(message_bytes),
        message_bytes as u64..=1024 * GIB,
    );
    // The minimum has room for one message.
    let partial_bytes = size(
        "partial_bytes",
        &raw.partial_bytes,
        default.partial_bytes.max(message_bytes),
        message_bytes as u64..=1024 * GIB,
    );
    // The minimum has room for one message.
    let own = &raw.partial_bytes_per_identity;
    let most = message_bytes as u64..=1024 * GIB;
    let partial_bytes_per_identity =
        own.is_some().then(|| size("partial_bytes_per_identity", own, message_bytes, most.clone()));
    let own = &raw.held_bytes_per_identity;
    let held_bytes_per_identity =
        own.is_some().then(|| size("held_bytes_per_identity", own, message_bytes, most));
    Limits {
        connections,
        connections_per_identity,
        operator_connections,
        message_bytes,
        held_bytes,
        held_bytes_per_identity,
        partial_bytes,
        partial_bytes_per_identity,
        workers_per_identity,
        inflight_per_connection,
        tasks_per_identity,
        stored_tasks_per_identity,
        stored_bytes_per_identity: size(
            "stored_bytes_per_identity",
            &raw.stored_bytes_per_identity,
            default.stored_bytes_per_identity,
            MIB..=1024 * GIB,
        ),
        resident_result_bytes: size(
            "resident_result_bytes",
            &raw.resident_result_bytes,
            default.resident_result_bytes,
            0..=GIB,
        ),
        task_ops_per_second: u32::try_from(task_ops_per_second).unwrap_or(u32::MAX),
        queue_per_identity,
        idempotency_keys_per_identity,
        output_bytes: size("output_bytes", &raw.output_bytes, default.output_bytes, 0..=1024 * GIB),
        output_bytes_per_identity: size(
            "output_bytes_per_identity",
            &raw.output_bytes_per_identity,
            default.output_bytes_per_identity,
            0..=1024 * GIB,
        ),
        write_buffer_bytes: size(
            "write_buffer_bytes",
            &raw.write_buffer_bytes,
            default.write_buffer_bytes,
            64 * KIB..=GIB,
        ),
        write_stall: check.duration(
            key("write_stall"),
            raw.write_stall.as_ref(),
            default.write_stall,
            MS..=HOUR,
        ),
        idempotency_ttl: check.duration(
            key("idempotency_ttl"),
            raw.idempotency_ttl.as_ref(),
            default.idempotency_ttl,
            MS..=YEAR,
        ),
        authenticate_within: check.duration(
            key("authenticate_within"),
            raw.authenticate_within.as_ref(),
            default.authenticate_within,
            MS..=HOUR,
        ),
        frame_time: check.duration(
            key("frame_time"),
            raw.frame_time.as_ref(),
            default.frame_time,
            MS..=HOUR,
        ),
        ..limits_of_input(raw, check)
    }
}

/// The limits on nesting, requests of tools to clients, and subscriptions; the others keep their
/// defaults.
fn limits_of_input(raw: &raw::Limits, check: &mut Checker<'_>) -> Limits {
    let key = |name| Key { table: "[limits]", name };
    let default = Limits::default();
    let json_depth =
        check.whole(key("json_depth"), raw.json_depth.as_ref(), default.json_depth, DEPTHS);
    let mut count = |name, raw: &Option<raw::Whole>, default| {
        check.whole(key(name), raw.as_ref(), default, 1..=100_000)
    };
    Limits {
        json_depth,
        asks_per_job: count("asks_per_job", &raw.asks_per_job, default.asks_per_job),
        parked_per_identity: count(
            "parked_per_identity",
            &raw.parked_per_identity,
            default.parked_per_identity,
        ),
        subscriptions_per_connection: count(
            "subscriptions_per_connection",
            &raw.subscriptions_per_connection,
            default.subscriptions_per_connection,
        ),
        tasks_per_subscription: count(
            "tasks_per_subscription",
            &raw.tasks_per_subscription,
            default.tasks_per_subscription,
        ),
        parked_for: check.duration(
            key("parked_for"),
            raw.parked_for.as_ref(),
            default.parked_for,
            MS..=24 * HOUR,
        ),
        ..default
    }
}

pub(super) fn tasks(raw: &raw::Tasks, check: &mut Checker<'_>) -> Tasks {
    let key = |name| Key { table: "[tasks]", name };
    let default = Tasks::default();
    let on_ttl = check.choice(
        key("on_ttl"),
        raw.on_ttl.as_ref(),
        default.on_ttl,
        &[("finish", OnTtl::Finish), ("stop", OnTtl::Stop)],
    );
    let page_size =
        check.whole(key("page_size"), raw.page_size.as_ref(), default.page_size, 1..=10_000);
    let mut time = |name, raw: &Option<_>, default, range| {
        check.duration(key(name), raw.as_ref(), default, range)
    };
    let late_result =
        time("late_result", &raw.late_result, default.late_result, Duration::ZERO..=YEAR);
    let poll_interval = time("poll_interval", &raw.poll_interval, default.poll_interval, MS..=HOUR);
    let max_ttl = time("max_ttl", &raw.max_ttl, default.max_ttl, MS..=YEAR);
    let default_ttl = time("default_ttl", &raw.default_ttl, default.default_ttl, MS..=YEAR);
    let anonymous_ttl = time("anonymous_ttl", &raw.anonymous_ttl, default.anonymous_ttl, MS..=YEAR);
    // Report the problem at a written value: with both defaults there is none.
    for (name, ttl, written) in [
        ("default_ttl", default_ttl, raw.default_ttl.as_ref()),
        ("anonymous_ttl", anonymous_ttl, raw.anonymous_ttl.as_ref()),
    ] {
        if let Some(at) = written.or(raw.max_ttl.as_ref()).filter(|_| ttl > max_ttl) {
            check.problem(
                at.span().start,
                match written {
                    Some(written) => format!("`{name}` in [tasks] is {:?}", written.get_ref().0),
                    None => format!("`{name}` in [tasks] is {} by default", show_duration(ttl)),
                },
                format!("it takes at most `max_ttl`, which is {}", show_duration(max_ttl)),
            );
        }
    }
    Tasks {
        default_ttl,
        max_ttl,
        on_ttl,
        late_result,
        anonymous_ttl,
        poll_interval,
        page_size,
        status_notifications: raw.status_notifications.unwrap_or(default.status_notifications),
    }
}

pub(super) fn log(raw: &raw::Log, check: &mut Checker<'_>) -> Log {
    let key = |name| Key { table: "[log]", name };
    let audit = raw.audit.as_ref().and_then(|written| check.path(key("audit"), written));
    let levels = [Level::Off, Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
    let choices = levels.map(|level| (level.name(), Some(level)));
    let level = check.choice(key("level"), raw.level.as_ref(), None, &choices);
    let choices = [
        ("none", RecordCalls::None),
        ("names", RecordCalls::Names),
        ("arguments", RecordCalls::Arguments),
    ];
    let calls = check.choice(key("calls"), raw.calls.as_ref(), RecordCalls::default(), &choices);
    let redact = raw.redact.as_ref().map(|names| {
        names.get_ref().iter().map(|name| name.get_ref().to_lowercase()).collect::<Vec<_>>()
    });
    let redact = redact.unwrap_or_else(|| Log::default().redact);
    let default = Log::default();
    let ended_calls =
        check.whole(key("ended_calls"), raw.ended_calls.as_ref(), default.ended_calls, 0..=100_000);
    let ended_for =
        check.duration(key("ended_for"), raw.ended_for.as_ref(), default.ended_for, MS..=YEAR);
    Log { level, audit, calls, redact, ended_calls, ended_for }
}
