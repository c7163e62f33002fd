//! Headers of 2026-07-28 that repeat parts of the body, so that proxies can route without reading
//! it (HTTP-09).

use ceased_core::ids::RequestId;
use ceased_core::rpc::error::ErrorObject;
use ceased_transports::http::Head;
use serde_json::Value;

use super::envelope::RequestEnvelope;
use crate::json_text::{member, string};
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
    let stateless = request.stateless.as_ref();
    let version = stateless.and_then(|it| it.version.as_deref()).unwrap_or_default();
    equal(head, "mcp-protocol-version", "MCP-Protocol-Version", version)?;
    equal(head, "mcp-method", "Mcp-Method", &request.method)?;
    match request.name() {
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
    let arguments = request.params.as_deref().and_then(|params| member(params, "arguments"));
    check_properties(head, &schema, arguments)
}

/// Member of a property's schema that names its header.
const PARAMETER: &str = "x-mcp-header";

fn check_properties(
    head: &Head,
    schema: &Value,
    arguments: Option<&str>,
) -> Result<(), ErrorObject> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, schema) in properties.into_iter().flatten() {
        let argument = arguments.and_then(|arguments| member(arguments, name));
        let argument = argument.filter(|argument| *argument != "null");
        if let Some(header) = schema.get(PARAMETER).and_then(Value::as_str) {
            check_parameter(head, header, argument)?;
        }
        check_properties(head, schema, argument)?;
    }
    Ok(())
}

fn check_parameter(head: &Head, header: &str, argument: Option<&str>) -> Result<(), ErrorObject> {
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
    let is_equal = value.as_deref().is_some_and(|value| match argument.as_bytes().first() {
        Some(b'"') => string(argument).as_deref() == Some(value),
        Some(b'{' | b'[') | None => false,
        Some(_) => argument == value || is_same_number(argument, value),
    });
    if is_equal {
        return Ok(());
    }
    Err(mismatch(format!("the header {name} is not what the body says: it must be {argument}")))
}

/// Whether two texts spell one number.
fn is_same_number(one: &str, other: &str) -> bool {
    let real = |text: &str| serde_json::from_str::<f64>(text).ok();
    match (RequestId::parse(one), RequestId::parse(other)) {
        // Of whole numbers each digit counts, however many there are.
        (Some(RequestId::Number(_) | RequestId::Canonical(_)), Some(_)) => {
            RequestId::parse(one) == RequestId::parse(other)
        }
        (None, None) => real(one).is_some_and(|one| real(other) == Some(one)),
        (Some(_) | None, _) => false,
    }
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
