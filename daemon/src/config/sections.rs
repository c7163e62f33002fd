//! `[daemon]`, `[limits]`, `[tasks]` and `[log]`: their keys, and rules between them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ceased_core::identity::Identity;
use ceased_core::limits::OnTtl;
use ceased_core::tool::OnDisconnect;
use ceased_process::Isolation;
#[cfg(feature = "config")]
use toml::Spanned;

#[cfg(feature = "config")]
use super::check::{Checker, Key};
use super::discover::Environment;
#[cfg(feature = "config")]
use super::forms::{Disconnect, EndCommand, FilePaths, Heartbeat, ISOLATION, Uri};
#[cfg(feature = "config")]
use super::identities::Operators;
use super::keys::{Declared, keys};
#[cfg(feature = "config")]
use super::kinds::{
    Bytes, Choice, Count, FilePath, Flag, GIB, KIB, Kind, MIB, MS, Perhaps, Row, Time, Words, YEAR,
    row_of,
};
#[cfg(feature = "config")]
use super::table::Table;
#[cfg(feature = "config")]
use super::units::show_duration;
#[cfg(feature = "config")]
use super::values::{Span, Text};
use super::{Keeping, Level, OnEnd, RecordCalls};
use crate::store::Damaged;
use crate::tools::name::DEFAULT_HEARTBEAT;

const HOUR: Duration = Duration::from_secs(3_600);

/// Less, and a verdict is all that fits; more, and no model can read it.
#[cfg(feature = "config")]
pub(super) const TEXT_LIMITS: std::ops::RangeInclusive<u64> = KIB..=16 * MIB;

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

keys! {
    /// `[daemon]`
    Daemon ["daemon", environment] {
        /// Directory of durable tasks; absolute.
        state_dir: PathBuf = environment.state_dir(), FilePath, at start, row |_| None;
        /// Where tasks are kept.
        store: Keeping = if cfg!(feature = "sqlite") { Keeping::Auto } else { Keeping::Memory },
            Choice(&[
                ("auto", Keeping::Auto),
                ("disk", Keeping::Disk),
                ("memory", Keeping::Memory),
            ]),
            at start,
            row Self::store_row;
        /// Bytes reserved for finishing started tasks when the disk is full.
        store_reserve: usize = 8 << 20, Bytes(0..=GIB), at start;
        /// Pause after a failed write before the store is retried.
        store_retry: Duration = seconds(2), Time(100 * MS..=HOUR);
        /// Treatment of a damaged store.
        damaged_store: Damaged = Damaged::Refuse,
            Choice(&[("refuse", Damaged::Refuse), ("set_aside", Damaged::SetAside)]),
            at start;
        /// Maximum number of running jobs.
        workers: usize = 64, Count(1..=4096),
            row |it| Some(("workers", format!("{}, {} more may wait", it.workers, it.queue)));
        /// Maximum number of queued jobs.
        queue: usize = 1024, Count(0..=1_000_000), row |_| None;
        /// Total time of a shutdown, from SIGTERM to the exit.
        shutdown_grace: Duration = seconds(10), Time(MS..=HOUR);
        /// How long the running calls of a stdio peer may still finish after it closed its input. The
        /// official SDKs send SIGTERM two seconds after they have closed a server's input.
        eof_grace: Duration = Duration::from_millis(1500), Time(Duration::ZERO..=HOUR);
        /// Default effect of a disconnect on a plain call.
        on_disconnect: OnDisconnect = OnDisconnect::Cancel, Disconnect;
        /// Default isolation of commands from other processes.
        isolation: Isolation = Isolation::None, ISOLATION;
        /// Directories below which clients choose where a tool runs; empty: the home of the caller.
        roots: Vec<PathBuf> = Vec::new(), FilePaths;
        /// Whether users of this machine run commands of their own (`ceased run`).
        allow_run: bool = false, Flag,
            row |it| it.allow_run.then(|| ("allow_run", "true".into()));
        /// Operators beside root and the user of the daemon; none is anonymous.
        operators: BTreeSet<Identity> = BTreeSet::new(), Operators;
        /// Maximum interval of progress notifications to a requestor that wants progress; `None`: no
        /// heartbeat.
        heartbeat: Option<Duration> = Some(DEFAULT_HEARTBEAT), Heartbeat;
        /// Bytes of output that a result shows as text.
        text_limit: usize = 32 << 10, Bytes(TEXT_LIMITS);
        /// A name of the server for people.
        title: Option<String> = None, Perhaps(Words);
        /// A page about the server.
        website: Option<String> = None, Perhaps(Uri(&["https:", "http:"]));
        /// The use of the server, for models.
        instructions: Option<String> = None, Perhaps(Words);
        /// Command after the end of a task or a long call.
        on_end: OnEnd = OnEnd::default(), EndCommand;
        /// Shortest duration of a call that is followed by it.
        on_end_after: Duration = seconds(30), Time(Duration::ZERO..=24 * HOUR),
            row |it| it.row_of_end("on_end_after", show_duration(it.on_end_after));
        /// Its time limit.
        on_end_timeout: Duration = seconds(10), Time(100 * MS..=HOUR),
            row |it| it.row_of_end("on_end_timeout", show_duration(it.on_end_timeout));
        /// Maximum number of such commands that run at once.
        on_end_running: usize = 4, Count(1..=256),
            row |it| it.row_of_end("on_end_running", it.on_end_running.to_string());
    }
}

