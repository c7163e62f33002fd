//! Output of the engine: its lines, as the short texts of the oracle.

use serde_json::Value;
use serde_json::value::RawValue;

use super::heard_modern as modern;

/// How tasks and tokens are to be called.
pub(super) trait Names {
    /// Name of the task with this id.
    fn task(&self, id: &str) -> String;
    /// Name of the task whose creation is told here for the first time.
    fn created(&mut self, token: &str, id: &str) -> String;
    /// A list ends with this cursor, after this task.
    fn cursor(&mut self, cursor: &str, last: &str);
    /// A request of the engine's was heard, with this id.
    fn asked(&mut self, text: &str, wire: u64);
    /// Name of the engine's request with this id.
    fn call(&self, wire: u64) -> String;
    /// Name of the call that waits for its retry with this state.
    fn parked(&mut self, token: &str, state: &str) -> String;
}

/// One line in short.
///
/// # Panics
/// When it is no message.
pub(super) fn summarise(line: &str, names: &mut dyn Names) -> String {
    let message: Value =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("not JSON ({error}): {line}"));
    match message.as_array() {
        None => one(line, &message, names),
        Some(answers) => {
            let texts: Vec<&RawValue> = serde_json::from_str(line).expect("a list was read");
            let pairs = texts.iter().zip(answers);
            let mut said: Vec<String> =
                pairs.map(|(text, answer)| one(text.get(), answer, names)).collect();
            said.sort();
            format!("[{}]", said.join(", "))
        }
    }
}

/// The id as it stands there, which a parsed value does not know.
fn token(line: &str, message: &Value) -> String {
    let Some(id) = message.get("id") else { return "-".to_owned() };
    let rest = line.split_once("\"id\":").map_or("", |(_, rest)| rest);
    let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
    match stream.next() {
        Some(Ok(first)) if first == *id => rest[..stream.byte_offset()].to_owned(),
        _ => id.to_string(),
    }
}

fn one(line: &str, message: &Value, names: &mut dyn Names) -> String {
    assert_eq!(message["jsonrpc"], "2.0", "{line}");
    if let Some(method) = message.get("method").and_then(Value::as_str) {
        return match message["id"].as_u64() {
            Some(wire) => request(method, wire, message, names),
            None => notification(method, message, names),
        };
    }
    let token = token(line, message);
    if let Some(error) = message.get("error") {
        assert!(error["message"].is_string(), "an error says what is wrong: {line}");
        let said = |name: &str| {
            let word = error.pointer(name).and_then(Value::as_str);
            word.map(|word| format!(" {word}")).unwrap_or_default()
        };
        let (limit, source) = (said("/data/limit"), said("/data/source"));
        let again = error.pointer("/data/retryAfterMs").and_then(Value::as_u64);
        let again = again.map(|millis| format!(" {millis}ms")).unwrap_or_default();
        // The words of a cancelled request are the protocol's own (ACP-06).
        let words = if error["code"] == -32800 { said("/message") } else { String::new() };
        return format!("{token}:E {}{words}{limit}{again}{source}", error["code"]);
    }
    let result = message.get("result").unwrap_or_else(|| panic!("no message: {line}"));
    if let Some(kind) = result.get("resultType").and_then(Value::as_str) {
        return format!("{token}:{kind} {}", modern::answer(kind, &token, result, names));
    }
    let created = result.get("task").and_then(|task| task["taskId"].as_str());
    let task = created.map(|id| names.created(&token, id));
    format!("{token}:{}", answer(result, task, names))
}

/// A request of the engine's.
fn request(method: &str, wire: u64, message: &Value, names: &mut dyn Names) -> String {
    let params = &message["params"];
    let mut text = match (method, params["call"].as_u64(), params["taskId"].as_str()) {
        (_, Some(call), _) => format!("ask {call} {method}"),
        ("initialize", None, _) => {
            let version = params["protocolVersion"].as_str().unwrap_or_default();
            format!("init {version} {}", params["capabilities"])
        }
        (_, None, Some(task)) => format!("ask {method} {task}"),
        (_, None, None) => panic!("nobody asked {message}"),
    };
    if let Some(task) = params.get("task") {
        let ttl = task.get("ttl").map_or_else(|| "-".to_owned(), Value::to_string);
        text.push_str(&format!(" task {ttl}"));
    }
    if let Some(token) = params.pointer("/_meta/progressToken") {
        assert_eq!(*token, wire, "{message}");
        text.push_str(" progress");
    }
    text.push_str(&related(params, names));
    names.asked(&text, wire);
    text
}

