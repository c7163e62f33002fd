//! The swarm: which features and faults exist in a run at all, and how often. A uniform mixture
//! of everything would hide faults that only show where something is missing.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::acp::protocol::AcpServices;
use ceased_core::limits::{FrameLimits, Limits, OnTtl, TaskPolicy};
use ceased_core::settings::{ServerInfo, Settings};
use ceased_core::tool::{Catalog, OnDisconnect, StopPolicy, TaskSupport, Tool};

use super::dialects;
use super::fault::{Fault, Faults};
use crate::rng::Rng;
use crate::tools;

/// Weights of the kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    Open,
    Speak,
    Deliver,
    Work,
    Ask,
    Unask,
    CancelJob,
    Notify,
    Window,
    Pass,
    Turn,
    HalfClose,
    Vanish,
    WallJump,
    Sleep,
    Reload,
    Drain,
}

/// Weights of the kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Say {
    Ping,
    Tools,
    Level,
    Status,
    Call,
    CallTask,
    Get,
    Result,
    List,
    CancelTask,
    Cancel,
    Garbage,
    Batch,
    Odd,
    Answer,
    Busy,
    Update,
    Listen,
    Retry,
    Discover,
    Hint,
}

/// How one run is.
#[derive(Debug, Clone)]
pub struct Swarm {
    /// Its faults.
    pub faults: Faults,
    /// Peers at once.
    pub peers: usize,
    /// Of so many peers one is a server; none when 0.
    pub servers: usize,
    /// Peers send awaited messages rather than any.
    pub attentive: bool,
    /// Of so many peers one speaks ACP; none when 0.
    pub acp: usize,
    /// Revisions spoken.
    pub revisions: Vec<&'static str>,
    /// Identities there are.
    pub users: u32,
    /// Ids a peer uses for its requests, over and over.
    pub ids: u64,
    /// Idempotency keys peers use, over and over; none when 0, and then no call outlives its
    /// connection either.
    pub keys: usize,
    /// The longest pause between two things, in nanoseconds.
    pub pause: u64,
    /// Kinds of steps with their weights.
    pub kinds: Vec<(Kind, usize)>,
    /// Kinds of messages with their weights.
    pub says: Vec<(Say, usize)>,
    /// The settings at the start, and those of later reloads.
    pub settings: Vec<Arc<Settings>>,
}

impl Swarm {
    /// The run of `seed`, with no fault that is not in `allowed`.
    #[must_use]
    pub fn new(seed: u64, allowed: Faults) -> Self {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let faults = Fault::ALL
            .into_iter()
            .filter(|fault| allowed.has(*fault) && rng.once_in(2))
            .fold(Faults::NONE, Faults::with);
        let known = dialects::ALL.iter().map(|rules| rules.revision);
        let known = known.chain([dialects::STATELESS]);
        let mut revisions: Vec<&'static str> = known.filter(|_| rng.once_in(2)).collect();
        // Most of the rules are those of tasks.
        if revisions.is_empty() || !rng.once_in(4) {
            revisions.push("2025-11-25");
        }
        let reloads = if faults.has(Fault::Reload) { 3 } else { 1 };
        // Drawn apart, so that the runs without any of it stay the same.
        let mut more = Rng::new(seed ^ 0xa9a1);
        let keys = if more.once_in(2) { 1 + more.below(8) } else { 0 };
        Self {
            faults,
            peers: 2 + rng.below(6),
            attentive: !rng.once_in(4),
            acp: if rng.once_in(2) { 2 + rng.below(3) } else { 0 },
            servers: if rng.once_in(2) { 2 + rng.below(3) } else { 0 },
            revisions,
            users: 1 + u32::try_from(rng.below(4)).unwrap_or(0),
            ids: if faults.has(Fault::DuplicateId) { 3 } else { 1_000_000 },
            keys,
            pause: 1_000_000 * 10_u64.pow(u32::try_from(rng.below(5)).unwrap_or(0)),
            kinds: kinds(&mut rng, faults, (keys > 0).then_some(&mut more)),
            says: says(&mut rng, faults),
            settings: (0..reloads)
                .map(|_| settings(&mut rng, faults, (keys > 0).then_some(&mut more)))
                .collect(),
        }
    }
}

