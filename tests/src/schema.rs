//! The published schemas of MCP: what every message the engine sends must satisfy.
//!
//! The schemas are not part of this repository. They are looked for in `$CEASED_SCHEMAS` and in
//! `../shared/schemas` beside the workspace; where they are not, it is said once, loudly, and
//! nothing is validated.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::workspace;

/// The schema documents by revision, and what was compiled of them so far.
struct Schemas {
    documents: BTreeMap<String, Value>,
    compiled: Mutex<BTreeMap<(String, String), Arc<Validator>>>,
}

fn schemas() -> Option<&'static Schemas> {
    static SCHEMAS: OnceLock<Option<Schemas>> = OnceLock::new();
    SCHEMAS.get_or_init(load).as_ref()
}

/// Whether the schemas are here.
#[must_use]
pub fn available() -> bool {
    schemas().is_some()
}

fn load() -> Option<Schemas> {
    let folder = env::var_os("CEASED_SCHEMAS")
        .map_or_else(|| workspace::root().join("../shared/schemas"), PathBuf::from);
    let mut documents = BTreeMap::new();
    for dialect in ceased_core::dialect::ALL {
        let path = folder.join(format!("mcp-{}.schema.json", dialect.revision));
        let Ok(text) = fs::read_to_string(&path) else {
            eprintln!("==================================================================");
            eprintln!("SCHEMA VALIDATION SKIPPED: there is no {}", path.display());
            eprintln!("Set CEASED_SCHEMAS to the folder of the published MCP schemas.");
            eprintln!("==================================================================");
            return None;
        };
        let document = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{} is not JSON: {error}", path.display()));
        documents.insert(dialect.revision.to_owned(), document);
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

/// Holds `value` against one definition of a revision. Does nothing where the schemas are not.
///
/// # Panics
/// When it does not satisfy it.
pub fn assert_valid(revision: &str, definition: &str, value: &Value) {
    let Some(schemas) = schemas() else { return };
    let validator = schemas.validator(revision, definition);
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{} at {:?}", error, error.instance_path().to_string()))
        .collect();
    assert!(errors.is_empty(), "no {definition} of {revision}: {value}\n{}", errors.join("\n"));
}

/// What a request asked for, as far as its result's definition goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// Whether `params.task` was there.
    pub with_task: bool,
}

/// Holds one message of a server against the schema of its revision.
///
/// # Panics
/// When it is not valid, or is a message a server of ours never sends.
pub fn assert_message(revision: &str, message: &Value, asked: Option<&Asked>) {
    let newest = revision == "2025-11-25";
    if let Some(method) = message.get("method").and_then(Value::as_str) {
        let definition = match method {
            "notifications/progress" => "ProgressNotification",
            "notifications/message" => "LoggingMessageNotification",
            "notifications/tasks/status" => "TaskStatusNotification",
            "notifications/tools/list_changed" => "ToolListChangedNotification",
            other => panic!("a server of ours sends no {other}"),
        };
        assert!(message.get("id").is_none(), "a notification has no id: {message}");
        assert_valid(revision, "JSONRPCNotification", message);
        assert_valid(revision, definition, message);
    } else if message.get("error").is_some() {
        assert_error(revision, message);
    } else {
        let envelope = if newest { "JSONRPCResultResponse" } else { "JSONRPCResponse" };
        assert_valid(revision, envelope, message);
        let asked = asked.unwrap_or_else(|| panic!("a result nobody asked for: {message}"));
        for definition in result_definitions(newest, asked) {
            assert_valid(revision, definition, &message["result"]);
        }
    }
    assert!(newest || message.get("id") != Some(&Value::Null) || message.get("error").is_some());
    if message.get("id") != Some(&Value::Null) {
        assert_valid(revision, "JSONRPCMessage", message);
    }
}

/// An error whose request id could not be read is the one thing the older schemas have no form
/// for: JSON-RPC says null, they allow neither null nor nothing.
fn assert_error(revision: &str, message: &Value) {
    let newest = revision == "2025-11-25";
    let definition = if newest { "JSONRPCErrorResponse" } else { "JSONRPCError" };
    if message.get("id") == Some(&Value::Null) {
        assert!(!newest, "null is no id in {revision}: {message}");
        let mut readable = message.clone();
        readable["id"] = json!(0);
        assert_valid(revision, definition, &readable);
    } else {
        assert_valid(revision, definition, message);
    }
}

/// Holds one line of a server against the schema of its revision without knowing what was asked:
/// what a result is, its members tell.
///
/// # Panics
/// When it is not valid.
pub fn assert_line(revision: &str, line: &str) {
    let message: Value = serde_json::from_str(line).expect("a line is JSON");
    let probe = message["method"] == "ping";
    if message.is_array() || probe || message.get("result").is_none() {
        if !message.is_array() && !probe {
            assert_message(revision, &message, None);
        }
        return;
    }
    let result = &message["result"];
    let has = |member: &str| result.get(member).is_some();
    let (method, with_task) = match () {
        () if has("protocolVersion") => ("initialize", false),
        () if has("tools") => ("tools/list", false),
        () if has("counters") => ("ceased/status", false),
        () if has("task") => ("tools/call", true),
        () if has("tasks") => ("tasks/list", false),
        () if has("taskId") => ("tasks/get", false),
        () if has("content") => ("tools/call", false),
        () => ("ping", false),
    };
    assert_message(revision, &message, Some(&Asked { method: method.to_owned(), with_task }));
}

fn result_definitions(newest: bool, asked: &Asked) -> &'static [&'static str] {
    match asked.method.as_str() {
        "initialize" => &["InitializeResult"],
        "ping" | "logging/setLevel" => &["EmptyResult"],
        "tools/list" => &["ListToolsResult"],
        "tools/call" if newest && asked.with_task => &["CreateTaskResult"],
        "tools/call" => &["CallToolResult"],
        "tasks/get" => &["GetTaskResult"],
        "tasks/list" => &["ListTasksResult"],
        "tasks/cancel" => &["CancelTaskResult"],
        "tasks/result" => &["GetTaskPayloadResult", "CallToolResult"],
        "ceased/status" => &["Result"],
        other => panic!("{other} has no result"),
    }
}
