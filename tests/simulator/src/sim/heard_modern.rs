//! Output of the engine in the stateless revision, as the short texts of the oracle.

use serde_json::Value;

use super::heard::{self, Names};

const META: &str = "io.modelcontextprotocol/";

/// The subscription a message belongs to (MOD-08).
pub(super) fn subscription(holder: &Value) -> Option<String> {
    let name = holder["_meta"].get(format!("{META}subscriptionId"));
    name.map(Value::to_string)
}

/// A result in short.
///
/// # Panics
/// When it is not as every such result is (MOD-02).
pub(super) fn answer(kind: &str, token: &str, result: &Value, names: &mut dyn Names) -> String {
    let server = result["_meta"].get(format!("{META}serverInfo"));
    assert!(server.is_some_and(|server| server["name"] == "simulated"), "MOD-02: {result}");
    let related = result["_meta"].get(format!("{META}related-task"));
    assert!(related.is_none(), "EXT-02: {result}");
    match kind {
        "task" => {
            let name = names.created(token, result["taskId"].as_str().unwrap_or_default());
            return task(result, Some(name), names);
        }
        "input_required" => {
            let state =
                result["requestState"].as_str().expect("there is a state to come back with");
            let name = names.parked(token, state);
            return format!("{name} {}", questions(&result["inputRequests"]));
        }
        "complete" => {}
        other => panic!("there is no result type {other}"),
    }
    if let Some(name) = subscription(result) {
        return format!("over {name}");
    }
    if let Some(versions) = result["supportedVersions"].as_array() {
        let cacheable = result["ttlMs"].is_u64() && result["cacheScope"].is_string();
        assert!(cacheable && result["capabilities"].is_object(), "MOD-02: {result}");
        return format!("V {}", versions.len());
    }
    if result.get("taskId").is_some() {
        return format!("D {}", detailed(result, names));
    }
    let mut rest = result.clone();
    let members = rest.as_object_mut().expect("a result is an object");
    members.retain(|name, _| name != "resultType" && name != "_meta");
    heard::answer(&rest, None, names)
}

/// A notification of a subscription in short.
pub(super) fn notification(method: &str, params: &Value, names: &dyn Names) -> String {
    let name = subscription(params).unwrap_or_else(|| panic!("MOD-08: {params}"));
    if method == "notifications/tasks" {
        return format!("task {name} {}", detailed(params, names));
    }
    let granted = &params["notifications"];
    let tools = granted["toolsListChanged"] == true;
    let ids = granted.get("taskIds").and_then(Value::as_array).map(|ids| {
        let name = |id: &Value| names.task(id.as_str().unwrap_or_default());
        let mut nonces: Vec<u64> =
            ids.iter().filter_map(|id| name(id).trim_start_matches('#').parse().ok()).collect();
        assert_eq!(nonces.len(), ids.len(), "tasks nobody knows in {params}");
        nonces.sort_unstable();
        format!("{nonces:?}")
    });
    format!("listening {name} {tools} {}", ids.unwrap_or_default())
}

/// A task with all there is to know of it (EXT-02).
fn detailed(holder: &Value, names: &dyn Names) -> String {
    let mut shown = task(holder, None, names);
    let members = [
        holder.get("inputRequests").map(questions),
        holder.get("error").map(|error| format!("E {}", error["code"])),
        holder.get("result").map(|result| {
            let text = result.pointer("/content/0/text").and_then(Value::as_str);
            let bad = if result["isError"] == true { " bad" } else { "" };
            format!("R {}{bad}", text.unwrap_or("?"))
        }),
    ];
    for member in members.into_iter().flatten() {
        shown.push(' ');
        shown.push_str(&member);
    }
    shown
}

fn questions(requests: &Value) -> String {
    let asked = requests.as_object().unwrap_or_else(|| panic!("no questions: {requests}"));
    let mut asked: Vec<(u64, &str)> = asked
        .iter()
        .map(|(key, ask)| {
            (key.parse().expect("a key is a number"), ask["method"].as_str().unwrap_or("?"))
        })
        .collect();
    asked.sort_unstable();
    let asked: Vec<String> =
        asked.iter().map(|(call, method)| format!("{call}:{method}")).collect();
    format!("[{}]", asked.join(","))
}

fn task(task: &Value, name: Option<String>, names: &dyn Names) -> String {
    let name = name.unwrap_or_else(|| names.task(task["taskId"].as_str().unwrap_or_default()));
    let text = |member: &str| task[member].as_str().unwrap_or("?").to_owned();
    let said = task.get("statusMessage").and_then(Value::as_str).unwrap_or_default();
    let (created, updated) = (text("createdAt"), text("lastUpdatedAt"));
    let (status, ttl, poll) = (text("status"), &task["ttlMs"], &task["pollIntervalMs"]);
    format!("{name} {status} {:?} {created} {updated} {ttl} {poll}", heard::gist(said))
}