/// With `more`, peers that are gone are missed.
fn kinds(rng: &mut Rng, faults: Faults, more: Option<&mut Rng>) -> Vec<(Kind, usize)> {
    let mut kinds = vec![
        (Kind::Open, 4),
        (Kind::Speak, 20 + rng.below(40)),
        (Kind::Deliver, 20 + rng.below(40)),
        (Kind::Work, 5 + rng.below(40)),
        (Kind::Pass, 2 + rng.below(20)),
        (Kind::Turn, 10 + rng.below(40)),
    ];
    for (fault, kind, most) in [
        (Fault::StopReading, Kind::Window, 20),
        (Fault::HalfClose, Kind::HalfClose, 3),
        (Fault::Vanish, Kind::Vanish, 3),
        (Fault::WallJump, Kind::WallJump, 5),
        (Fault::Sleep, Kind::Sleep, 3),
        (Fault::Reload, Kind::Reload, 2),
    ] {
        if faults.has(fault) {
            kinds.push((kind, 1 + rng.below(most)));
        }
    }
    if let Some(more) = more.filter(|_| faults.has(Fault::Vanish)) {
        kinds.push((Kind::Vanish, more.below(8)));
    }
    if !rng.once_in(3) {
        kinds.push((Kind::Ask, 5 + rng.below(30)));
        kinds.push((Kind::Unask, 1 + rng.below(5)));
        kinds.push((Kind::CancelJob, rng.below(4)));
        kinds.push((Kind::Notify, rng.below(4)));
    }
    kinds
}

fn says(rng: &mut Rng, faults: Faults) -> Vec<(Say, usize)> {
    use Say::{
        Answer, Batch, Busy, Call, CallTask, Cancel, CancelTask, Discover, Garbage, Get, Hint,
        Level, List, Listen, Odd, Ping, Result, Retry, Status, Tools, Update,
    };
    let every = [
        Ping, Tools, Level, Status, Call, CallTask, Get, Result, List, CancelTask, Cancel, Odd,
        Batch, Answer, Busy, Update, Listen, Retry, Discover, Hint,
    ];
    let mut says: Vec<(Say, usize)> = every
        .into_iter()
        .filter(|say| !matches!(say, Odd) || faults.has(Fault::Foreign))
        .filter(|_| !rng.once_in(4))
        .collect::<Vec<_>>()
        .into_iter()
        .map(|say| {
            (
                say,
                1 + rng.below(if matches!(say, Call | CallTask | Cancel | Answer | Retry) {
                    40
                } else {
                    12
                }),
            )
        })
        .collect();
    if faults.has(Fault::Garbage) {
        says.push((Garbage, 1 + rng.below(10)));
    }
    says.push((Call, 4));
    says
}

