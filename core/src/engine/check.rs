//! Invariants across the tables: what must hold after every event.

use super::Engine;
use crate::call::{Asked, Caller, Wanted};
use crate::connection::{Ending, Work};
use crate::job::{JobState, Purpose};
use crate::task::Status;

/// Checks them all.
///
/// # Panics
/// When one is broken.
pub(super) fn check(engine: &Engine) {
    engine.tasks.check();
    requests(engine);
    jobs(engine);
    calls(engine);
    timers(engine);
    for (id, task) in engine.tasks.iter() {
        for (conn, request) in &task.waiters {
            let pending = engine.connections.get(conn).and_then(|c| c.requests.get(request));
            assert_eq!(pending.map(|p| p.work), Some(Work::Task(*id)), "a waiter waits (TSK-15)");
        }
        if let Some(job) = task.job {
            assert!(engine.jobs.contains_key(&job), "{id} names a job that is gone");
        }
        assert!(task.status.is_terminal() || task.job.is_some(), "{id} works without a job");
    }
}

fn requests(engine: &Engine) {
    for (conn, connection) in &engine.connections {
        let max = engine.loosest.inflight;
        assert!(connection.requests.len() <= max, "{conn:?} has too many requests");
        for (id, pending) in &connection.requests {
            assert_eq!(pending.reply.id, *id);
            assert_eq!(pending.reply.conn, *conn);
            match pending.work {
                Work::Job(job) => {
                    let job = engine.jobs.get(&job).expect("a waiting request has a job (RPC-03)");
                    assert_eq!(job.purpose, Purpose::Answer(id.clone()));
                    assert_eq!(job.conn, *conn);
                }
                Work::Task(task) => {
                    let task = engine.tasks.get(task).expect("a waiting request has a task");
                    assert!(task.waiters.contains(&(*conn, id.clone())));
                }
            }
        }
        let collected: usize = connection.batches.values().map(|batch| batch.bytes.len()).sum();
        assert_eq!(collected, connection.collected, "collected answers are counted");
        for answers in connection.batches.values() {
            assert!(answers.open > 0, "a settled batch is sent and forgotten");
        }
        for job in &connection.held_progress {
            assert!(engine.jobs.contains_key(job), "progress is held for a job that is gone");
        }
        assert!(
            !matches!(connection.ending, Ending::Finished(_)) || !connection.requests.is_empty(),
            "{conn:?} has nothing left to wait for and is still open"
        );
    }
}

fn jobs(engine: &Engine) {
    let mut running = 0;
    for (id, job) in &engine.jobs {
        match job.state {
            JobState::Queued(_) => {
                assert!(engine.queue.contains(id), "{id} waits in no queue");
                assert_ne!(job.purpose, Purpose::Nobody, "{id} waits for nobody");
            }
            JobState::Running | JobState::Lingering => {
                running += 1;
                assert_ne!(job.purpose, Purpose::Nobody, "{id} runs for nobody (J3)");
            }
            JobState::Stopping { .. } => running += 1,
        }
        match &job.purpose {
            Purpose::Nobody => {}
            Purpose::Answer(request) => {
                let pending =
                    engine.connections.get(&job.conn).and_then(|c| c.requests.get(request));
                assert_eq!(pending.map(|p| p.work), Some(Work::Job(*id)), "{id} answers a request");
            }
            Purpose::Task => {
                let task = job.task.and_then(|task| engine.tasks.get(task));
                let task = task.expect("a job's task exists");
                assert_eq!(task.job, Some(*id));
                assert!(!task.status.is_terminal(), "{id} works for a task that has ended");
            }
        }
    }
    assert_eq!(running, engine.running, "running jobs are counted");
    assert!(running <= engine.loosest.running, "too many jobs run");
    assert!(engine.queue.iter().all(|id| engine.jobs.contains_key(id)), "a queued job is gone");
}

/// Every question of a job is where the connection it went to, or its task, knows of it.
fn calls(engine: &Engine) {
    let mut sent = 0;
    for (id, job) in &engine.jobs {
        let stopping = !matches!(job.state, JobState::Running | JobState::Lingering);
        for (ask, asked) in &job.asks {
            match asked {
                Asked::Waiting(_) => {
                    assert!(job.task.is_some(), "{id} asks {ask:?} of nobody");
                    assert!(!stopping, "{id} is told to stop and still asks");
                }
                Asked::Sent(conn, call) | Asked::Offered(conn, call, _) => {
                    let entry = engine.connections.get(conn).and_then(|c| c.calls.get(call));
                    let caller = Caller::Job { job: *id, ask: *ask };
                    assert_eq!(entry.map(|entry| entry.caller), Some(caller));
                    let wanted = entry.is_some_and(|entry| entry.wanted == Wanted::Yes);
                    assert!(!stopping || !wanted, "{id} is told to stop and still asks");
                    sent += 1;
                }
            }
        }
        if let Some(task) = job.task.and_then(|task| engine.tasks.get(task))
            && !task.status.is_terminal()
        {
            let asks = task.status == Status::InputRequired;
            assert_eq!(asks, job.needs_input(), "input_required while it asks (TSK-28)");
        }
    }
    for (ask, (conn, call)) in &engine.host_calls {
        let entry = engine.connections.get(conn).and_then(|c| c.calls.get(call));
        assert_eq!(entry.map(|entry| entry.caller), Some(Caller::Host(*ask)));
        sent += 1;
    }
    for call in engine.connections.values().flat_map(|c| c.calls.values()) {
        let bounded = call.wanted == Wanted::Yes || call.timer.is_some();
        assert!(bounded, "the answer to a cancelled call is waited for without end (ACP-03)");
    }
    let open: usize = engine.connections.values().map(|c| c.calls.len()).sum();
    assert_eq!(open, sent, "a call without a caller");
}

fn timers(engine: &Engine) {
    let armed = engine.jobs.values().filter(|job| job.timer.is_some()).count()
        + engine.tasks.iter().filter(|(_, task)| task.timer.is_some()).count()
        + engine.connections.values().filter(|c| c.stall_timer.is_some()).count()
        + engine.connections.values().filter(|c| c.linger_timer.is_some()).count()
        + engine
            .connections
            .values()
            .flat_map(|c| c.calls.values())
            .filter(|call| call.timer.is_some())
            .count()
        + engine.drain.as_ref().map_or(0, |drain| {
            usize::from(drain.kill_timer.is_some()) + usize::from(drain.end_timer.is_some())
        });
    assert_eq!(armed, engine.timers.len(), "a timer without an owner");
}
