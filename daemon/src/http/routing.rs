//! Headers of 2026-07-28 that repeat parts of the body, so that proxies can route without reading
//! it (HTTP-09).

use ceased_core::rpc::error::ErrorObject;
use ceased_transports::http::Head;
use serde_json::Value;

use super::envelope::RequestEnvelope;
use crate::mcp_headers;

/// Error code for a header that differs from the body.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// Revision without sessions.
pub(crate) const STATELESS: &str = "2026-07-28";

/// HTTP-09: checks the headers of a request against its body.
///
/// # Errors
/// The error to answer with status 400.
pub(crate) fn check(head: &Head, request: &RequestEnvelope) -> Result<(), ErrorObject> {
    let version = request.version.as_deref().unwrap_or_default();
    equal(head, "mcp-protocol-version", "MCP-Protocol-Version", version)?;
    equal(head, "mcp-method", "Mcp-Method", &request.method)?;
    match &request.name {
        Some(name) => equal(head, "mcp-name", "Mcp-Name", name),
        None => Ok(()),
    }
}

/// HTTP-09: checks the headers `Mcp-Param-NAME` that repeat arguments of a tool, as its schema says
/// by `x-mcp-header`.
///
/// # Errors
/// The error to answer with status 400.
pub(crate) fn check_parameters(
    head: &Head,
    schema: &str,
    request: &RequestEnvelope,
) -> Result<(), ErrorObject> {
    if !schema.contains(PARAMETER) {
        return Ok(());
    }
    let schema: Value = serde_json::from_str(schema).unwrap_or_default();
    let params = request.params.as_deref().and_then(|params| serde_json::from_str(params).ok());
    let arguments = params.as_ref().and_then(|params: &Value| params.get("arguments"));
    check_properties(head, &schema, arguments)
}

/// Member of a property's schema that names its header.
const PARAMETER: &str = "x-mcp-header";

fn check_properties(
    head: &Head,
    schema: &Value,
    arguments: Option<&Value>,
) -> Result<(), ErrorObject> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        let argument = arguments.and_then(|arguments| arguments.get(name));
        let argument = argument.filter(|argument| !argument.is_null());
        if let Some(header) = schema.get(PARAMETER).and_then(Value::as_str) {
            check_parameter(head, header, argument)?;
        }
        check_properties(head, schema, argument)?;
    }
    Ok(())
}

fn check_parameter(head: &Head, header: &str, argument: Option<&Value>) -> Result<(), ErrorObject> {
    let name = format!("Mcp-Param-{header}");
    let key = name.to_ascii_lowercase();
    let Some(argument) = argument else {
        if head.has(&key) {
            let text = format!("the header {name} repeats an argument that the body does not have");
            return Err(mismatch(text));
        }
        return Ok(());
    };
    if !head.has(&key) {
        return Err(mismatch(format!("the header {name} is missing: it repeats an argument")));
    }
    let value = head.header(&key).and_then(mcp_headers::decode);
    let is_equal = value.as_deref().is_some_and(|value| match argument {
        Value::String(text) => text == value,
        Value::Bool(flag) => value == if *flag { "true" } else { "false" },
        // Spellings of one number are equal.
        Value::Number(number) => match serde_json::from_str(value) {
            Ok(Value::Number(other)) => *number == other || number.as_f64() == other.as_f64(),
            Ok(_) | Err(_) => false,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    });
    if is_equal {
        return Ok(());
    }
    Err(mismatch(format!("the header {name} is not what the body says: it must be {argument}")))
}

fn equal(head: &Head, key: &str, name: &str, wanted: &str) -> Result<(), ErrorObject> {
    if !head.has(key) {
        return Err(mismatch(format!("the header {name} is missing: it repeats the body")));
    }
    let value = head.header(key).and_then(mcp_headers::decode);
    if value.as_deref() == Some(wanted) {
        return Ok(());
    }
    Err(mismatch(format!("the header {name} is not what the body says: it must be {wanted:?}")))
}

fn mismatch(message: String) -> ErrorObject {
    ErrorObject::new(HEADER_MISMATCH, message)
}
