//! One ended call as a span, by the conventions of OpenTelemetry for MCP.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ceased_core::action::RequestOutcome;
use ceased_core::protocol::trace_context::hex;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::observability::calls::CallOutcome;
use crate::observability::ended::{EndedCall, EndedRequest};

/// A span of a server, and the code of a failure.
const KIND_SERVER: u8 = 2;
const STATUS_ERROR: u8 = 2;

/// An attribute with a text.
pub(super) fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn number(key: &str, value: i64) -> Value {
    // Integers of 64 bits are strings in this encoding.
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

/// The span of a call; `None` for one that is not recorded.
pub(crate) fn span_of(ended: &EndedCall, cancelled: Option<Instant>) -> Option<Value> {
    let call = &ended.call;
    let trace = call.trace.as_ref()?;
    let span = trace.span.as_ref().filter(|span| span.is_own && span.is_sampled)?;
    let hop = call.hop.as_deref();
    let clock = Clock::now();
    let begun = call.ended.checked_sub(call.duration).unwrap_or(call.ended);
    let asked = hop.map_or(begun, |hop| hop.asked.min(begun));
    let method = hop.map_or("tools/call", |hop| &*hop.method);
    let (tool, is_call) = (&*call.tool, method == "tools/call");
    let mut attributes =
        vec![text("mcp.method.name", method), text("ceased.outcome", call.outcome.as_str())];
    if is_call {
        attributes.push(text("gen_ai.operation.name", "execute_tool"));
        attributes.push(text("gen_ai.tool.name", tool));
    }
    let error = match (call.outcome, &ended.receipt) {
        (CallOutcome::Ok, _) => None,
        (CallOutcome::Failed, _) => Some("tool_error"),
        (CallOutcome::Error, _) => Some("error"),
        (CallOutcome::Stopped, Some(receipt)) => Some(receipt.receipt.why.as_str()),
        (CallOutcome::Stopped, None) => Some("stopped"),
    };
    let texts = [
        ("mcp.protocol.version", hop.map(|hop| hop.revision)),
        ("network.transport", hop.map(|hop| hop.transport).filter(|text| !text.is_empty())),
        ("jsonrpc.request.id", hop.and_then(|hop| hop.request.as_deref())),
        ("ceased.server", call.server.as_deref()),
        ("error.type", error),
    ];
    attributes.extend(texts.into_iter().filter_map(|(key, value)| Some(text(key, value?))));
    attributes.push(number("ceased.job", i64::try_from(call.job.get()).unwrap_or(i64::MAX)));
    attributes.push(text("user.id", &call.identity.to_string()));
    attributes.extend(call.task.map(|task| text("ceased.task", &task.to_string())));
    attributes.extend(call.code.map(|code| number("process.exit.code", code.into())));
    let mut told = json!({
        "traceId": span.trace_hex(),
        "spanId": span.id_hex(),
        "name": if is_call { format!("{method} {tool}") } else { method.to_owned() },
        "kind": KIND_SERVER,
        "startTimeUnixNano": clock.nanos(asked),
        "endTimeUnixNano": clock.nanos(call.ended),
        "attributes": attributes,
        "events": events(ended, cancelled, begun, &clock),
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = hex(&parent).into();
    }
    if let Some(state) = &trace.state {
        told["traceState"] = (**state).into();
    }
    if let Some(error) = error {
        told["status"] = json!({"code": STATUS_ERROR, "message": error});
    }
    Some(told)
}

/// The span of a request that no job worked on; `None` for one that is not recorded. Its id is of this
/// place: nothing is passed on in it.
pub(crate) fn span_of_request(request: &EndedRequest<'_>) -> Option<Value> {
    let EndedRequest { end, asked, stopped, ended, transport } = request;
    let sent = end.trace.as_deref().cloned().unwrap_or_default();
    let trace = sent.with_own_span(Uuid::new_v4);
    let span = trace.span.as_ref().filter(|span| span.is_sampled)?;
    let clock = Clock::now();
    let code = match end.outcome {
        RequestOutcome::Answered | RequestOutcome::Cancelled => None,
        RequestOutcome::Failed(code) => code,
    };
    let (outcome, error) = match end.outcome {
        RequestOutcome::Answered => ("ok", None),
        RequestOutcome::Failed(_) => {
            ("error", Some(code.map_or("error".into(), |code| code.to_string())))
        }
        RequestOutcome::Cancelled => ("stopped", Some("cancelled".to_owned())),
    };
    let mut attributes =
        vec![text("ceased.outcome", outcome), text("user.id", &end.owner.to_string())];
    let method = if end.agent.is_some() { "rpc.method" } else { "mcp.method.name" };
    attributes.push(text(method, &end.method));
    if end.agent.is_some() && &*end.method == "session/prompt" {
        attributes.push(text("gen_ai.operation.name", "invoke_agent"));
    }
    let texts = [
        ("mcp.protocol.version", end.dialect.map(|dialect| dialect.revision)),
        ("network.transport", Some(*transport).filter(|text| !text.is_empty())),
        ("gen_ai.agent.name", end.agent.as_deref()),
        ("error.type", error.as_deref()),
    ];
    attributes.extend(texts.into_iter().filter_map(|(key, value)| Some(text(key, value?))));
    attributes.extend(end.request.as_ref().map(|id| text("jsonrpc.request.id", &id.to_string())));
    attributes.extend(code.map(|code| number("rpc.jsonrpc.error_code", code)));
    let cancelled = stopped.map(
        |at| json!({"timeUnixNano": clock.nanos(at), "name": "cancel requested", "attributes": []}),
    );
    let mut told = json!({
        "traceId": span.trace_hex(),
        "spanId": span.id_hex(),
        "name": match &end.agent {
            Some(agent) => format!("{} {agent}", end.method),
            None => end.method.to_string(),
        },
        "kind": KIND_SERVER,
        "startTimeUnixNano": clock.nanos(*asked),
        "endTimeUnixNano": clock.nanos(*ended),
        "attributes": attributes,
        "events": cancelled.into_iter().collect::<Vec<Value>>(),
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = hex(&parent).into();
    }
    if let Some(state) = &trace.state {
        told["traceState"] = (**state).into();
    }
    if let Some(error) = error {
        told["status"] = json!({"code": STATUS_ERROR, "message": error});
    }
    Some(told)
}

/// The begin of the work, the cancel, each signal, and the empty containment.
fn events(
    ended: &EndedCall,
    cancelled: Option<Instant>,
    begun: Instant,
    clock: &Clock,
) -> Vec<Value> {
    let event = |at: Instant, name: &str, attributes: Vec<Value>| json!({"timeUnixNano": clock.nanos(at), "name": name, "attributes": attributes});
    let mut events = vec![event(begun, "started", Vec::new())];
    let Some((record, cancelled)) = ended.receipt.as_deref().zip(cancelled) else { return events };
    let mut why = vec![text("ceased.why", record.receipt.why.as_str())];
    if let Some(cancel) = &record.receipt.cancel {
        why.push(text("ceased.by", &cancel.by.to_string()));
        why.extend(cancel.reason.as_deref().map(|reason| text("ceased.reason", reason)));
    }
    let name = match record.receipt.cancel {
        Some(_) => "cancel requested",
        None => "stop requested",
    };
    events.push(event(cancelled, name, why));
    events.extend(ended.call.steps.iter().map(|(step, at)| event(*at, step, Vec::new())));
    if let Some(after) = record.died_after {
        let mut facts = vec![text("ceased.held_by", record.held_by)];
        let counts = [
            ("ceased.processes_ended", record.processes_ended),
            ("ceased.survivors", record.survivors),
        ];
        let counts = counts.into_iter().filter_map(|(key, count)| Some(number(key, count?.into())));
        facts.extend(counts);
        let upstream = record.receipt.upstream.as_ref();
        facts.extend(upstream.map(|upstream| text("ceased.proof", upstream.proof.as_str())));
        let name = match record.survivors {
            Some(0) => "containment empty",
            Some(_) | None => "ended",
        };
        events.push(event(cancelled + after, name, facts));
    }
    events
}

/// The wall clock at a moment of the monotonic one.
struct Clock {
    at: Instant,
    wall: Duration,
}

impl Clock {
    fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { at: Instant::now(), wall }
    }

    /// Nanoseconds since 1970 as text.
    fn nanos(&self, moment: Instant) -> String {
        let wall = self.wall.saturating_sub(self.at.saturating_duration_since(moment));
        wall.as_nanos().to_string()
    }
}
