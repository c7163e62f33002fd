//! Content of audit records.

use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::{AuditEvent, Cancel, OperatorOrder, Receipt};
use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, JobId, RequestId, TaskId};
use ceased_core::protocol::trace_context::TraceContext;
use ceased_core::upstream::interface::{Proof, UpstreamReceipt};
use serde_json::value::RawValue;

use super::line::Line;
use super::proof::{sentence, short};
use crate::http::signed::SignedToken;
use crate::observability::calls::CallRecord;

/// Limit in bytes of a recorded request id: ids are chosen by the peer and unbounded.
const REQUEST_BYTES_MAX: usize = 64;

/// An audited event: one JSON object per line. Texts of peers are capped and stripped of control
/// characters, and JSON escapes the rest, so peers cannot forge a line (CAN-12).
#[derive(Debug)]
pub(crate) enum Happening {
    /// A peer was accepted; `job` is the job that its process belongs to.
    Connect {
        identity: Identity,
        conn: ConnId,
        peer: String,
        job: Option<JobId>,
        server: Option<Box<str>>,
        signed: Option<Arc<SignedToken>>,
    },
    /// A peer was rejected. A user is named as the system knows it, any other peer is anonymous.
    Refuse {
        identity: Identity,
        conn: Option<ConnId>,
        peer: String,
        /// Limit that caused the rejection, if one did.
        limit: Option<&'static str>,
        reason: String,
    },
    /// An operator ordered something of the daemon.
    Operate { identity: Identity, conn: ConnId, order: OperatorOrder },
    /// A peer went.
    Disconnect { identity: Identity, conn: ConnId, received_bytes: u64, sent_bytes: u64 },
    /// An event of the engine, with the trace context of its job. After a cancelled job ends, its
    /// receipt follows.
    Noted(AuditEvent, Option<Arc<TraceContext>>),
    /// Receipt: a job that was told to stop has ended, or outlasts SIGKILL.
    Cancel(Arc<CancelRecord>),
    /// Count of records suppressed because one party caused many of the same kind in a short time.
    Repeated {
        /// Event name of the suppressed records.
        of: &'static str,
        /// Limit named by the suppressed records.
        limit: Option<&'static str>,
        /// Common reason of the suppressed records, beside a limit.
        reason: Option<&'static str>,
        /// Identity or network address that caused the records.
        party: String,
        count: u64,
        window: Duration,
    },
    /// A call has ended.
    Call(Arc<CallRecord>),
    /// So many records before this one were lost.
    Dropped { count: u64 },
}

/// The receipt of a cancel.
#[derive(Debug)]
pub(crate) struct CancelRecord {
    /// The engine's part of the receipt.
    pub(crate) receipt: Box<Receipt>,
    /// Last step needed: `none` for a job that had not started, `flag`, `SIGTERM` or `SIGKILL`.
    pub(crate) stage: &'static str,
    /// Containment of the job: `thread`, or for processes `cgroup`, `guard`, `groups`; `nothing` if
    /// it had not started.
    pub(crate) held_by: &'static str,
    /// Processes of the job that were alive when a step was taken, and were signalled. A process
    /// that started and ended between two scans is not counted. `None` if they were not counted.
    pub(crate) processes_ended: Option<u32>,
    /// Time from the request until the last process or the handler ended; `None` while processes
    /// outlast SIGKILL. Another receipt follows when they have ended.
    pub(crate) died_after: Option<Duration>,
    /// Processes of the job still alive; `None` if the containment cannot tell.
    pub(crate) survivors: Option<u32>,
}

impl Happening {
    /// The record of an engine event; `None` for events that are not audited, and for
    /// [`AuditEvent::Ceased`] and [`AuditEvent::Outlasted`], of which the engine knows only a part.
    pub(crate) fn of(note: AuditEvent, trace: Option<Arc<TraceContext>>) -> Option<Self> {
        match note {
            AuditEvent::Ceased(_)
            | AuditEvent::Outlasted(_)
            | AuditEvent::RelayEnded(_)
            | AuditEvent::RequestEnded(_)
            | AuditEvent::CancelIgnored { .. }
            | AuditEvent::RemoteTask { .. }
            | AuditEvent::StoreFailed { .. }
            | AuditEvent::StoreRecovered => None,
            AuditEvent::CallCancelled { .. }
            | AuditEvent::TaskCancelled { .. }
            | AuditEvent::JobCancelled { .. }
            | AuditEvent::Abandoned { .. }
            | AuditEvent::Refused { .. }
            | AuditEvent::TaskCreated { .. }
            | AuditEvent::TaskEnded { .. }
            | AuditEvent::TaskRetrieved { .. }
            | AuditEvent::TaskExpired { .. }
            | AuditEvent::Suspicious { .. } => Some(Self::Noted(note, trace)),
        }
    }

