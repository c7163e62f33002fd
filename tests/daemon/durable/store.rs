//! A daemon with a faulty store: its answers, and that it keeps running (DUR-01).
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ceased::store::durable::{RecordKey, StoreWrite, TaskOutcome, TaskRecord};
use ceased::store::{Due, Fault, Faults, Faulty, Memory, Store, StoreError};
use ceased::{
    Daemon, DaemonHandle, HandlerTool, Job, RunError, TaskPolicy, TaskSupport, ToolResult,
};
use ceased_tests::daemon::peer::{call, request};
use ceased_tests::daemon::{Peer, wait_until};
use serde_json::Value;

/// A daemon in this process, with a tool that waits for the test.
struct Rig {
    daemon: DaemonHandle,
    faults: Faults,
    gate: Sender<()>,
}

impl Rig {
    fn start() -> Self {
        Self::with(quick())
    }

    fn with(quick: HandlerTool) -> Self {
        let faults = Faults::default();
        let (gate, wait) = channel::<()>();
        let wait = Mutex::new(wait);
        let gated = HandlerTool::new("gated", move |_: &Job| {
            let _ = wait.lock().unwrap().recv();
            Ok(ToolResult::text("let through"))
        })
        .task_support(TaskSupport::Optional);
        let policy =
            TaskPolicy { store_retry: Duration::from_millis(100), ..TaskPolicy::default() };
        let daemon = Daemon::new()
            .tool(quick.build().unwrap())
            .tool(gated.build().unwrap())
            .tasks(policy)
            .store(Faulty::new(Memory::new(), faults.clone()))
            .start()
            .unwrap();
        Self { daemon, faults, gate }
    }

    fn peer(&self) -> Peer {
        let mut peer = Peer::of_socket(OwnedFd::from(self.daemon.connect().unwrap()));
        peer.initialize();
        peer
    }
}

/// A tool that ends at once.
fn quick() -> HandlerTool {
    HandlerTool::new("quick", |_: &Job| Ok(ToolResult::text("done")))
        .task_support(TaskSupport::Optional)
}

/// The same in both ways of storing its tasks: two writes, or one write for a short task.
fn every_quick() -> [HandlerTool; 2] {
    [quick(), quick().read_only()]
}