#[cfg(feature = "config")]
impl Daemon {
    fn store_row(&self) -> Row {
        let place = self.state_dir.display();
        let text = match self.store {
            Keeping::Auto => format!("{place}, by `serve`"),
            Keeping::Disk => place.to_string(),
            Keeping::Memory => "none, tasks end with the daemon".into(),
        };
        Some(("store", text))
    }

    /// The row of a key that has a meaning with `on_end` alone.
    fn row_of_end(&self, name: &'static str, value: String) -> Row {
        (!self.on_end.is_empty()).then_some((name, value))
    }
}

keys! {
    /// `[limits]`
    Limits ["limits"] {
        /// Maximum number of connections.
        connections: usize = 1024, Count(1..=100_000);
        /// Maximum number of connections of one identity; all but an eighth if `None`.
        connections_per_identity: Option<usize> = None, Perhaps(Count(1..=100_000));
        /// Connections reserved for each operator.
        operator_connections: usize = 8, Count(1..=1024);
        /// Size limit of a message. The least one has room for an `initialize` request.
        message_bytes: usize = 16 << 20, Bytes(4 * KIB..=GIB);
        /// Maximum nesting of arrays and objects in a message. A smaller depth rejects calls with
        /// arguments; a larger one exceeds the recursion limit of the parser.
        json_depth: usize = 128, Count(8..=128);
        /// Maximum number of unanswered requests of a connection.
        inflight_per_connection: usize = 1024, Count(1..=100_000);
        /// Maximum number of non-terminal tasks of an identity.
        tasks_per_identity: usize = 256, Count(1..=1_000_000);
        /// Maximum number of retained terminal tasks of an identity.
        stored_tasks_per_identity: usize = 10_000, Count(1..=10_000_000);
        /// Maximum bytes of retained results of an identity.
        stored_bytes_per_identity: usize = 256 << 20, Bytes(MIB..=1024 * GIB);
        /// Size up to which a result is kept in memory as well as in the store.
        resident_result_bytes: usize = 16 << 10, Bytes(0..=GIB);
        /// Maximum rate of task requests of an identity.
        task_ops_per_second: u32 = 1000, Count(1..=1_000_000);
        /// Maximum number of running jobs of an identity; all but an eighth of the workers if `None`.
        workers_per_identity: Option<usize> = None, Perhaps(Count(1..=4096));
        /// Maximum number of queued jobs of an identity; seven eighths of the queue if `None`.
        queue_per_identity: Option<usize> = None, Perhaps(Count(0..=1_000_000));
        /// Maximum number of remembered idempotency keys of an identity.
        idempotency_keys_per_identity: usize = 1024, Count(1..=1_000_000), row Self::row_of_keys;
        /// Time that the answer to a keyed call is remembered.
        idempotency_ttl: Duration = seconds(600), Time(MS..=YEAR), row |_| None;
        /// Bytes of output of ended jobs that are kept.
        output_bytes: usize = 64 << 20, Bytes(0..=1024 * GIB);
        /// Of those, bytes of one identity.
        output_bytes_per_identity: usize = 16 << 20, Bytes(0..=1024 * GIB);
        /// Unsent bytes of one connection past which new requests are refused; closed past twice this.
        write_buffer_bytes: usize = 8 << 20, Bytes(64 * KIB..=GIB);
        /// Time without progress of writes after which a peer is closed.
        write_stall: Duration = seconds(30), Time(MS..=HOUR);
        /// Deadline for presenting a token.
        authenticate_within: Duration = seconds(10), Time(MS..=HOUR);
        /// Time that a TCP peer may take to send one message.
        frame_time: Duration = seconds(30), Time(MS..=HOUR);
        /// Maximum bytes held for all peers; at least one message, as the next three.
        held_bytes: usize = 512 << 20, Bytes(message_bytes as u64..=1024 * GIB);
        /// Maximum bytes held for one identity; half of `held_bytes`, and at least one message, if
        /// `None`.
        held_bytes_per_identity: Option<usize> = None,
            Perhaps(Bytes(message_bytes as u64..=1024 * GIB));
        /// Maximum bytes of incomplete messages of all peers.
        partial_bytes: usize = 256 << 20, Bytes(message_bytes as u64..=1024 * GIB);
        /// Maximum bytes of incomplete messages of one identity, or of one network address without one;
        /// half of `partial_bytes`, and at least one message, if `None`.
        partial_bytes_per_identity: Option<usize> = None,
            Perhaps(Bytes(message_bytes as u64..=1024 * GIB));
        /// Maximum number of pending requests of a job to its client.
        asks_per_job: usize = 64, Count(1..=100_000);
        /// Maximum number of calls of an identity suspended until it returns with the requested input
        /// (MOD-07).
        parked_per_identity: usize = 16, Count(1..=100_000), row Self::row_of_parked;
        /// Time that such a call stays suspended.
        parked_for: Duration = seconds(300), Time(MS..=24 * HOUR), row |_| None;
        /// Maximum number of subscriptions of a connection (MOD-08).
        subscriptions_per_connection: usize = 64, Count(1..=100_000), row Self::row_of_subscriptions;
        /// Maximum number of tasks of a subscription.
        tasks_per_subscription: usize = 1024, Count(1..=100_000), row |_| None;
    }
}

