//! The published schemas of MCP and ACP, which every message of the engine must satisfy.
//!
//! The schemas are not part of this repository. They are read from `$CEASED_SCHEMAS` or from
//! `../shared/schemas` beside the workspace; without them, one line is printed and validation is
//! skipped.

mod modern;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::workspace;

pub use self::modern::{REVISION as MODERN, claims};

/// Pseudo-revision that stands for the schema of ACP.
pub const ACP: &str = "acp";
/// Pseudo-revision that stands for the schema of version 2 of ACP.
pub const ACP_2: &str = "acp-2";

/// Schema documents by revision, and their compiled validators.
struct Schemas {
    documents: BTreeMap<String, Value>,
    compiled: Mutex<BTreeMap<(String, String), Arc<Validator>>>,
}

fn schemas() -> Option<&'static Schemas> {
    static SCHEMAS: OnceLock<Option<Schemas>> = OnceLock::new();
    SCHEMAS.get_or_init(load).as_ref()
}

/// Whether the schemas are available.
#[must_use]
pub fn available() -> bool {
    schemas().is_some()
}

fn load() -> Option<Schemas> {
    let folder = env::var_os("CEASED_SCHEMAS")
        .map_or_else(|| workspace::root().join("../shared/schemas"), PathBuf::from);
    let mut documents = BTreeMap::new();
    let mcp = ceased_core::protocol::revision::ALL
        .into_iter()
        .map(|dialect| dialect.revision)
        .chain([modern::TASKS])
        .map(|revision| (revision, format!("mcp-{revision}.schema.json")));
    let acp = (ACP, "acp-v1-sdk-2.4.0.schema.json".to_owned());
    let acp_2 = (ACP_2, "acp-v2-sdk-2.4.0.schema.json".to_owned());
    for (revision, file) in mcp.chain([acp, acp_2]) {
        let path = folder.join(file);
        let Ok(text) = fs::read_to_string(&path) else {
            // Written directly to the terminal, because the test harness captures `eprintln!`.
            let bar = "=".repeat(66);
            let _ = writeln!(
                io::stderr(),
                "{bar}\nSCHEMA VALIDATION SKIPPED: there is no {}\n\
                 Set CEASED_SCHEMAS to the folder of the published schemas of MCP and ACP.\n{bar}",
                path.display()
            );
            return None;
        };
        let mut document: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{} is not JSON: {error}", path.display()));
        if let Some(members) = document.as_object_mut() {
            // A single definition is validated, not the document.
            members.remove("anyOf");
        }
        documents.insert(revision.to_owned(), document);
    }
    Some(Schemas { documents, compiled: Mutex::default() })
}

impl Schemas {
    fn validator(&self, revision: &str, definition: &str) -> Arc<Validator> {
        let key = (revision.to_owned(), definition.to_owned());
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let compile = || {
            let mut document = self.documents[revision].clone();
            let home = if document.get("$defs").is_some() { "$defs" } else { "definitions" };
            assert!(
                document[home].get(definition).is_some(),
                "the schema of {revision} defines no {definition}"
            );
            document["$ref"] = json!(format!("#/{home}/{definition}"));
            let validator = jsonschema::validator_for(&document)
                .unwrap_or_else(|error| panic!("{revision} {definition}: {error}"));
            Arc::new(validator)
        };
        Arc::clone(compiled.entry(key).or_insert_with(compile))
    }
}

/// Validates `value` against one definition of a revision. Does nothing without the schemas.
///
/// # Errors
/// The first violation and its place.
pub fn check(revision: &str, definition: &str, value: &Value) -> Result<(), String> {
    let Some(schemas) = schemas() else { return Ok(()) };
    let validator = schemas.validator(revision, definition);
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{error} at {:?}", error.instance_path().to_string()))
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!("no {definition} of {revision}: {value}\n{}", errors.join("\n")))
}

/// Properties of a request that determine the definition of its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// Whether the request has `params.task`.
    pub with_task: bool,
    /// Whether the request is self-contained (MOD-01).
    pub claims: bool,
    /// Whether a server sent the request.
    pub of_server: bool,
}

/// Validates a request of the engine, in either role, against the schema of its revision.
///
/// # Errors
/// The violation.
///
/// # Panics
/// When the engine never sends such a request.
pub fn check_request(revision: &str, message: &Value) -> Result<(), String> {
    let method = message["method"].as_str().unwrap_or_default();
    // Sent before a revision is negotiated, with the newest session revision.
    let revision = if method == "initialize" { "2025-11-25" } else { revision };
    let definition = match method {
        "ping" => "PingRequest",
        "initialize" => "InitializeRequest",
        "resources/list" => "ListResourcesRequest",
        "resources/read" => "ReadResourceRequest",
        "resources/templates/list" => "ListResourceTemplatesRequest",
        "tools/list" => "ListToolsRequest",
        "tools/call" => "CallToolRequest",
        "prompts/list" => "ListPromptsRequest",
        "elicitation/create" => "ElicitRequest",
        "sampling/createMessage" => "CreateMessageRequest",
        "roots/list" => "ListRootsRequest",
        "tasks/get" => "GetTaskRequest",
        "tasks/result" => "GetTaskPayloadRequest",
        "tasks/list" => "ListTasksRequest",
        "tasks/cancel" => "CancelTaskRequest",
        other => panic!("the engine never sends a request {other}"),
    };
    check(revision, "JSONRPCRequest", message)?;
    check(revision, definition, message)
}

