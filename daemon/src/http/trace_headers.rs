//! Trace context of the headers of a request, for bodies whose `_meta` has none (OBS-01).
//!
//! The members are set in the body, so that a server or an agent gets them as from any client.

use std::borrow::Cow;

use ceased_core::protocol::trace_context::{KEYS, TraceContext};
use ceased_transports::http::Head;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The body of a request with the trace context of its headers in `_meta`; unchanged without such
/// headers, or where `_meta` has its own.
pub(crate) fn body_with_trace<'b>(head: &Head, body: &'b [u8]) -> Cow<'b, [u8]> {
    if !KEYS.iter().any(|name| head.has(name)) {
        return Cow::Borrowed(body);
    }
    let [parent, state, baggage] = KEYS;
    // Several lines of a list are one list; a second `traceparent` makes both invalid.
    let list = |name| {
        let lines: Vec<&str> = head.all(name).collect();
        (!lines.is_empty()).then(|| lines.join(","))
    };
    let (state, baggage) = (list(state), list(baggage));
    let context = TraceContext::read(head.header(parent), state.as_deref(), baggage.as_deref());
    context.and_then(|context| with_context(body, &context)).map_or(Cow::Borrowed(body), Cow::Owned)
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    method: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow, default)]
    baggage: Option<&'a RawValue>,
}

/// The body with a context in `_meta`; `None` if it is no request with params that are an object, or
/// has its own.
fn with_context(body: &[u8], context: &TraceContext) -> Option<Vec<u8>> {
    let text = str::from_utf8(body).ok()?;
    let message: Message<'_> = serde_json::from_str(text).ok()?;
    message.method?;
    let params = message.params.map(RawValue::get);
    let meta = match params {
        Some(params) => serde_json::from_str::<Params<'_>>(params).ok()?.meta.map(RawValue::get),
        None => None,
    };
    let own = match meta {
        Some(meta) => serde_json::from_str::<Meta<'_>>(meta).ok()?,
        None => Meta { traceparent: None, baggage: None },
    };
    let span = context.span.as_ref().filter(|_| own.traceparent.is_none());
    let members = [
        ("traceparent", span.map(|span| &*span.text)),
        ("tracestate", context.state.as_deref().filter(|_| span.is_some())),
        ("baggage", context.baggage.as_deref().filter(|_| own.baggage.is_none())),
    ];
    let members: Vec<String> = members
        .into_iter()
        .filter_map(|(name, value)| Some(format!("\"{name}\":{}", serde_json::Value::from(value?))))
        .collect();
    if members.is_empty() {
        return None;
    }
    let members = members.join(",");
    // The innermost object that is there, and its text with the rest.
    let (place, added) = match (meta, params) {
        (Some(meta), _) => (meta, members),
        (None, Some(params)) => (params, format!("\"_meta\":{{{members}}}")),
        (None, None) => (text.trim_ascii(), format!("\"params\":{{\"_meta\":{{{members}}}}}")),
    };
    let inner = place.strip_prefix('{')?;
    let comma = if inner.trim_ascii_start().starts_with('}') { "" } else { "," };
    let at = inner.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let (before, after) = (text.get(..at)?, text.get(at..)?);
    Some([before, &added, comma, after].concat().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn set(body: &Value) -> Option<Value> {
        set_text(&body.to_string())
    }

    fn set_text(body: &str) -> Option<Value> {
        let context = TraceContext::read(Some(PARENT), Some("a=1"), Some("u=\"x\""))?;
        let text = with_context(body.as_bytes(), &context)?;
        Some(serde_json::from_slice(&text).expect("JSON"))
    }

    /// OBS-01: headers fill absent members, also where params or `_meta` are absent.
    #[test]
    fn headers_fill_an_absent_context() {
        let all = json!({"traceparent": PARENT, "tracestate": "a=1", "baggage": "u=\"x\""});
        let whole = json!({"id": 1, "method": "m", "params": {"_meta": all}});
        assert_eq!(set(&json!({"id": 1, "method": "m"})), Some(whole.clone()));
        assert_eq!(set(&json!({"id": 1, "method": "m", "params": {}})), Some(whole.clone()));
        assert_eq!(set(&json!({"id": 1, "method": "m", "params": {"_meta": {}}})), Some(whole));
        let kept =
            set_text(r#" { "method":"m","params":{"a":{"_meta":1},"\u005fmeta": { "x":2}}} "#);
        let params = &kept.expect("a body")["params"];
        assert_eq!((&params["a"]["_meta"], &params["_meta"]["x"]), (&json!(1), &json!(2)));
        assert_eq!(params["_meta"]["traceparent"], PARENT);
    }

    /// OBS-01: the context of `_meta` wins, whole; a body that is no request stays as it is.
    #[test]
    fn context_of_meta_wins() {
        let own =
            json!({"method": "m", "params": {"_meta": {"traceparent": "x", "baggage": "b=1"}}});
        assert_eq!(set(&own), None);
        let half = json!({"method": "m", "params": {"_meta": {"traceparent": "x"}}});
        let expected = json!({"traceparent": "x", "baggage": "u=\"x\""});
        assert_eq!(set(&half).map(|half| half["params"]["_meta"].clone()), Some(expected));
        for other in [
            json!([{"method": "m"}]),
            json!({"id": 1, "result": {}}),
            json!({"method": "m", "params": [1]}),
            json!({"method": "m", "params": {"_meta": 7}}),
        ] {
            assert_eq!(set(&other), None, "{other}");
        }
        assert_eq!(set_text("{"), None);
    }
}
