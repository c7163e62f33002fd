//! Clients that jump between nodes, and every statement that they were told.

use std::collections::{BTreeMap, BTreeSet};

use ceased_core::ids::TaskId;
use serde_json::Value;

use super::Walked;
use super::table::Table;

const TERMINAL: [&str; 3] = ["completed", "failed", "cancelled"];

/// The subject of a request.
#[derive(Debug, Clone)]
pub(super) enum About {
    /// A call that becomes a task, with its idempotency key.
    Creation {
        key: Option<String>,
    },
    Task(TaskId),
    /// The page behind a cursor.
    Page,
    /// Answers to the questions of a task.
    Answers,
}

/// A request that waits for its answer, at one start of a node.
#[derive(Debug)]
struct Asked {
    at: usize,
    about: About,
    /// Commits of the table when it was sent.
    commits: usize,
}

/// Statements about one task, by all nodes.
#[derive(Debug, Default)]
struct Said {
    status: Option<String>,
    outcome: Option<Value>,
    /// Keys of the questions that were told last.
    questions: Vec<String>,
}

/// A list that is read page by page, at whichever nodes.
#[derive(Debug, Default)]
struct Listing {
    cursor: Option<String>,
    seen: Vec<TaskId>,
    /// Tasks that were told when it was begun.
    told: BTreeSet<TaskId>,
    is_open: bool,
}

/// A subscription at one start of a node.
#[derive(Debug)]
struct Listening {
    at: usize,
    /// Times that the node was fenced before.
    fences: usize,
    /// Tasks that lived when it was acknowledged and whose end was not told since.
    awaited: BTreeSet<TaskId>,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Clients {
    asked: BTreeMap<String, Asked>,
    said: BTreeMap<TaskId, Said>,
    /// Tasks that keys were told to name.
    named: BTreeMap<String, TaskId>,
    listing: Listing,
    listening: BTreeMap<String, Listening>,
}

impl Clients {
    /// A request was sent.
    pub(super) fn ask(&mut self, id: String, at: usize, about: About, table: &Table) {
        self.asked.insert(id, Asked { at, about, commits: table.commits });
    }

    /// A subscription was sent.
    pub(super) fn listen(&mut self, id: String, at: usize, fences: usize) {
        self.listening.insert(id, Listening { at, fences, awaited: BTreeSet::new() });
    }

    /// Tasks that were told, in the order of their ids.
    pub(super) fn tasks(&self) -> Vec<TaskId> {
        self.said.keys().copied().collect()
    }

    /// A task and its questions, the last ones that were told.
    pub(super) fn questions(&self) -> Vec<(TaskId, Vec<String>)> {
        let asking = self.said.iter().filter(|(_, said)| !said.questions.is_empty());
        asking.map(|(task, said)| (*task, said.questions.clone())).collect()
    }

    /// The cursor of the list; `None` for its first page, and while a page is on its way.
    pub(super) fn next_page(&mut self) -> Option<Option<String>> {
        if std::mem::replace(&mut self.listing.is_open, true) {
            return None;
        }
        if self.listing.cursor.is_none() {
            self.listing.seen.clear();
            self.listing.told = self.said.keys().copied().collect();
        }
        Some(self.listing.cursor.clone())
    }

    /// A node was started again: its requests and subscriptions are over.
    pub(super) fn forget_node(&mut self, at: usize) {
        let Self { asked, listening, listing, .. } = self;
        asked.retain(|_, asked| {
            let stays = asked.at != at;
            if !stays && matches!(asked.about, About::Page) {
                listing.is_open = false;
            }
            stays
        });
        listening.retain(|_, listening| listening.at != at);
    }

