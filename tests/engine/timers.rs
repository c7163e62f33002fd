//! Timers, against a list that is searched from end to end: nothing early, nothing late, in order,
//! whatever is armed and disarmed in between.

use std::time::Duration;

use ceased_core::ids::JobId;
use ceased_core::limits::{Limits, OnTtl, TaskPolicy};
use ceased_core::reason::StopReason;
use ceased_core::time::Instant;
use ceased_core::tool::StopStep;
use ceased_simulator::tools::{ABANDON_AFTER, TIMEOUT};
use ceased_simulator::trace::Input;
use ceased_simulator::world::World;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

const NANOSECOND: Duration = Duration::from_nanos(1);

/// An event.
#[derive(Debug, Clone)]
enum Op {
    /// A plain call of a tool with a timeout.
    Call,
    /// A task with this ttl in milliseconds.
    Task(u64),
    /// The call of a job is cancelled; of a task's job there is none.
    Cancel(prop::sample::Index),
    /// A job ends.
    Done(prop::sample::Index),
    /// Time passes, with a tick whenever one is due.
    Advance(Span),
    /// Time passes without a tick, and then there is one.
    Oversleep(Span),
    /// A tick without a deadline.
    Tick,
}

/// How much time.
#[derive(Debug, Clone)]
enum Span {
    /// So many milliseconds.
    Millis(u64),
    /// Just not to the next deadline.
    Before,
    /// Exactly to it.
    Exactly,
    /// A moment past it.
    Past,
}

fn spans() -> impl Strategy<Value = Span> {
    prop_oneof![
        (0..70_000_u64).prop_map(Span::Millis),
        (0..50_u64).prop_map(Span::Millis),
        Just(Span::Before),
        Just(Span::Exactly),
        Just(Span::Past),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => Just(Op::Call),
        // Few different ones, so that some are due at the same time.
        3 => prop::sample::select(vec![1, 5, 20, 5000, 60_000]).prop_map(Op::Task),
        2 => any::<prop::sample::Index>().prop_map(Op::Cancel),
        2 => any::<prop::sample::Index>().prop_map(Op::Done),
        4 => spans().prop_map(Op::Advance),
        2 => spans().prop_map(Op::Oversleep),
        1 => Just(Op::Tick),
    ];
    vec(op, 1..40)
}

/// Due timers: of those due at one time, timeouts and steps of a job before the end of a task,
/// and each in the order in which they were armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A job's timeout, or its next step; armed as the how manieth.
    Job(usize, JobId),
    /// The ttl of the task that was made with this job; armed as the how manieth.
    Ttl(usize, JobId),
}

/// The naive reading.
#[derive(Debug, Default)]
struct Model {
    due: Vec<(Instant, Due)>,
    armed: usize,
    /// Jobs that run, and whether each was told to stop.
    jobs: Vec<(JobId, bool)>,
    stops: Vec<(JobId, StopStep, StopReason)>,
}

impl Model {
    fn next(&self) -> Option<(Instant, Due)> {
        self.due.iter().min().copied()
    }

    fn arm(&mut self, at: Instant, job: JobId) {
        self.armed += 1;
        self.due.push((at, Due::Job(self.armed, job)));
    }

    fn arm_ttl(&mut self, at: Instant, job: JobId) {
        self.armed += 1;
        self.due.push((at, Due::Ttl(self.armed, job)));
    }

    fn disarm(&mut self, what: JobId) {
        self.due.retain(|(_, due)| !matches!(due, Due::Job(_, job) if *job == what));
    }

    fn stop(&mut self, job: JobId, why: StopReason, now: Instant) {
        let Some((_, stopping)) = self.jobs.iter_mut().find(|(other, _)| *other == job) else {
            return;
        };
        if !std::mem::replace(stopping, true) {
            self.stops.push((job, StopStep::Flag, why));
            self.disarm(job);
            self.arm(now + ABANDON_AFTER, job);
        }
    }

    fn end(&mut self, job: JobId) {
        self.jobs.retain(|(other, _)| *other != job);
        self.disarm(job);
    }

