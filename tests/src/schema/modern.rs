//! Messages of 2026-07-28 and of its tasks extension.

use serde_json::Value;

use super::{Asked, check as holds};

/// The revision without sessions.
pub const REVISION: &str = "2026-07-28";
/// The tasks extension, as a schema of its own.
pub(super) const TASKS: &str = "ext-tasks-draft";
/// Where a notification says which subscription it belongs to.
pub(super) const SUBSCRIPTION: &str = "/params/_meta/io.modelcontextprotocol~1subscriptionId";

const SERVER: &str = "/result/_meta/io.modelcontextprotocol~1serverInfo/name";
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Whether a request speaks for itself (MOD-01).
#[must_use]
pub fn claims(message: &Value) -> bool {
    ["protocolVersion", "clientCapabilities"].iter().any(|key| {
        let path = format!("/params/_meta/io.modelcontextprotocol~1{key}");
        message.pointer(&path).is_some()
    })
}

/// Holds one message of a server against the schema.
pub(super) fn check(message: &Value, asked: Option<&Asked>) -> Result<(), String> {
    if let Some(method) = message.get("method").and_then(Value::as_str) {
        check_notification(method, message)
    } else if message.get("error").is_some() {
        check_error(message)
    } else {
        let asked = asked.ok_or_else(|| format!("a result nobody asked for: {message}"))?;
        check_result(message, asked)
    }
}

fn check_notification(method: &str, message: &Value) -> Result<(), String> {
    let (schema, definition, subscribed) = match method {
        "notifications/progress" => (REVISION, "ProgressNotification", false),
        "notifications/message" => (REVISION, "LoggingMessageNotification", false),
        "notifications/subscriptions/acknowledged" => {
            (REVISION, "SubscriptionsAcknowledgedNotification", true)
        }
        "notifications/tools/list_changed" => (REVISION, "ToolListChangedNotification", true),
        "notifications/tasks" => (TASKS, "TaskStatusNotification", true),
        other => return Err(format!("a server of ours sends no {other}: {message}")),
    };
    if message.get("id").is_some() || message.pointer(SUBSCRIPTION).is_some() != subscribed {
        return Err(format!("no id, and a subscription where there is one: {message}"));
    }
    holds(REVISION, "JSONRPCNotification", message)?;
    holds(schema, definition, message)?;
    check_task_result(&message["params"])
}

/// EXT-02: what a task ended with is what its call would have been answered with.
fn check_task_result(task: &Value) -> Result<(), String> {
    match (task.get("taskId"), task.get("result")) {
        (Some(_), Some(result)) => holds(REVISION, "CallToolResult", result),
        (None, _) | (_, None) => Ok(()),
    }
}

fn check_error(message: &Value) -> Result<(), String> {
    holds(REVISION, "JSONRPCErrorResponse", message)?;
    match message["error"]["code"].as_i64() {
        Some(-32021) => holds(REVISION, "MissingRequiredClientCapabilityError", message),
        Some(-32022) => holds(REVISION, "UnsupportedProtocolVersionError", message),
        // Numbers the specification keeps for itself, and two it took back.
        Some(-32099..=-32000) => Err(format!("no code of ours: {message}")),
        _ => Ok(()),
    }
}

fn check_result(message: &Value, asked: &Asked) -> Result<(), String> {
    holds(REVISION, "JSONRPCResultResponse", message)?;
    let result = &message["result"];
    let kind = result["resultType"].as_str().unwrap_or_default();
    let (schema, definition) = match (asked.method.as_str(), kind) {
        ("server/discover", "complete") => (REVISION, "DiscoverResult"),
        ("tools/list", "complete") => (REVISION, "ListToolsResult"),
        ("tools/call", "complete") => (REVISION, "CallToolResult"),
        ("tools/call", "input_required") => (REVISION, "InputRequiredResult"),
        ("tools/call", "task") => (TASKS, "CreateTaskResult"),
        ("tasks/get", "complete") => (TASKS, "GetTaskResult"),
        ("tasks/update", "complete") => (TASKS, "UpdateTaskResult"),
        ("tasks/cancel", "complete") => (TASKS, "CancelTaskResult"),
        ("subscriptions/listen", "complete") => (REVISION, "SubscriptionsListenResult"),
        ("ceased/status", "complete") => (REVISION, "Result"),
        (method, kind) => return Err(format!("no result of {method} is {kind:?}: {message}")),
    };
    holds(schema, definition, result)?;
    check_task_result(result)?;
    // MOD-02, EXT-02: who answers, and nothing of the other tasks.
    if message.pointer(SERVER).is_none() {
        return Err(format!("it does not say who answers: {message}"));
    }
    let legacy = ["ttl", "pollInterval", "task"].iter().any(|member| result.get(member).is_some());
    if definition != "Result" && (legacy || message.to_string().contains(RELATED)) {
        return Err(format!("that belongs to the other tasks: {message}"));
    }
    Ok(())
}