#[cfg(feature = "config")]
impl Limits {
    fn row_of_keys(&self) -> Row {
        let (keys, ttl) = (self.idempotency_keys_per_identity, self.idempotency_ttl);
        let text = format!("{keys}, their answers for {}", show_duration(ttl));
        Some(("idempotency_keys", text))
    }

    fn row_of_parked(&self) -> Row {
        let (calls, time) = (self.parked_per_identity, show_duration(self.parked_for));
        Some(("parked", format!("{calls} calls an identity, for {time}")))
    }

    fn row_of_subscriptions(&self) -> Row {
        let (count, tasks) = (self.subscriptions_per_connection, self.tasks_per_subscription);
        Some(("subscriptions", format!("{count} a connection, {tasks} tasks each")))
    }
}

keys! {
    /// `[tasks]`
    Tasks ["tasks"] {
        /// TTL of a task that requests none; sent in whole milliseconds.
        default_ttl: Duration = HOUR, Time(MS..=YEAR);
        /// Maximum TTL.
        max_ttl: Duration = 24 * HOUR, Time(MS..=YEAR);
        /// Treatment of a task that still runs at its TTL.
        on_ttl: OnTtl = OnTtl::Finish,
            Choice(&[("finish", OnTtl::Finish), ("stop", OnTtl::Stop)]),
            row Self::row_of_end;
        /// Time that the late result of such a task is kept.
        late_result: Duration = seconds(300), Time(Duration::ZERO..=YEAR), row |_| None;
        /// TTL of a task of an anonymous peer that requests none.
        anonymous_ttl: Duration = seconds(600), Time(MS..=YEAR);
        /// Poll interval sent to requestors.
        poll_interval: Duration = seconds(1), Time(MS..=HOUR);
        /// Page size of `tasks/list`.
        page_size: usize = 100, Count(1..=10_000);
        /// Whether `notifications/tasks/status` are sent.
        status_notifications: bool = true, Flag;
    }
}