    /// Appends the record and a newline; `time` is the time of the event, in UTC as ISO 8601.
    pub(super) fn write(&self, bytes: &mut Vec<u8>, time: &str) {
        let mut line = Line::new(bytes);
        line.word("time", time);
        self.write_members(&mut line);
        line.end();
        bytes.push(b'\n');
    }

    /// `identity` is the actor, or the owner if there is no actor.
    fn write_members(&self, line: &mut Line<'_>) {
        match self {
            Self::Connect { identity, conn, peer, job, server, signed } => {
                actor(line, "connect", identity, *conn).text("peer", peer);
                if let Some(job) = job {
                    line.number("job", job.get());
                }
                if let Some(server) = server {
                    line.text("server", server);
                }
                if let Some(signed) = signed {
                    let (issuer, subject) = signed.subject.split_once('#').unwrap_or_default();
                    line.text("issuer", issuer).text("subject", subject);
                    let named = [("client", &signed.client), ("tokenId", &signed.id)];
                    for (name, value) in named {
                        if let Some(value) = value {
                            line.text(name, value);
                        }
                    }
                }
            }
            Self::Refuse { identity, conn, peer, limit, reason } => {
                line.word("event", "refuse").identity("identity", identity);
                if let Some(conn) = conn {
                    line.conn("connection", *conn);
                }
                if let Some(limit) = limit {
                    line.word("limit", limit);
                }
                line.text("peer", peer).text("reason", reason);
            }
            Self::Operate { identity, conn, order } => {
                actor(line, "operate", identity, *conn).word("method", order.method());
            }
            Self::Disconnect { identity, conn, received_bytes, sent_bytes } => {
                actor(line, "disconnect", identity, *conn)
                    .number("received_bytes", *received_bytes)
                    .number("sent_bytes", *sent_bytes);
            }
            Self::Call(call) => write_call(line, call),
            Self::Noted(note, trace) => {
                write_note(line, note);
                write_trace(line, trace.as_deref());
            }
            Self::Cancel(record) => {
                line.word("event", "cancel");
                record.write(line);
            }
            Self::Repeated { of, limit, reason, party, count, window } => {
                line.word("event", "repeated").word("of", of);
                if let Some(limit) = limit {
                    line.word("limit", limit);
                }
                if let Some(reason) = reason {
                    line.text("reason", reason);
                }
                line.text("party", party).number("count", *count);
                line.number("window_ms", millis(*window));
            }
            Self::Dropped { count } => {
                line.word("event", "dropped").number("count", *count);
            }
        }
    }
}

fn actor<'l, 'b>(
    line: &'l mut Line<'b>,
    event: &'static str,
    identity: &Identity,
    conn: ConnId,
) -> &'l mut Line<'b> {
    line.word("event", event).identity("identity", identity).conn("connection", conn)
}

fn write_call(line: &mut Line<'_>, call: &CallRecord) {
    line.word("event", "call");
    write_ended(line, call);
    if let Some(arguments) = &call.arguments {
        line.json("arguments", arguments);
    }
    write_trace(line, call.trace.as_deref());
}

/// A call that has ended as JSON, with its receipt if it was stopped, its arguments in words, and the
/// time since its end.
///
/// # Errors
/// An error of the JSON serializer.
pub(crate) fn call_told(
    call: &CallRecord,
    receipt: Option<&CancelRecord>,
    arguments: Option<&str>,
    ago: Option<Duration>,
) -> serde_json::Result<Box<RawValue>> {
    let mut bytes = Vec::new();
    let mut line = Line::new(&mut bytes);
    write_ended(&mut line, call);
    if let Some(arguments) = arguments {
        line.text("arguments", arguments);
    }
    if let Some(ago) = ago {
        line.number("ended_ago_ms", millis(ago));
    }
    if let Some(receipt) = receipt {
        let mut nested = Vec::new();
        let mut members = Line::new(&mut nested);
        receipt.write(&mut members);
        members.end();
        line.json("receipt", &String::from_utf8_lossy(&nested));
    }
    write_trace(&mut line, call.trace.as_deref());
    line.end();
    serde_json::from_slice(&bytes)
}

