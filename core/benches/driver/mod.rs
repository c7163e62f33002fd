//! An engine driven as fast as it goes, for benchmarks: it checks only the input of the next step,
//! and no allocation is made that an engine's host could do without.

#![allow(dead_code, reason = "each benchmark uses its part")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::{Event, Outcome};
use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::{ConnId, IdSource, JobId};
use ceased_core::json::raw::Json;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::protocol::role::Role;
use ceased_core::settings::Settings;
use ceased_core::time::{Instant, Now, Wall};
use ceased_core::tool::{Catalog, StopPolicy, TaskSupport, Tool};
use uuid::Uuid;

const NEWEST: &str = "2025-11-25";
/// 2025-11-01T00:00:00Z
const WALL_START: u64 = 1_761_955_200_000;
const CONN: ConnId = ConnId::new(1);
const RESULT: &str =
    r#"{"content":[{"type":"text","text":"abcdefghijklmnopqrstuvwxyz ABCDE"}],"isError":false}"#;

const CALL: &str = r#"{"name":"echo","arguments":{"text":"abcdefghijklmnopqrstuvwxyz ABCDE"}}"#;

/// A call that names its own revision.
const CLAIMING_CALL: &str = concat!(
    r#"{"name":"echo","arguments":{"text":"abcdefghijklmnopqrstuvwxyz ABCDE"},"_meta":{"#,
    r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"#,
    r#""io.modelcontextprotocol/clientCapabilities":{}}}"#,
);

const TASK: &str = r#"{"name":"echo","arguments":{"text":"t"},"task":{"ttl":600000}}"#;

/// Ids that look random and are the same in every run.
struct Scattered(u64);

impl IdSource for Scattered {
    fn uuid(&mut self) -> Uuid {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let bits = (u128::from(self.0) << 64) | u128::from(self.0.rotate_left(29));
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }
}

/// An engine with one peer whose session is ready.
pub(crate) struct Driver {
    engine: Engine,
    now: Now,
    actions: Vec<Action>,
    running: VecDeque<JobId>,
    frame: String,
    next_id: u64,
    /// The outcome of every job.
    result: Json,
    /// The ids of the tasks that were created, as they stand on the wire.
    pub(crate) tasks: Vec<[u8; 36]>,
}

impl Default for Driver {
    fn default() -> Self {
        Self::new()
    }
}

impl Driver {
    /// As [`Driver::new`], with room for the ids of so many tasks.
    pub(crate) fn with_room(tasks: usize) -> Self {
        let mut driver = Self::new();
        driver.tasks.reserve_exact(tasks);
        driver.running.reserve_exact(tasks);
        driver
    }