    /// A node tells something.
    pub(super) fn take(
        &mut self,
        epoch: Option<u64>,
        message: &Value,
        table: &Table,
        walked: &mut Walked,
    ) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("notifications/tasks/status") => return self.state(params, None, table),
            Some("notifications/tasks") => {
                self.note_heard(params);
                return self.state(params, None, table);
            }
            Some("notifications/subscriptions/acknowledged") => {
                return self.acknowledge(params, table);
            }
            Some(_) | None => {}
        }
        let id = message["id"].as_str().unwrap_or_default();
        let Some(asked) = self.asked.remove(id) else { return };
        let told = message.get("error").unwrap_or(&message["result"]);
        // FLT-05: ask again.
        let again = told["code"].as_i64() == Some(-31006);
        match asked.about {
            About::Creation { key } => self.created(key, told, asked.commits, table, walked),
            About::Page => self.page(told, again, table, walked),
            About::Answers => walked.answered += usize::from(!again && told["code"].is_null()),
            About::Task(_) if again => {}
            About::Task(task) => {
                let runs = epoch.is_some_and(|epoch| table.runs_at(task, epoch));
                walked.elsewhere += usize::from(!runs);
                self.told(task, told, asked.commits, table);
            }
        }
    }

    fn created(
        &mut self,
        key: Option<String>,
        told: &Value,
        since: usize,
        table: &Table,
        walked: &mut Walked,
    ) {
        if told["code"].as_i64() == Some(-31003) {
            walked.refused += 1;
            assert_eq!(told["data"]["limit"], "tasks_per_identity", "{told}");
            return assert!(table.was_full(since), "FLT-06: refused while there was room: {told}");
        }
        let Some(handle) = told["task"].as_object() else { return };
        let task = TaskId::parse(handle["taskId"].as_str().expect("an id")).expect("an id");
        assert!(table.has(task), "{task} is told before it is in the table");
        let is_new = !self.said.contains_key(&task);
        if let Some(key) = key {
            let named = *self.named.entry(key.clone()).or_insert(task);
            assert_eq!(named, task, "the key {key} has a second run");
            walked.repeated += usize::from(!is_new);
        } else {
            assert!(is_new, "{task} is told twice");
        }
        walked.tasks += usize::from(is_new);
        self.said.entry(task).or_default();
    }

    fn told(&mut self, task: TaskId, told: &Value, since: usize, table: &Table) {
        if told["taskId"].is_string() {
            let requests = told["inputRequests"].as_object();
            let keys = requests.into_iter().flat_map(|requests| requests.keys().cloned());
            if let Some(said) = self.said.get_mut(&task) {
                said.questions = keys.collect();
            }
            return self.state(told, Some(since), table);
        }
        if told["code"].as_i64() == Some(-32602) {
            // It has ended already, or is unknown.
            let text = told["message"].as_str().unwrap_or_default();
            return assert!(!text.contains("there is no task"), "FLT-01: {task} is lost: {text}");
        }
        let mut outcome = told.clone();
        outcome.as_object_mut().map(|members| members.remove("_meta"));
        let Some(said) = self.said.get_mut(&task) else { return };
        let before = said.outcome.get_or_insert_with(|| outcome.clone());
        assert_eq!(*before, outcome, "{task} has two outcomes");
    }

    /// FLT-02: a terminal status is the one that every node tells, for ever; a status is one that the table
    /// had between the request and its answer.
    fn state(&mut self, object: &Value, since: Option<usize>, table: &Table) {
        let id = TaskId::parse(object["taskId"].as_str().expect("an id")).expect("an id");
        let status = object["status"].as_str().expect("a status").to_owned();
        let possible = since.map(|since| table.statuses(id, since));
        if let Some(possible) = &possible {
            assert!(possible.contains(&*status), "{id} is told as {status}, of {possible:?}");
        }
        let Some(said) = self.said.get_mut(&id) else { return };
        if TERMINAL.contains(&&*status) {
            assert!(!table.lives(id), "{id} is told as {status} and lives");
            let before = said.status.get_or_insert_with(|| status.clone());
            assert_eq!(*before, status, "{id} has two ends");
        } else if let Some(possible) = possible.filter(|_| said.status.is_some()) {
            assert!(possible.len() > 1, "{id} had ended, and is {status} again");
        }
    }

    /// FLT-01: a list has every task that was told when it was begun, once and in order, at whichever nodes it
    /// is read.
    fn page(&mut self, told: &Value, again: bool, table: &Table, walked: &mut Walked) {
        let listing = &mut self.listing;
        listing.is_open = false;
        if again {
            return;
        }
        let tasks = told["tasks"].as_array().unwrap_or_else(|| panic!("no list: {told}"));
        for task in tasks {
            let id = TaskId::parse(task["taskId"].as_str().expect("an id")).expect("an id");
            let last = listing.seen.last().and_then(|last| table.position(*last));
            assert!(!listing.seen.contains(&id), "{id} is listed twice");
            if let (Some(last), Some(position)) = (last, table.position(id)) {
                assert!(last < position, "{id} is listed out of order");
            }
            listing.seen.push(id);
        }
        listing.cursor = told["nextCursor"].as_str().map(str::to_owned);
        if listing.cursor.is_none() {
            walked.lists += 1;
            let seen: BTreeSet<TaskId> = listing.seen.iter().copied().collect();
            let missing: Vec<_> = listing.told.difference(&seen).collect();
            assert!(missing.is_empty(), "not listed: {missing:?}");
        }
    }

    fn acknowledge(&mut self, params: &Value, table: &Table) {
        let Some(listening) = self.listening.get_mut(&subscription(params)) else { return };
        let granted = params["notifications"]["taskIds"].as_array().into_iter().flatten();
        let granted = granted.filter_map(|task| TaskId::parse(task.as_str()?));
        listening.awaited = granted.filter(|task| table.lives(*task)).collect();
    }

    fn note_heard(&mut self, params: &Value) {
        let task = params["taskId"].as_str().and_then(TaskId::parse);
        let is_end = params["status"].as_str().is_some_and(|status| TERMINAL.contains(&status));
        if let (Some(task), true) = (task, is_end)
            && let Some(listening) = self.listening.get_mut(&subscription(params))
        {
            listening.awaited.remove(&task);
        }
    }

    /// Every request was answered, and every subscription was told of the ends of its tasks.
    pub(super) fn check_rest(&self, fences: &[usize], walked: &mut Walked) {
        assert!(self.asked.is_empty(), "unanswered: {:?}", self.asked);
        for (id, listening) in &self.listening {
            if listening.fences == fences[listening.at] {
                walked.listened += 1;
                let silent = &listening.awaited;
                assert!(silent.is_empty(), "{id} at {} did not hear of {silent:?}", listening.at);
            }
        }
    }
}

/// The subscription that a notification is for.
fn subscription(params: &Value) -> String {
    let meta = &params["_meta"]["io.modelcontextprotocol/subscriptionId"];
    meta.as_str().unwrap_or_default().to_owned()
}