    fn tick(&mut self, now: Instant) {
        while let Some((at, due)) = self.next() {
            if at > now {
                return;
            }
            self.due.retain(|entry| *entry != (at, due));
            match due {
                Due::Ttl(_, job) => self.stop(job, StopReason::Expired, now),
                Due::Job(_, job) if self.jobs.contains(&(job, true)) => {
                    let why = self.stops.iter().find(|(other, ..)| *other == job);
                    let why = why.expect("it was stopped before").2;
                    self.stops.push((job, StopStep::Abandon, why));
                    self.end(job);
                }
                Due::Job(_, job) => self.stop(job, StopReason::TimedOut, now),
            }
        }
    }
}

struct Both {
    world: World,
    conn: ceased_core::ids::ConnId,
    model: Model,
    /// The request of each job, if it has one.
    requests: Vec<(JobId, Option<usize>)>,
}

impl Both {
    fn new() -> Self {
        let policy = TaskPolicy { on_ttl: OnTtl::Stop, ..TaskPolicy::default() };
        let mut world = World::with(Limits::default(), policy);
        let conn = world.open();
        Self { world, conn, model: Model::default(), requests: Vec::new() }
    }

    fn span(&self, span: &Span) -> Duration {
        let next = self.world.due_in().unwrap_or_default();
        match span {
            Span::Millis(millis) => Duration::from_millis(*millis),
            Span::Before => next.saturating_sub(NANOSECOND),
            Span::Exactly => next,
            Span::Past => next + NANOSECOND,
        }
    }

    fn step(&mut self, op: &Op) {
        let now = self.world.now().at;
        match op {
            Op::Call => {
                let number = self.requests.len();
                let job = self.world.call(self.conn, json!(number), "slow");
                self.requests.push((job, Some(number)));
                self.model.jobs.push((job, false));
                self.model.arm(now + TIMEOUT, job);
            }
            Op::Task(millis) => {
                let (_, job) = self.world.task_with(self.conn, "sleep", json!({"ttl": millis}));
                self.requests.push((job, None));
                self.model.jobs.push((job, false));
                let at = now + Duration::from_millis(*millis);
                self.model.arm_ttl(at, job);
            }
            Op::Cancel(index) if !self.requests.is_empty() => {
                let (job, request) = *index.get(&self.requests);
                let Some(request) = request else { return };
                let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                    "params": {"requestId": request}});
                self.world.send(self.conn, &cancel.to_string());
                self.model.stop(job, StopReason::Requested, now);
            }
            Op::Done(index) if !self.model.jobs.is_empty() => {
                let (job, _) = *index.get(&self.model.jobs);
                self.world.stopped(job);
                self.model.end(job);
            }
            Op::Cancel(_) | Op::Done(_) => {}
            Op::Advance(span) => {
                let end = now + self.span(span);
                while let Some((at, _)) = self.model.next().filter(|(at, _)| *at <= end) {
                    self.model.tick(at);
                }
                self.world.advance(end.since(now));
            }
            Op::Oversleep(span) => {
                let span = self.span(span);
                self.world.sleep_through(span);
                self.world.feed(Input::Tick);
                self.model.tick(now + span);
            }
            Op::Tick => {
                self.world.feed(Input::Tick);
                self.model.tick(now);
            }
        }
    }

    fn compare(&mut self, after: &Op) {
        let now = self.world.now().at;
        let due = self.model.next().map(|(at, _)| at.since(now));
        assert_eq!(self.world.due_in(), due, "after {after:?}");
        assert_eq!(self.world.stops, self.model.stops, "after {after:?}");
        assert_eq!(self.world.sizes().timers, self.model.due.len(), "after {after:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// TSK-35, DET-01: an armed timer is due at its time: not a nanosecond before, in order, once,
    /// and not at all once it was disarmed.
    #[test]
    fn everything_is_due_at_its_time(ops in ops()) {
        let mut both = Both::new();
        for op in &ops {
            both.step(op);
            both.compare(op);
        }
        // After a long wait nothing is left.
        let rest = Op::Advance(Span::Millis(200_000));
        both.step(&rest);
        both.compare(&rest);
        prop_assert_eq!(both.world.sizes().timers, 0);
        prop_assert_eq!(both.world.sizes().jobs, 0);
    }
}