    /// A driver whose limits are never reached.
    ///
    /// # Panics
    /// When the engine does not answer as it should.
    #[must_use]
    pub(crate) fn new() -> Self {
        let most = usize::MAX / 16;
        let limits = Limits {
            inflight_max: most,
            running_max: most,
            live_tasks_max: most,
            stored_tasks_max: most,
            stored_bytes_max: most,
            task_ops_per_second: None,
            ..Limits::default()
        };
        let echo = Tool {
            task_support: TaskSupport::Optional,
            timeout: Some(Duration::from_secs(600)),
            ..Tool::new("echo", StopPolicy::Handler { abandon_after: Duration::from_secs(10) })
        };
        let catalog = Catalog::new([echo]).expect("a good tool");
        let settings =
            Settings { limits, tasks: TaskPolicy::default(), catalog, ..Settings::default() };
        let mut driver = Self {
            engine: Engine::new(Arc::new(settings), Box::new(Scattered(1))),
            now: Now { at: Instant::from_nanos(1), wall: Wall::from_millis(WALL_START) },
            actions: Vec::with_capacity(64),
            running: VecDeque::with_capacity(4096),
            frame: String::with_capacity(512),
            next_id: 1,
            result: Json::written(RESULT.into()),
            tasks: Vec::new(),
        };
        driver.handle(Event::Opened {
            conn: CONN,
            identity: Identity::User(1000),
            rights: Rights::Full,
            role: Role::Server,
        });
        let client = r#""capabilities":{},"clientInfo":{"name":"bench","version":"1"}"#;
        let params = format!(r#"{{"protocolVersion":"{NEWEST}",{client}}}"#);
        driver.request("initialize", &params);
        driver.hand_in(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert!(driver.said() > 0, "the session is not ready");
        driver
    }

    fn handle(&mut self, event: Event<'_>) {
        // Hardly two things happen in the same nanosecond.
        self.now.at = self.now.at + Duration::from_nanos(100);
        self.engine.handle(self.now, event, &mut self.actions);
        self.hear();
    }

    /// Remembers the started jobs; no other action needs execution.
    fn hear(&mut self) {
        for action in self.actions.drain(..) {
            if let Action::Start { job, .. } = action {
                self.running.push_back(job);
            }
        }
    }

    fn hand_in(&mut self, frame: &str) {
        self.handle(Event::Frame { conn: CONN, frame: frame.as_bytes() });
    }

    /// One request with an id of its own, which is returned.
    pub(crate) fn request(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let mut digits = [0; 20];
        let id_text = decimal(id, &mut digits);
        self.say(&[
            r#"{"jsonrpc":"2.0","id":"#,
            id_text,
            r#","method":""#,
            method,
            r#"","params":"#,
            params,
            "}",
        ]);
        id
    }

    /// Hands in a frame made of these parts.
    fn say(&mut self, parts: &[&str]) {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        for part in parts {
            frame.push_str(part);
        }
        self.hand_in(&frame);
        self.frame = frame;
    }

    /// Bytes that were said to the peer, which takes them all.
    ///
    /// # Panics
    /// When the peer was thrown out.
    pub(crate) fn said(&mut self) -> usize {
        let queue = self.engine.send_queue(CONN).expect("the peer is still there");
        let bytes = queue.len();
        queue.advance(bytes);
        bytes
    }

    /// A ping and its answer.
    pub(crate) fn ping(&mut self) -> usize {
        self.request("ping", "{}");
        self.said()
    }

    /// A call, started and not answered.
    pub(crate) fn start_call(&mut self) -> u64 {
        let id = self.request("tools/call", CALL);
        self.handle(Event::Turn);
        id
    }

    /// The job that has run longest is done.
    ///
    /// # Panics
    /// When none runs.
    pub(crate) fn finish_job(&mut self) {
        let job = self.running.pop_front().expect("a job runs");
        self.handle(Event::Done { job, outcome: Outcome::Result(self.result.clone()) });
    }

    /// A call and the answer to the oldest one.
    pub(crate) fn call(&mut self) -> usize {
        self.start_call();
        self.finish_job();
        self.said()
    }

    /// The same of 2026-07-28.
    pub(crate) fn claiming_call(&mut self) -> usize {
        self.request("tools/call", CLAIMING_CALL);
        self.handle(Event::Turn);
        self.finish_job();
        self.said()
    }

    /// A call that is cancelled at once, and whose handler then returns.
    pub(crate) fn cancelled_call(&mut self) -> usize {
        let id = self.start_call();
        self.cancel_call(id);
        self.stop_last();
        self.said()
    }

    /// Cancels a call.
    pub(crate) fn cancel_call(&mut self, id: u64) {
        let mut digits = [0; 20];
        let id = decimal(id, &mut digits);
        let method =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#;
        self.say(&[method, id, "}}"]);
    }

    /// The handler of the job that was started last has seen its flag.
    ///
    /// # Panics
    /// When none runs.
    pub(crate) fn stop_last(&mut self) {
        let job = self.running.pop_back().expect("a job runs");
        self.handle(Event::Done { job, outcome: Outcome::Stopped });
    }

    /// A task that goes on.
    ///
    /// # Panics
    /// When none was created.
    pub(crate) fn start_task(&mut self) {
        self.said();
        self.request("tools/call", TASK);
        let queue = self.engine.send_queue(CONN).expect("the peer is still there");
        let frame = queue.pending();
        let key = b"\"taskId\":\"";
        let at = memchr::memmem::find(frame, key).expect("a task was created") + key.len();
        self.tasks.push(frame[at..at + 36].try_into().expect("an id is that long"));
        self.said();
        self.handle(Event::Turn);
    }

    /// `tasks/get` of one of [`Driver::tasks`].
    pub(crate) fn get_task(&mut self, which: usize) -> usize {
        self.get_named_task(self.tasks[which])
    }

    /// `tasks/get` of a task by its id on the wire.
    pub(crate) fn get_named_task(&mut self, task: [u8; 36]) -> usize {
        self.named_task_request("tasks/get", task);
        self.said()
    }

    /// `tasks/result` of one of [`Driver::tasks`], which has ended.
    pub(crate) fn task_result(&mut self, which: usize) -> usize {
        self.task_request("tasks/result", which);
        self.said()
    }

    /// Another connects, gets answers to its requests, with or without a call, and sends
    /// nothing from then on.
    ///
    /// # Panics
    /// When it is not answered.
    pub(crate) fn let_idler_in(&mut self, conn: ConnId, calls: bool) {
        self.handle(Event::Opened {
            conn,
            identity: Identity::User(1000),
            rights: Rights::Full,
            role: Role::Server,
        });
        let client = r#""capabilities":{},"clientInfo":{"name":"bench","version":"1"}"#;
        let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"#;
        let hello = format!("{hello}\"{NEWEST}\",{client}}}}}");
        self.handle(Event::Frame { conn, frame: hello.as_bytes() });
        let ready = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        self.handle(Event::Frame { conn, frame: ready });
        if calls {
            let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":"#;
            let call = format!("{call}{CALL}}}");
            self.handle(Event::Frame { conn, frame: call.as_bytes() });
            self.handle(Event::Turn);
            let job = self.running.pop_back().expect("its job runs");
            self.handle(Event::Done { job, outcome: Outcome::Result(self.result.clone()) });
        }
        let queue = self.engine.send_queue(conn).expect("it is still there");
        assert!(!queue.is_empty(), "it is not answered");
        queue.advance(queue.len());
    }

    /// Closes a connection.
    pub(crate) fn let_go(&mut self, conn: ConnId) {
        self.handle(Event::Closed { conn });
    }

    /// `tasks/cancel` of one of [`Driver::tasks`].
    pub(crate) fn cancel_task(&mut self, which: usize) -> usize {
        self.task_request("tasks/cancel", which);
        self.said()
    }

    fn task_request(&mut self, method: &str, which: usize) {
        self.named_task_request(method, self.tasks[which]);
    }

    fn named_task_request(&mut self, method: &str, task: [u8; 36]) {
        let task = str::from_utf8(&task).expect("an id is text");
        let mut digits = [0; 20];
        let id = decimal(self.next_id, &mut digits);
        self.next_id += 1;
        self.say(&[
            r#"{"jsonrpc":"2.0","id":"#,
            id,
            r#","method":""#,
            method,
            r#"","params":{"taskId":""#,
            task,
            r#""}}"#,
        ]);
    }

    /// The first page of `tasks/list`.
    pub(crate) fn list_tasks(&mut self) -> usize {
        self.request("tasks/list", "{}");
        self.said()
    }

    /// The page of `tasks/list` after a cursor.
    pub(crate) fn list_tasks_after(&mut self, cursor: &str) -> usize {
        self.request("tasks/list", &format!(r#"{{"cursor":"{cursor}"}}"#));
        self.said()
    }

    /// The cursor of a page that far from the first.
    ///
    /// # Panics
    /// When there are not so many.
    pub(crate) fn cursor_after(&mut self, pages: usize) -> String {
        let mut cursor = String::new();
        for _ in 0..pages {
            let params = match cursor.as_str() {
                "" => "{}".to_owned(),
                cursor => format!(r#"{{"cursor":"{cursor}"}}"#),
            };
            self.request("tasks/list", &params);
            let queue = self.engine.send_queue(CONN).expect("the peer is still there");
            let frame = queue.pending();
            let key = b"\"nextCursor\":\"";
            let at = memchr::memmem::find(frame, key).expect("there is a next page") + key.len();
            cursor = String::from_utf8_lossy(&frame[at..at + 32]).into_owned();
            self.said();
        }
        cursor
    }

    /// Lets time pass without an event.
    pub(crate) fn wait(&mut self, span: Duration) {
        self.now.at = self.now.at + span;
    }

    /// Whether the engine wants to be told that time has passed.
    pub(crate) fn is_due(&self) -> bool {
        self.engine.deadline().is_some_and(|(at, _)| at <= self.now.at)
    }

    /// Tells the engine that time has passed.
    pub(crate) fn tick(&mut self) {
        self.handle(Event::Tick);
    }
}

/// A number as it is written.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &str {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return str::from_utf8(&digits[start..]).expect("digits are text");
        }
    }
}
