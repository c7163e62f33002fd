//! Self-contained requests (MOD-01): params with protocol metadata.

use serde_json::{Value, json};

use crate::schema::MODERN;

/// Key of the tasks extension.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Params of a client that declares these capabilities.
///
/// # Panics
/// When `params` is no object.
#[must_use]
pub fn able(capabilities: &Value, mut params: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": {"name": "peer", "version": "1"},
    });
    let members = params.as_object_mut().expect("params are an object");
    let given = members.insert("_meta".to_owned(), meta);
    for (key, value) in given.as_ref().and_then(Value::as_object).into_iter().flatten() {
        params["_meta"][key] = value.clone();
    }
    params
}

/// Params of a client that declares nothing.
#[must_use]
pub fn plain(params: Value) -> Value {
    able(&json!({}), params)
}

/// Params of a client that declares the tasks extension.
#[must_use]
pub fn tasks(params: Value) -> Value {
    able(&json!({"extensions": {TASKS: {}}}), params)
}

/// A request as a line.
#[must_use]
#[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
pub fn request(id: Value, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// A cancel as a line.
#[must_use]
#[allow(clippy::needless_pass_by_value, reason = "`json!` reads best in place")]
pub fn cancel(id: Value) -> String {
    let params = json!({"requestId": id});
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).to_string()
}