/// With `more`, calls may outlive their connection and be asked for again, and identities are held
/// to their share.
fn settings(rng: &mut Rng, faults: Faults, mut more: Option<&mut Rng>) -> Arc<Settings> {
    let tight = |rng: &mut Rng, few: usize, usual: usize| {
        if rng.once_in(2) { 1 + rng.below(few) } else { usual }
    };
    let millis = |rng: &mut Rng, most: usize| Duration::from_millis(1 + rng.below(most) as u64);
    let narrow = faults.has(Fault::StopReading) || rng.once_in(4);
    let mut limits = Limits {
        frames: FrameLimits { frame_bytes_max: if rng.once_in(6) { 400 } else { 4096 } },
        depth_max: 64,
        connections_max: tight(rng, 4, 64),
        inflight_max: tight(rng, 4, 256),
        batch_max: tight(rng, 4, 64),
        running_max: tight(rng, 3, 16),
        queued_max: tight(rng, 6, 64),
        live_tasks_max: tight(rng, 4, 64),
        stored_tasks_max: tight(rng, 6, 256),
        stored_bytes_max: if rng.once_in(6) { 1 } else { usize::MAX },
        write_buffer_bytes: if narrow { 200 + rng.below(2000) } else { 1 << 20 },
        write_stall: millis(rng, 30_000),
        text_bytes_max: 512,
        asks_max: tight(rng, 3, 64),
        parked_max: tight(rng, 2, 16),
        parked_for: millis(rng, 20_000),
        calls_max: tight(rng, 3, 1024),
        subscriptions_max: tight(rng, 2, 64),
        remote_tasks_max: tight(rng, 2, 64),
        cancelled_wait: millis(rng, 10_000),
        ..Limits::default()
    };
    if let Some(more) = &mut more {
        limits.keys_max = if more.once_in(3) { 1 + more.below(3) } else { 64 };
        limits.keys_for = millis(more, 20_000);
        limits.queued_per_identity_max = if more.once_in(2) { more.below(3) } else { usize::MAX };
        let rate = NonZeroU32::new(1 + u32::try_from(more.below(8)).unwrap_or(0));
        limits.task_ops_per_second = rate.filter(|_| more.once_in(2));
    }
    // Drawn aside, so that every seed is the world it was but for the shares.
    let mut aside = rng.clone();
    let share = |aside: &mut Rng, max: usize| {
        if aside.once_in(3) { 1 + aside.below(max.min(4)) } else { usize::MAX }
    };
    limits.running_per_identity_max = share(&mut aside, limits.running_max);
    limits.connections_per_identity_max = share(&mut aside, limits.connections_max);
    let max_ttl = millis(rng, 100_000);
    let tasks = TaskPolicy {
        default_ttl: millis(rng, 20_000).min(max_ttl),
        max_ttl,
        anonymous_ttl: millis(rng, 10_000).min(max_ttl),
        on_ttl: if rng.once_in(2) { OnTtl::Finish } else { OnTtl::Stop },
        late_result: millis(rng, 5000),
        poll_interval: millis(rng, 5000),
        page_size: 1 + rng.below(5),
        status_notifications: !rng.once_in(4),
        ..TaskPolicy::default()
    };
    let server = ServerInfo::new("simulated", "0");
    Arc::new(Settings {
        server,
        limits,
        tasks,
        catalog: catalog(rng, more),
        services: if rng.once_in(8) { Catalog::default() } else { tools::services() },
        acp: if rng.once_in(8) { AcpServices::default() } else { tools::offers() },
        outputs: false,
        operators: Vec::new(),
        ..Settings::default()
    })
}

/// The heartbeat of a tool; one has none.
fn beats(tool: &str) -> Option<Duration> {
    match tool {
        "echo" => None,
        "build" => Some(Duration::from_millis(700)),
        _ => Some(Duration::from_millis(3100)),
    }
}

/// The tools of the kit with other answer_timeout, and sometimes one of them missing.
fn catalog(rng: &mut Rng, mut more: Option<&mut Rng>) -> Catalog {
    let millis = |rng: &mut Rng, most: usize| Duration::from_millis(1 + rng.below(most) as u64);
    let missing = rng.below(30);
    let all = tools::catalog();
    let known: Vec<(Arc<str>, TaskSupport, bool, bool, bool)> = all
        .iter()
        .map(|tool| {
            let command = matches!(tool.stop_policy, StopPolicy::Command { .. });
            (
                tool.name.clone(),
                tool.task_support,
                command,
                tool.timeout.is_some(),
                tool.check.is_some(),
            )
        })
        .collect();
    // Drawn aside, so that every seed is the world it was but for the gates.
    let mut aside = rng.clone();
    let _ = aside.below(7);
    let mut gates = || {
        let max_running = aside.once_in(4).then(|| 1 + aside.below(2));
        let lock = ["one", "of:{text}"][aside.below(2)];
        (max_running, aside.once_in(5).then(|| lock.into()))
    };
    let tools = known.into_iter().enumerate().filter(|(at, _)| *at != missing);
    let tools = tools.map(|(_, tool)| (gates(), tool));
    Catalog::new(tools.map(
        |((max_running, lock), (name, task_support, command, timeout, check))| Tool {
            task_support,
            max_running,
            lock,
            timeout: timeout.then(|| millis(rng, 20_000)),
            stop_policy: if command {
                StopPolicy::Command { kill_grace: millis(rng, 5000) }
            } else {
                StopPolicy::Handler { abandon_after: millis(rng, 5000) }
            },
            output_schema: command.then(|| r#"{"type":"object"}"#.into()),
            heartbeat: beats(&name),
            check: check.then(tools::wants_text),
            on_disconnect: more.as_mut().map_or(OnDisconnect::Cancel, |more| match more.below(3) {
                0 => OnDisconnect::Grace(millis(more, 10_000)),
                1 => OnDisconnect::Detach,
                _ => OnDisconnect::Cancel,
            }),
            ..tools::tool(&name)
        },
    ))
    .expect("good tools")
}