fn create(peer: &mut Peer, tool: &str) -> Value {
    let params = format!(r#"{{"name":"{tool}","arguments":{{}},"task":{{}}}}"#);
    let id = peer.request("tools/call", &params);
    peer.answer(id)
}

fn of_task(task: &str) -> String {
    format!(r#"{{"taskId":"{task}"}}"#)
}

/// DUR-01: while the store accepts no new tasks, they are refused with the reason, plain calls
/// continue, and later the store recovers by itself.
#[test]
fn new_tasks_are_refused_and_plain_calls_go_on() {
    let faults = [(Fault::Full, "full"), (Fault::FullForAll, "full"), (Fault::Broken, "broken")];
    let all = faults.into_iter().flat_map(|fault| every_quick().map(|quick| (fault, quick)));
    for ((fault, word), quick) in all {
        let rig = Rig::with(quick);
        let mut peer = rig.peer();
        let before = peer.create_task("quick", "{}");
        let kept = peer.result("tasks/result", &of_task(&before));
        rig.faults.set(fault);
        let refused = create(&mut peer, "quick");
        assert_eq!(refused["error"]["data"]["store"], word, "{refused}");
        let plain = peer.call("quick", "{}");
        assert_eq!(peer.answer(plain)["result"]["content"][0]["text"], "done", "{fault:?}");
        // Announced tasks still exist.
        assert_eq!(peer.result("tasks/result", &of_task(&before)), kept);
        rig.faults.set(Fault::None);
        wait_until("tasks are accepted again", || {
            create(&mut peer, "quick")["result"]["task"]["taskId"].is_string()
        });
        rig.daemon.shut_down().unwrap();
    }
}

/// DUR-01: an accepted task ends while the store is full, and its result becomes visible after its
/// write.
#[test]
fn accepted_tasks_end_while_the_store_fails() {
    for fault in [Fault::Full, Fault::FullForAll, Fault::Broken, Fault::Unknown] {
        let rig = Rig::start();
        let mut peer = rig.peer();
        let task = peer.create_task("gated", "{}");
        rig.faults.set(fault);
        rig.gate.send(()).unwrap();
        let asked = peer.request("tasks/result", &of_task(&task));
        if fault == Fault::Full {
            // The pending result fits.
            assert_eq!(peer.answer(asked)["result"]["content"][0]["text"], "let through");
            continue;
        }
        // The write is pending: meanwhile a plain call completes.
        let plain = peer.call("quick", "{}");
        assert_eq!(peer.answer(plain)["result"]["content"][0]["text"], "done");
        rig.faults.set(Fault::None);
        let mut answer = peer.answer(asked);
        wait_until("the result is available", || {
            if answer["result"].is_null() {
                let again = peer.request("tasks/result", &of_task(&task));
                answer = peer.answer(again);
            }
            !answer["result"].is_null()
        });
        assert_eq!(answer["result"]["content"][0]["text"], "let through", "{fault:?}");
    }
}

/// DUR-01: no answer mentions a task before its write.
#[test]
fn answer_waits_for_the_store() {
    for quick in every_quick() {
        let rig = Rig::with(quick);
        let mut peer = rig.peer();
        let pause = Duration::from_millis(300);
        rig.faults.set(Fault::Slow(pause));
        let asked = Instant::now();
        let task = peer.create_task("quick", "{}");
        assert!(asked.elapsed() >= pause);
        let plain = peer.call("quick", "{}");
        peer.answer(plain);
        rig.faults.set(Fault::None);
        peer.result("tasks/result", &of_task(&task));
    }
}

/// Called before a store carries out a batch.
type Before = Box<dyn FnMut(&[StoreWrite]) -> Result<(), StoreError> + Send>;

/// A store with a hook before each commit.
struct Hooked {
    inner: Memory,
    before: Before,
}

impl Hooked {
    fn new(before: impl FnMut(&[StoreWrite]) -> Result<(), StoreError> + Send + 'static) -> Self {
        Self { inner: Memory::new(), before: Box::new(before) }
    }
}

impl Store for Hooked {
    fn restore(&mut self, at: usize, each: &mut dyn FnMut(TaskRecord)) -> Result<(), StoreError> {
        self.inner.restore(at, each)
    }

    fn commit(&mut self, writes: &[StoreWrite], due: Due) -> Result<(), StoreError> {
        (self.before)(writes)?;
        self.inner.commit(writes, due)
    }

    fn load(&mut self, key: RecordKey) -> Result<Option<TaskOutcome>, StoreError> {
        self.inner.load(key)
    }

    fn tidy(&mut self) -> Result<bool, StoreError> {
        self.inner.tidy()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.inner.reopen()
    }
}

/// For each written record: whether it was new, and whether its task had ended.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<(bool, bool)>>>);

impl Written {
    /// A store that records its writes.
    fn store(&self) -> Hooked {
        let written = Arc::clone(&self.0);
        Hooked::new(move |writes| {
            let noted = writes.iter().filter_map(|write| {
                let is_new = matches!(write, StoreWrite::New(_));
                Some((is_new, write.record()?.status.is_terminal()))
            });
            written.lock().unwrap().extend(noted);
            Ok(())
        })
    }

    fn take(&self) -> Vec<(bool, bool)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A task of a tool that is not read-only is written at its creation and at its end, however short
/// it is.
#[test]
fn short_task_that_is_not_read_only_is_written_twice() {
    let written = Written::default();
    let daemon = Daemon::new().tool(quick().build().unwrap()).store(written.store());
    let daemon = daemon.start().unwrap();
    let mut peer = Peer::of(&daemon);
    for _ in 0..100 {
        let task = peer.create_task("quick", "{}");
        assert_eq!(peer.result("tasks/result", &of_task(&task))["content"][0]["text"], "done");
        assert_eq!(written.take(), [(true, false), (false, true)]);
    }
    daemon.shut_down().unwrap();
}

/// On a worker thread, or on the loop's thread for a fast tool: the end is written with the task or
/// after it, and never announced before.
#[test]
fn short_read_only_task_is_written_once() {
    let written = Written::default();
    let quick = quick().read_only().build().unwrap();
    let limits = ceased::Limits { task_ops_per_second: None, ..Default::default() };
    let daemon = Daemon::new().tool(quick).limits(limits).store(written.store()).start().unwrap();
    let mut peer = Peer::of(&daemon);
    wait_until("a task is written once", || {
        let task = peer.create_task("quick", "{}");
        assert_eq!(peer.result("tasks/result", &of_task(&task))["content"][0]["text"], "done");
        match &written.take()[..] {
            [(true, true)] => true,
            [(true, false), (false, true)] => false,
            other => panic!("{other:?}"),
        }
    });
    daemon.shut_down().unwrap();
}

/// If the content of the disk is unknown, or the store's thread is gone, the daemon exits and says
/// so.
#[test]
fn store_that_is_lost_ends_the_daemon() {
    for fault in [Fault::Lost, Fault::Panic] {
        let rig = Rig::start();
        let mut peer = rig.peer();
        rig.faults.set(fault);
        peer.request("tools/call", r#"{"name":"quick","arguments":{},"task":{}}"#);
        // The daemon announces nothing more and exits.
        assert!(peer.rest().iter().all(|message| message["result"].is_null()));
        match rig.daemon.shut_down() {
            Err(RunError::Store(StoreError::Lost(_))) => {}
            other => panic!("{fault:?}: {other:?}"),
        }
    }
}

/// Params of a call as a task.
const TASK: &str = r#"{"name":"quick","arguments":{},"task":{}}"#;

/// Fault in the next batch that the loop's leader carries out.
#[derive(Debug, Clone)]
enum BatchFault {
    /// The disk blocks until the test releases it.
    Stall,
    Fail(StoreError),
    Panic,
}

/// A daemon with a fast disk, until its leader hits a fault.
struct Quick {
    daemon: DaemonHandle,
    next: Arc<Mutex<Option<BatchFault>>>,
    met: Receiver<()>,
    release: Sender<()>,
}

impl Quick {
    fn start() -> Self {
        Self::with(quick())
    }

    fn with(quick: HandlerTool) -> Self {
        let next = Arc::<Mutex<Option<BatchFault>>>::default();
        let (meet, met) = channel();
        let (release, released) = channel();
        let watched = Arc::clone(&next);
        let store = Hooked::new(move |_| {
            let leads = std::thread::current().name() != Some("ceased-store");
            let next = if leads { watched.lock().unwrap().take() } else { None };
            if next.is_some() {
                meet.send(()).unwrap();
            }
            match next {
                None => Ok(()),
                Some(BatchFault::Stall) => {
                    released.recv().unwrap();
                    Ok(())
                }
                Some(BatchFault::Fail(error)) => Err(error),
                Some(BatchFault::Panic) => panic!("the store panics on purpose"),
            }
        });
        let policy =
            TaskPolicy { store_retry: Duration::from_millis(100), ..TaskPolicy::default() };
        let limits = ceased::Limits { task_ops_per_second: None, ..Default::default() };
        let daemon = Daemon::new().tool(quick.build().unwrap()).tasks(policy).limits(limits);
        Self { daemon: daemon.store(store).start().unwrap(), next, met, release }
    }

    fn peer(&self) -> Peer {
        Peer::of(&self.daemon)
    }

    /// Creates tasks until the leader has hit the fault; returns the unanswered requests.
    fn meet(&self, peer: &mut Peer, fault: BatchFault) -> Vec<u64> {
        *self.next.lock().unwrap() = Some(fault);
        let mut asked = Vec::new();
        wait_until("the leader carries out a batch", || {
            asked.retain(|id| !peer.has_answer(*id));
            asked.push(peer.request("tools/call", TASK));
            // One at a time, because larger batches go to the store's thread.
            let _ = peer.result("ping", "{}");
            self.met.try_recv().is_ok()
        });
        asked
    }
}

/// A blocked disk delays only the requests that wait for it, and later those stay in order; the
/// same again after the leader has resumed its own writes (DUR-01).
#[test]
fn disk_that_stalls_under_the_leader_delays_no_other_request() {
    for quick in every_quick() {
        stall(quick);
    }
}

fn stall(quick: HandlerTool) {
    let rig = Quick::with(quick);
    let (mut one, mut other) = (rig.peer(), rig.peer());
    for _ in 0..3 {
        let mut asked = rig.meet(&mut one, BatchFault::Stall);
        for _ in 0..20 {
            let _ = one.result("ping", "{}");
            asked.push(one.request("tools/call", TASK));
            let plain = other.call("quick", "{}");
            assert_eq!(other.text(plain), "done");
        }
        let waiting = asked.split_off(asked.len() - 20);
        assert!(waiting.iter().all(|id| !one.has_answer(*id)), "the write is not complete");
        rig.release.send(()).unwrap();
        for id in asked.into_iter().chain(waiting) {
            let task = one.answer(id)["result"]["task"]["taskId"].as_str().unwrap().to_owned();
            assert_eq!(one.result("tasks/result", &of_task(&task))["content"][0]["text"], "done");
        }
    }
    rig.daemon.shut_down().unwrap();
}

/// Shutdown completes although the leader is in a write; announced tasks are stored.
#[test]
fn shutdown_waits_for_a_write_of_the_leader() {
    let rig = Quick::start();
    let mut peer = rig.peer();
    rig.meet(&mut peer, BatchFault::Stall);
    let ending = std::thread::spawn(|| rig.daemon.shut_down());
    wait_until("calls are refused", || {
        let id = peer.next_id();
        let _ = peer.try_send((call(id, "quick", "{}", "") + "\n").as_bytes());
        let answer = std::iter::from_fn(|| peer.message()).find(|message| message["id"] == id);
        answer.is_none_or(|answer| answer["error"].is_object())
    });
    rig.release.send(()).unwrap();
    ending.join().unwrap().unwrap();
}

/// A failure under the leader is handled like one under the store's thread.
#[test]
fn store_that_fails_under_the_leader_recovers() {
    for (error, word) in
        [(StoreError::Full, "full"), (StoreError::Broken("on purpose".into()), "broken")]
    {
        let rig = Quick::start();
        let mut peer = rig.peer();
        let asked = rig.meet(&mut peer, BatchFault::Fail(error));
        let answers: Vec<Value> = asked.into_iter().map(|id| peer.answer(id)).collect();
        // The failed write may have been the end of a task, which is written again.
        let is_good = |answer: &Value| {
            answer["error"]["data"]["store"] == word
                || answer["result"]["task"]["taskId"].is_string()
        };
        assert!(answers.iter().all(is_good), "{answers:?}");
        wait_until("tasks are accepted again", || {
            create(&mut peer, "quick")["result"]["task"]["taskId"].is_string()
        });
        rig.daemon.shut_down().unwrap();
    }
}

/// If the content of the disk is unknown, the daemon exits, whichever thread found it.
#[test]
fn store_that_is_lost_under_the_leader_ends_the_daemon() {
    for fault in [BatchFault::Fail(StoreError::Lost("on purpose".into())), BatchFault::Panic] {
        let rig = Quick::start();
        let mut peer = rig.peer();
        *rig.next.lock().unwrap() = Some(fault.clone());
        // The daemon announces nothing more and exits.
        wait_until("the leader carries out a batch", || {
            let line = request(peer.next_id(), "tools/call", TASK) + "\n";
            peer.try_send(line.as_bytes()).is_err() || peer.message().is_none()
        });
        match rig.daemon.shut_down() {
            Err(RunError::Store(StoreError::Lost(_))) => {}
            other => panic!("{fault:?}: {other:?}"),
        }
    }
}