fn write_ended(line: &mut Line<'_>, call: &CallRecord) {
    line.identity("identity", &call.identity);
    line.number("job", call.job.get()).text("tool", &call.tool);
    if let Some(task) = call.task {
        line.task("task", task);
    }
    line.word("outcome", call.outcome.as_str());
    if let Some(server) = &call.server {
        line.text("server", server);
    }
    if let Some(code) = call.code {
        line.integer("exit_code", code);
    }
    if let Some(signal) = call.signal {
        line.integer("signal", signal);
    }
    line.number("duration_ms", millis(call.duration));
}

/// OBS-01: the span that a job belongs to.
fn write_trace(line: &mut Line<'_>, trace: Option<&TraceContext>) {
    if let Some(span) = trace.and_then(|trace| trace.span.as_ref()) {
        line.word("trace_id", &span.trace_hex()).word("span_id", &span.id_hex());
    }
}

fn write_note(line: &mut Line<'_>, note: &AuditEvent) {
    match note {
        AuditEvent::CallCancelled { conn, identity, request, tool, job, method, reason } => {
            actor(line, "cancel_requested", identity, *conn).word("method", method);
            asked(line, Some(request), None, *job, Some(tool), reason.as_deref());
        }
        AuditEvent::TaskCancelled { conn, identity, task, job, tool, method, reason } => {
            actor(line, "cancel_requested", identity, *conn).word("method", method);
            asked(line, None, Some(*task), *job, Some(tool), reason.as_deref());
        }
        AuditEvent::JobCancelled { conn, identity, job, tool, reason } => {
            actor(line, "cancel_requested", identity, *conn).word("method", "ceased/cancel");
            asked(line, None, None, Some(*job), Some(tool), reason.as_deref());
        }
        AuditEvent::TaskCreated { conn, identity, task, job, tool, live: _ } => {
            actor(line, "create", identity, *conn).task("task", *task);
            line.number("job", job.get()).text("tool", tool);
        }
        AuditEvent::TaskEnded { identity, task, tool, status } => {
            line.word("event", "complete").identity("identity", identity).task("task", *task);
            line.text("tool", tool).word("status", status.as_str());
        }
        AuditEvent::TaskRetrieved { conn, identity, task, tool, method } => {
            actor(line, "retrieve", identity, *conn).task("task", *task);
            line.text("tool", tool).word("method", method);
        }
        AuditEvent::TaskExpired { identity, task, tool, status } => {
            line.word("event", "expire").identity("identity", identity).task("task", *task);
            line.text("tool", tool).word("status", status.as_str());
        }
        AuditEvent::Refused { conn, identity, limit } => {
            actor(line, "refuse", identity, *conn).word("limit", limit);
        }
        AuditEvent::Abandoned { job, tool } => {
            line.word("event", "abandon").number("job", job.get()).text("tool", tool);
        }
        AuditEvent::Suspicious { conn, identity, pattern, count, window } => {
            actor(line, "suspicious", identity, *conn).word("pattern", pattern.as_str());
            line.number("count", u64::from(*count)).number("window_ms", millis(*window));
        }
        // See [`Happening::of`].
        AuditEvent::Ceased(_)
        | AuditEvent::Outlasted(_)
        | AuditEvent::RelayEnded(_)
        | AuditEvent::RequestEnded(_)
        | AuditEvent::CancelIgnored { .. }
        | AuditEvent::RemoteTask { .. }
        | AuditEvent::StoreFailed { .. }
        | AuditEvent::StoreRecovered => {
            line.word("event", "unrecorded");
        }
    }
}

