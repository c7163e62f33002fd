//! Messages of 2026-07-28 and of its tasks extension.

use serde_json::Value;

use super::{Asked, check as holds};

/// The revision without sessions.
pub const REVISION: &str = "2026-07-28";
/// The tasks extension, as a separate schema.
pub(super) const TASKS: &str = "ext-tasks-draft";
/// Pointer to the subscription id of a notification.
pub(super) const SUBSCRIPTION: &str = "/params/_meta/io.modelcontextprotocol~1subscriptionId";

const SERVER: &str = "/result/_meta/io.modelcontextprotocol~1serverInfo/name";
const RELATED: &str = "io.modelcontextprotocol/related-task";

/// Whether a request is self-contained (MOD-01).
#[must_use]
pub fn claims(message: &Value) -> bool {
    ["protocolVersion", "clientCapabilities"].iter().any(|key| {
        let path = format!("/params/_meta/io.modelcontextprotocol~1{key}");
        message.pointer(&path).is_some()
    })
}

/// Validates a message of a server.
pub(super) fn check(message: &Value, asked: Option<&Asked>) -> Result<(), String> {
    if let Some(method) = message.get("method").and_then(Value::as_str) {
        check_notification(method, message)
    } else if message.get("error").is_some() {
        check_error(message)
    } else {
        let asked = asked.ok_or_else(|| format!("a result without a request: {message}"))?;
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
        other => return Err(format!("the engine never sends {other}: {message}")),
    };
    if message.get("id").is_some() || message.pointer(SUBSCRIPTION).is_some() != subscribed {
        return Err(format!("an id, or a missing subscription id: {message}"));
    }
    holds(REVISION, "JSONRPCNotification", message)?;
    holds(schema, definition, message)?;
    check_task_result(&message["params"])
}

/// EXT-02: the result of a task equals the answer of its call.
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
        // Codes that the specification reserves, and two withdrawn ones.
        Some(-32099..=-32000) => Err(format!("the engine never sends this code: {message}")),
        _ => Ok(()),
    }
}

fn check_result(message: &Value, asked: &Asked) -> Result<(), String> {
    holds(REVISION, "JSONRPCResultResponse", message)?;
    let result = &message["result"];
    let kind = result["resultType"].as_str().unwrap_or_default();
    let (schema, definition) = match (asked.method.as_str(), kind) {
        ("server/discover", "complete") => (REVISION, "DiscoverResult"),
        ("resources/list", "complete") => (REVISION, "ListResourcesResult"),
        ("resources/read", "complete") => (REVISION, "ReadResourceResult"),
        ("resources/templates/list", "complete") => (REVISION, "ListResourceTemplatesResult"),
        ("tools/list", "complete") => (REVISION, "ListToolsResult"),
        ("tools/call", "complete") => (REVISION, "CallToolResult"),
        ("tools/call", "input_required") => (REVISION, "InputRequiredResult"),
        ("tools/call", "task") => (TASKS, "CreateTaskResult"),
        ("tasks/get", "complete") => (TASKS, "GetTaskResult"),
        ("tasks/update", "complete") => (TASKS, "UpdateTaskResult"),
        ("tasks/cancel", "complete") => (TASKS, "CancelTaskResult"),
        ("subscriptions/listen", "complete") => (REVISION, "SubscriptionsListenResult"),
        ("ceased/logs" | "ceased/status" | "ceased/view" | "ceased/login", "complete") => {
            (REVISION, "Result")
        }
        (method, kind) => return Err(format!("no result of {method} is {kind:?}: {message}")),
    };
    holds(schema, definition, result)?;
    check_task_result(result)?;
    // MOD-02, EXT-02: server metadata, and no member of the 2025-11-25 tasks.
    if message.pointer(SERVER).is_none() {
        return Err(format!("serverInfo is missing: {message}"));
    }
    let legacy = ["ttl", "pollInterval", "task"].iter().any(|member| result.get(member).is_some());
    if definition != "Result" && (legacy || message.to_string().contains(RELATED)) {
        return Err(format!("a member of the 2025-11-25 tasks: {message}"));
    }
    Ok(())
}