fn notification(method: &str, message: &Value, names: &mut dyn Names) -> String {
    let params = &message["params"];
    let text = |name: &str| params[name].as_str().unwrap_or_default();
    match method {
        "notifications/progress" => {
            let mut said =
                format!("progress {} {}", params["progressToken"], number(&params["progress"]));
            if let Some(total) = params.get("total") {
                said.push_str(&format!("/{}", number(total)));
            }
            if let Some(message) = params.get("message").and_then(Value::as_str) {
                said.push_str(&format!(" {message:?}"));
            }
            said + &related(params, names)
        }
        "notifications/message" => {
            let related = related(params, names);
            format!("log {} {} {}{related}", text("level"), text("logger"), params["data"])
        }
        "notifications/tasks/status" => {
            assert!(params.get("_meta").is_none(), "TSK-18: no related task in {message}");
            format!("status {}", task(params, None, names))
        }
        "notifications/tools/list_changed" => match modern::subscription(params) {
            Some(name) => format!("changed {name}"),
            None => "changed".to_owned(),
        },
        "notifications/initialized" => "initialized".to_owned(),
        "notifications/cancelled" => {
            assert!(params["reason"].is_string(), "CAN-01: {message}");
            format!("cancel {}", names.call(params["requestId"].as_u64().unwrap_or_default()))
        }
        "$/cancel_request" | "$/cancelRequest" => {
            let member = if method == "$/cancelRequest" { "id" } else { "requestId" };
            let members = params.as_object().map_or(0, serde_json::Map::len);
            assert_eq!(members, 1, "ACP-01: {message}");
            format!("{method} {}", names.call(params[member].as_u64().unwrap_or_default()))
        }
        "_ceased/probe" => "probe acp".to_owned(),
        "session/update" => {
            let params = message.get("params").map_or_else(|| "-".to_owned(), Value::to_string);
            format!("said {method} {params}")
        }
        "notifications/subscriptions/acknowledged" | "notifications/tasks" => {
            modern::notification(method, params, names)
        }
        "ping" => {
            let id = message["id"].as_str().unwrap_or_default();
            format!("probe {}", id.strip_prefix("probe-").unwrap_or(id))
        }
        other => panic!("nobody expects a {other}"),
    }
}

fn number(value: &Value) -> String {
    value.as_f64().map_or_else(|| "?".to_owned(), |number| number.to_string())
}

fn related(holder: &Value, names: &dyn Names) -> String {
    let task = holder.pointer("/_meta/io.modelcontextprotocol~1related-task/taskId");
    task.and_then(Value::as_str).map(|id| format!(" {}", names.task(id))).unwrap_or_default()
}

pub(super) fn answer(result: &Value, created: Option<String>, names: &mut dyn Names) -> String {
    if let Some(name) = created {
        return format!("T {}", task(&result["task"], Some(name), names));
    }
    if let Some(revision) = result["protocolVersion"].as_str() {
        let tasks = result.pointer("/capabilities/tasks");
        let tasks =
            tasks.map_or(
                "none",
                |tasks| {
                    if tasks.get("list").is_some() { "listed" } else { "unlisted" }
                },
            );
        return format!("I {revision} {tasks}");
    }
    if let Some(tools) = result["tools"].as_array() {
        let has = |name: &&str| tools.iter().any(|tool| tool.get(*name).is_some());
        let members: Vec<&str> =
            ["title", "outputSchema", "execution"].into_iter().filter(has).collect();
        return format!("L {} {}", tools.len(), members.join(" "));
    }
    if result.get("counters").is_some() {
        let [running, queued, stopping] = ["running", "queued", "cancelling"].map(|n| &result[n]);
        let tasks = &result["tasks"]["total"];
        let (conns, drains) = (&result["connections"], &result["draining"]);
        return format!("S {running} {queued} {stopping} {conns} {tasks} {drains}");
    }
    if let Some(tasks) = result["tasks"].as_array() {
        return list(tasks, result.get("nextCursor").and_then(Value::as_str), names);
    }
    if result.get("taskId").is_some() {
        let related = result.pointer("/_meta/io.modelcontextprotocol~1related-task");
        assert!(related.is_none(), "TSK-32: no related task in {result}");
        return format!("G {}", task(result, None, names));
    }
    if let Some(text) = result.pointer("/content/0/text").and_then(Value::as_str) {
        let bad = if result["isError"] == true { " bad" } else { "" };
        return format!("R {text}{bad}{}", related(result, names));
    }
    result.to_string()
}

fn list(tasks: &[Value], next: Option<&str>, names: &mut dyn Names) -> String {
    let shown: Vec<String> = tasks.iter().map(|shown| task(shown, None, names)).collect();
    if let Some(cursor) = next {
        let last = tasks.last().and_then(|task| task["taskId"].as_str()).unwrap_or_default();
        names.cursor(cursor, last);
    }
    format!("P {} {}", shown.join("; "), if next.is_some() { "more" } else { "end" })
}

fn task(task: &Value, name: Option<String>, names: &dyn Names) -> String {
    let name = name.unwrap_or_else(|| names.task(task["taskId"].as_str().unwrap_or_default()));
    let text = |member: &str| task[member].as_str().unwrap_or("?").to_owned();
    let said = task.get("statusMessage").and_then(Value::as_str).unwrap_or_default();
    let (created, updated) = (text("createdAt"), text("lastUpdatedAt"));
    let (status, ttl, poll) = (text("status"), &task["ttl"], &task["pollInterval"]);
    format!("{name} {status} {:?} {created} {updated} {ttl} {poll}", gist(said))
}

/// Meaning of a status message; the wording is the engine's own.
pub(super) fn gist(message: &str) -> &str {
    let starts = |start: &str| message.starts_with(start);
    match message {
        _ if starts("cancelled") => "cancelled",
        _ if message.contains("shutting down") => "shutdown",
        _ if starts("the tool ran longer") => "timeout",
        _ if starts("the tool stopped") => "stopped",
        _ if starts("the tool's result is not") => "no object",
        other => other,
    }
}