/// Members of a `cancel_requested` record.
fn asked(
    line: &mut Line<'_>,
    request: Option<&RequestId>,
    task: Option<TaskId>,
    job: Option<JobId>,
    tool: Option<&str>,
    reason: Option<&str>,
) {
    write_request(line, request);
    if let Some(task) = task {
        line.task("task", task);
    }
    if let Some(job) = job {
        line.number("job", job.get());
    }
    if let Some(tool) = tool {
        line.text("tool", tool);
    }
    if let Some(reason) = reason {
        line.text("reason", reason);
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn write_request(line: &mut Line<'_>, request: Option<&RequestId>) {
    let Some(request) = request else { return };
    let mut text = request.to_string();
    text.truncate(text.floor_char_boundary(REQUEST_BYTES_MAX));
    line.text("request", &text);
}

impl CancelRecord {
    /// The receipt as JSON for a view, with the time since its end, and the proof of a relayed
    /// request as a sentence.
    ///
    /// # Errors
    /// An error of the JSON serializer.
    pub(crate) fn told(&self, ended_ago: Duration) -> serde_json::Result<Box<RawValue>> {
        let mut bytes = Vec::new();
        let mut line = Line::new(&mut bytes);
        self.write(&mut line);
        line.number("ended_ago_ms", millis(ended_ago));
        if let Some(upstream) = &self.receipt.upstream {
            line.text("end", &sentence(upstream.proof, self.died_after));
        }
        line.end();
        serde_json::from_slice(&bytes)
    }

    /// A line for the user of a server about the processes of a cancelled call that it had left and
    /// that were ended; `None` if the server ended the call itself.
    pub(crate) fn left_by_server(&self) -> Option<String> {
        let upstream = self.receipt.upstream.as_ref()?;
        let ended = match upstream.proof {
            Proof::ChildrenEnded(0)
            | Proof::Unsent
            | Proof::Told
            | Proof::Answered
            | Proof::Quiet
            | Proof::StreamClosed
            | Proof::SessionEnded
            | Proof::Unknown => return None,
            Proof::ChildrenEnded(1) => "ended 1 process that it had left".to_owned(),
            Proof::ChildrenEnded(count) => format!("ended {count} processes that it had left"),
            Proof::Replaced | Proof::Ended => "ended its server with all processes".to_owned(),
        };
        let after = self.died_after.map(|after| format!(" after {}", short(after)));
        let verb = if self.receipt.cancel.is_some() { "cancelled" } else { "stopped" };
        Some(format!("{} was {verb}; {ended}{}", self.receipt.tool, after.unwrap_or_default()))
    }

    /// Whether the work of a relayed request is not known to have ended.
    fn is_end_unknown(&self) -> bool {
        let proof = self.receipt.upstream.as_ref().map(|upstream| upstream.proof);
        matches!(
            proof,
            Some(
                Proof::Told
                    | Proof::Answered
                    | Proof::StreamClosed
                    | Proof::SessionEnded
                    | Proof::Unknown
            )
        )
    }

    fn write(&self, line: &mut Line<'_>) {
        let Receipt { job, tool, owner, conn, task, why, cancel, .. } = &*self.receipt;
        line.identity("identity", owner).conn("connection", *conn);
        match cancel {
            Some(Cancel { by, .. }) => line.identity("by", by),
            None => line.word("by", "daemon"),
        };
        write_request(line, cancel.as_ref().and_then(|cancel| cancel.request.as_ref()));
        if let Some(task) = task {
            line.task("task", *task);
        }
        line.number("job", job.get()).text("tool", tool).word("why", why.as_str());
        if let Some(reason) = cancel.as_ref().and_then(|cancel| cancel.reason.as_deref()) {
            line.text("reason", reason);
        }
        // UPS-16: a server that was only told, or that answered, may work on.
        let died_after = self.died_after.filter(|_| !self.is_end_unknown());
        let died_after_ms = died_after.map(|after| (after.as_secs_f64() * 1e6).round() / 1e3);
        line.word("stage", self.stage)
            .word("held_by", self.held_by)
            .number_or_null("processes_ended", self.processes_ended.map(u64::from))
            .fraction_or_null("died_after_ms", died_after_ms)
            .number_or_null("survivors", self.survivors.map(u64::from));
        if let Some(upstream) = &self.receipt.upstream {
            write_upstream(line, upstream);
        }
        write_trace(line, self.receipt.trace.as_deref());
    }
}
/// UPS-16: the established facts about a relayed request.
fn write_upstream(line: &mut Line<'_>, upstream: &UpstreamReceipt) {
    line.text("server", &upstream.server);
    if let Some(instance) = upstream.instance {
        line.number("instance", instance.get());
    }
    line.word("proof", upstream.proof.as_str());
    if let Some((kind, id)) = &upstream.object {
        line.word("kind", kind);
        line.text("object", id);
    }
    if let Proof::ChildrenEnded(count) = upstream.proof {
        line.number("children", u64::from(count));
    }
}