#[cfg(feature = "config")]
impl Tasks {
    fn row_of_end(&self) -> Row {
        let text = match self.on_ttl {
            OnTtl::Finish => {
                format!("finish, the result is kept for {}", show_duration(self.late_result))
            }
            OnTtl::Stop => "stop".into(),
        };
        Some(("on_ttl", text))
    }

    /// Takes all keys, and checks that no TTL exceeds the maximum.
    pub(super) fn read_checked(table: &mut Table<'_, '_>) -> Self {
        let tasks = Self::read(table);
        let max: Option<Spanned<Span>> = table.again("max_ttl");
        // Report the problem at a written value: with both defaults there is none.
        for (name, ttl) in
            [("default_ttl", tasks.default_ttl), ("anonymous_ttl", tasks.anonymous_ttl)]
        {
            let written: Option<Spanned<Span>> = table.again(name);
            if let Some(at) = written.as_ref().or(max.as_ref()).filter(|_| ttl > tasks.max_ttl) {
                let value = match &written {
                    Some(written) => format!("{:?}", written.get_ref().0),
                    None => format!("{} by default", show_duration(ttl)),
                };
                let most = show_duration(tasks.max_ttl);
                let hint = format!("it takes at most `max_ttl`, which is {most}");
                table.check.bad_value(table.key(name), at.span().start, &value, hint);
            }
        }
        tasks
    }
}

keys! {
    /// `[log]`
    Log ["log"] {
        /// Level of the log; None: "info", and "warn" where one peer is served on standard input.
        level: Option<Level> = None,
            Choice(&[
                ("off", Some(Level::Off)),
                ("error", Some(Level::Error)),
                ("warn", Some(Level::Warn)),
                ("info", Some(Level::Info)),
                ("debug", Some(Level::Debug)),
                ("trace", Some(Level::Trace)),
            ]),
            row |it| {
                let level = it.level.map_or("info, with stdio warn", Level::name);
                Some(("log level", level.into()))
            };
        /// File of the audit records; None: nothing is recorded.
        audit: Option<PathBuf> = None, Perhaps(FilePath), at start,
            row |it| {
                let path = it.audit.as_ref().map(|path| path.display().to_string());
                Some(("audit", path.unwrap_or_else(|| "none".into())))
            };
        /// The part of each call that the audit log records.
        calls: RecordCalls = RecordCalls::Names, RECORDED, at start,
            row |it| {
                let calls = RECORDED.show(&it.calls)?;
                Some(("recorded calls", format!("{calls}, redacted: {}", it.redact.join(" "))))
            };
        /// Names of arguments whose values are not recorded; `*` stands for any characters.
        redact: Vec<String> = redacted(), Names, at start, row |_| None;
        /// Maximum number of ended calls that are kept for views.
        ended_calls: usize = 1000, Count(0..=100_000), at start,
            row |it| {
                let time = show_duration(it.ended_for);
                Some(("ended_calls", format!("{} for {time}", it.ended_calls)))
            };
        /// Time for which they are kept.
        ended_for: Duration = 12 * HOUR, Time(MS..=YEAR), at start, row |_| None;
    }
}

/// The part of each call that the audit log records.
#[cfg(feature = "config")]
const RECORDED: Choice<'_, RecordCalls> = Choice(&[
    ("none", RecordCalls::None),
    ("names", RecordCalls::Names),
    ("arguments", RecordCalls::Arguments),
]);

fn redacted() -> Vec<String> {
    let names = ["*password*", "*passwd*", "*secret*", "*token*", "*credential*", "*api*key*"];
    names.map(str::to_owned).to_vec()
}

/// Names of arguments, in lower case.
#[cfg(feature = "config")]
struct Names;

#[cfg(feature = "config")]
impl Kind<Vec<String>> for Names {
    type Written = Vec<Text>;

    fn parse(
        &self,
        _: Key,
        written: &Spanned<Vec<Text>>,
        _: &mut Checker<'_>,
    ) -> Option<Vec<String>> {
        Some(written.get_ref().iter().map(|name| name.get_ref().to_lowercase()).collect())
    }

    fn show(&self, value: &Vec<String>) -> Option<String> {
        Some(value.join(" "))
    }
}
