//! Recorded traffic, validated against the published schema and against the rules visible in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ceased_tests::schema::{self, Asked};
use serde_json::Value;

/// Checks everything that the relays recorded below a folder; returns the number of server lines.
pub(crate) fn check(folder: &Path) -> usize {
    let mut lines = 0;
    for entry in fs::read_dir(folder).expect("the record is there").flatten() {
        if entry.path().join("out").exists() {
            lines += check_session(&entry.path());
        }
    }
    lines
}

/// One request of the client.
struct Request {
    asked: Asked,
    /// Its progress token, as JSON text.
    token: Option<String>,
    /// Whether the call ends only by a cancel.
    is_endless: bool,
    is_answered: bool,
}

/// One connection, seen from the client.
#[derive(Default)]
struct Session {
    requests: BTreeMap<String, Request>,
    /// The latest progress by token.
    progress: BTreeMap<String, f64>,
    /// Tokens of calls that were answered without a task.
    spent: BTreeSet<String>,
    ended_tasks: BTreeSet<String>,
}

fn check_session(folder: &Path) -> usize {
    let mut session = Session::default();
    for line in messages(&folder.join("in")) {
        session.asked(&line);
    }
    let answers = messages(&folder.join("out"));
    let first = answers.first().expect("the server said something");
    let negotiated = first["result"]["protocolVersion"].as_str();
    let claimed = session.requests.values().all(|request| request.asked.claims);
    let revision = negotiated.or(claimed.then_some(schema::MODERN));
    let revision = revision.expect("the first answer is that to initialize");
    for line in &answers {
        let asked = session.heard(line);
        let valid = schema::check_message(revision, line, asked.as_ref());
        valid.expect("what the server says is valid");
    }
    // RPC-03
    for (id, request) in &session.requests {
        let method = &request.asked.method;
        assert_eq!(request.is_answered, !request.is_endless, "{method} {id} in {folder:?}");
    }
    answers.len()
}

/// Parses every line as JSON; the last line must be complete too.
fn messages(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    assert!(text.ends_with('\n'), "{} ends in the middle of a line", path.display());
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"));
    text.lines().map(parse).collect()
}

impl Session {
    fn asked(&mut self, message: &Value) {
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
            return;
        };
        let params = &message["params"];
        // A self-contained request lets the server decide, and this server creates a task where
        // allowed.
        let extension = "/_meta/io.modelcontextprotocol~1clientCapabilities\
                         /extensions/io.modelcontextprotocol~1tasks";
        let with_task = params.get("task").is_some() || params.pointer(extension).is_some();
        let endless = params["arguments"].get("mark").is_some() && !with_task;
        let request = Request {
            asked: Asked {
                method: method.to_owned(),
                with_task,
                claims: schema::claims(message),
                of_server: false,
            },
            token: params["_meta"].get("progressToken").map(Value::to_string),
            is_endless: endless || method == "subscriptions/listen",
            is_answered: false,
        };
        let earlier = self.requests.insert(id.to_string(), request);
        assert!(earlier.is_none(), "the client used an id twice: {message}");
    }

    /// Takes a message of the server; returns the request that it answers, if any.
    fn heard(&mut self, message: &Value) -> Option<Asked> {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("notifications/progress") => self.progressed(message, params),
            Some("notifications/tasks/status") => {
                let (id, status) = (params["taskId"].to_string(), params["status"].as_str());
                assert!(!self.ended_tasks.contains(&id), "a status after the last: {message}");
                if matches!(status, Some("completed" | "failed" | "cancelled")) {
                    self.ended_tasks.insert(id);
                }
            }
            Some(_) => {}
            None => return Some(self.answered(message)),
        }
        None
    }

    /// CAN-08, RPC-03: one answer per request, none for a cancelled one.
    fn answered(&mut self, message: &Value) -> Asked {
        let request = self.requests.get_mut(&message["id"].to_string());
        let request = request.unwrap_or_else(|| panic!("no such request: {message}"));
        assert!(!request.is_answered, "a second answer: {message}");
        assert!(!request.is_endless, "an answer to a cancelled call: {message}");
        request.is_answered = true;
        if let Some(token) = &request.token
            && !request.asked.with_task
        {
            self.spent.insert(token.clone());
        }
        request.asked.clone()
    }

    /// TSK-33 for tasks, and likewise for plain calls: progress increases and ends with its call.
    fn progressed(&mut self, message: &Value, params: &Value) {
        let token = params["progressToken"].to_string();
        assert!(!self.spent.contains(&token), "progress after the answer: {message}");
        let task = params["_meta"]["io.modelcontextprotocol/related-task"]["taskId"].to_string();
        assert!(!self.ended_tasks.contains(&task), "progress after the end: {message}");
        let progress = params["progress"].as_f64().expect("progress is a number");
        let earlier = self.progress.insert(token, progress);
        assert!(earlier.is_none_or(|earlier| earlier < progress), "no progress: {message}");
    }
}

/// Counter-tests of the checks above.
mod canaries {
    use super::Session;
    use serde_json::{Value, json};

    /// A session with a plain call (1), a call with a task (2) and an endless call (3).
    fn session() -> Session {
        let mut session = Session::default();
        for (id, mut params) in [
            (1, json!({"name": "steps"})),
            (2, json!({"name": "steps", "task": {}})),
            (3, json!({"name": "tree", "arguments": {"mark": "m"}})),
        ] {
            params["_meta"] = json!({"progressToken": id});
            session.asked(&json!({"id": id, "method": "tools/call", "params": params}));
        }
        session
    }

    fn answer(id: u32) -> Value {
        json!({"id": id, "result": {}})
    }

    fn progress(token: u32, progress: f64) -> Value {
        let related = json!({"io.modelcontextprotocol/related-task": {"taskId": "t"}});
        let params = json!({"progressToken": token, "progress": progress, "_meta": related});
        json!({"method": "notifications/progress", "params": params})
    }

    fn status(status: &str) -> Value {
        let params = json!({"taskId": "t", "status": status});
        json!({"method": "notifications/tasks/status", "params": params})
    }

    fn hear(messages: &[Value]) {
        let mut session = session();
        for message in messages {
            session.heard(message);
        }
    }

    #[test]
    fn good_session_passes() {
        hear(&[progress(1, 1.0), progress(1, 2.5), answer(1)]);
        hear(&[progress(3, 1.0), answer(2), progress(2, 1.0), status("working")]);
        hear(&[answer(2), progress(2, 1.0), status("completed")]);
    }

    #[test]
    #[should_panic(expected = "no such request")]
    fn answer_without_a_request() {
        hear(&[answer(4)]);
    }

    #[test]
    #[should_panic(expected = "a second answer")]
    fn second_answer() {
        hear(&[answer(1), answer(1)]);
    }

    #[test]
    #[should_panic(expected = "an answer to a cancelled call")]
    fn answer_to_a_cancelled_call() {
        hear(&[answer(3)]);
    }

    #[test]
    #[should_panic(expected = "progress after the answer")]
    fn progress_after_the_answer() {
        hear(&[answer(1), progress(1, 1.0)]);
    }

    #[test]
    #[should_panic(expected = "no progress")]
    fn progress_that_goes_back() {
        hear(&[progress(1, 2.0), progress(1, 2.0)]);
    }

    #[test]
    #[should_panic(expected = "progress after the end")]
    fn progress_after_the_end_of_its_task() {
        hear(&[answer(2), status("cancelled"), progress(2, 1.0)]);
    }

    #[test]
    #[should_panic(expected = "a status after the last")]
    fn status_after_the_last() {
        hear(&[status("cancelled"), status("completed")]);
    }
}