/// Validates a response or notification against the schema of its revision.
///
/// # Errors
/// The violation.
///
/// # Panics
/// When the engine never sends such a message.
pub fn check_message(revision: &str, message: &Value, asked: Option<&Asked>) -> Result<(), String> {
    let subscribed = message.pointer(modern::SUBSCRIPTION).is_some();
    if asked.map_or(revision == modern::REVISION || subscribed, |asked| asked.claims) {
        return modern::check(message, asked);
    }
    // A request without metadata is answered as outside of a session.
    let revision = if revision == modern::REVISION { "2024-11-05" } else { revision };
    let newest = revision == "2025-11-25";
    if let Some(method) = message.get("method").and_then(Value::as_str) {
        let definition = match method {
            "notifications/cancelled" => "CancelledNotification",
            "notifications/initialized" => "InitializedNotification",
            "notifications/progress" => "ProgressNotification",
            "notifications/message" => "LoggingMessageNotification",
            "notifications/tasks/status" => "TaskStatusNotification",
            "notifications/tools/list_changed" => "ToolListChangedNotification",
            other => panic!("the engine never sends {other}"),
        };
        assert!(message.get("id").is_none(), "a notification has no id: {message}");
        check(revision, "JSONRPCNotification", message)?;
        check(revision, definition, message)?;
    } else if message.get("error").is_some() {
        return check_error(revision, message);
    } else {
        let envelope = if newest { "JSONRPCResultResponse" } else { "JSONRPCResponse" };
        check(revision, envelope, message)?;
        let asked = asked.ok_or_else(|| format!("a result without a request: {message}"))?;
        let definitions = result_definitions(newest, asked);
        if definitions.is_empty() {
            return Err(format!("{} has no result in {revision}: {message}", asked.method));
        }
        for definition in definitions {
            check(revision, definition, &message["result"])?;
        }
    }
    check(revision, "JSONRPCMessage", message)
}

/// The older schemas have no form for an error whose request id is unreadable: JSON-RPC prescribes
/// null, and the schemas allow neither null nor a missing id.
fn check_error(revision: &str, message: &Value) -> Result<(), String> {
    let newest = revision == "2025-11-25";
    let definition = if newest { "JSONRPCErrorResponse" } else { "JSONRPCError" };
    if message.get("id") != Some(&Value::Null) {
        check(revision, definition, message)?;
        return check(revision, "JSONRPCMessage", message);
    }
    assert!(!newest, "null is no id in {revision}: {message}");
    let mut readable = message.clone();
    readable["id"] = json!(0);
    check(revision, definition, &readable)
}

/// Definitions that a result must satisfy; none if the method has no result.
fn result_definitions(newest: bool, asked: &Asked) -> &'static [&'static str] {
    match asked.method.as_str() {
        "initialize" => &["InitializeResult"],
        "ping" | "logging/setLevel" => &["EmptyResult"],
        "resources/list" => &["ListResourcesResult"],
        "resources/read" => &["ReadResourceResult"],
        "resources/templates/list" => &["ListResourceTemplatesResult"],
        "tools/list" => &["ListToolsResult"],
        "tools/call" | "ceased/run" | "sampling/createMessage" | "elicitation/create"
            if newest && asked.with_task =>
        {
            &["CreateTaskResult"]
        }
        "sampling/createMessage" => &["CreateMessageResult"],
        "elicitation/create" => &["ElicitResult"],
        "roots/list" => &["ListRootsResult"],
        "tools/call" | "ceased/run" => &["CallToolResult"],
        "tasks/get" if newest => &["GetTaskResult"],
        "tasks/list" if newest => &["ListTasksResult"],
        "tasks/cancel" if newest => &["CancelTaskResult"],
        // A client's task ends with the answer of its service; the tests check that themselves.
        "tasks/result" if newest => match asked.of_server {
            false => &["GetTaskPayloadResult", "CallToolResult"],
            true => &["GetTaskPayloadResult"],
        },
        "ceased/logs" | "ceased/view" | "ceased/login" | "ceased/status" | "ceased/cancel"
        | "ceased/reload" | "ceased/restart" | "ceased/drain" | "ceased/approve"
        | "ceased/agent" | "ceased/scope" | "ceased/shutdown" => &["Result"],
        _ => &[],
    }
}
