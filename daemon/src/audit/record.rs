//! What an audit record says.

use ceased_core::action::{Cancel, Note, Receipt};
use ceased_core::event::Identity;
use ceased_core::id::{ConnId, JobId, RequestId, TaskId};
use ceased_core::time::Wall;
use serde::{Serialize, Serializer};

/// Bytes of a request id that are kept: a peer chooses its ids, and how long they are.
const REQUEST_BYTES_MAX: usize = 64;

/// One record: a JSON object on a line of its own. Texts of peers are capped and free of control
/// characters, and JSON escapes what is left, so that none can forge a line (CAN-12).
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    /// When, by the wall clock, in UTC.
    #[serde(serialize_with = "iso8601")]
    pub(crate) time: Wall,
    #[serde(flatten)]
    pub(crate) happening: Happening,
}

/// What happened. `identity` is whoever did it, or whose it was where nobody did.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Happening {
    /// A peer came.
    Connect { identity: String, connection: String, peer: String },
    /// A peer went.
    Disconnect { identity: String, connection: String, received_bytes: u64, sent_bytes: u64 },
    /// A task was created.
    Create { identity: String, connection: String, task: String, job: u64, tool: Box<str> },
    /// A task has ended.
    Complete { identity: String, task: String, tool: Box<str>, status: &'static str },
    /// What came of a task was handed out.
    Retrieve {
        identity: String,
        connection: String,
        task: String,
        tool: Box<str>,
        method: &'static str,
    },
    /// The ttl of a task was over.
    Expire { identity: String, task: String, tool: Box<str>, status: &'static str },
    /// Somebody cancelled something. Where that was a job, its `cancel` follows when it has ended.
    CancelRequested {
        identity: String,
        connection: String,
        method: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        request: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        task: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        job: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<Box<str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A job that was told to stop, by whomever, has ended: the receipt.
    Cancel(Box<CancelRecord>),
    /// A limit refused something.
    Refuse { identity: String, connection: String, limit: &'static str },
    /// A handler does not look at its cancellation flag and was given up: its thread goes on.
    Abandon { job: u64, tool: Box<str> },
    /// An identity did something too often.
    Suspicious {
        identity: String,
        connection: String,
        pattern: &'static str,
        count: u32,
        window_ms: u64,
    },
    /// So many records before this one were lost.
    Dropped { count: u64 },
}

/// The receipt of a cancel.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CancelRecord {
    /// Whose job it was.
    pub(crate) identity: String,
    /// The connection the job came from.
    pub(crate) connection: String,
    /// Who stopped it: an identity, or `daemon`.
    pub(crate) by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<String>,
    pub(crate) job: u64,
    pub(crate) tool: Box<str>,
    /// Why, in a word of ours.
    pub(crate) why: &'static str,
    /// Why, in the words of whoever asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The last step that was needed: `none` for a job that had not begun, `flag`, `SIGTERM` or
    /// `SIGKILL`.
    pub(crate) stage: &'static str,
    /// What held the job: `thread`, or the containment of its processes: `cgroup`, `guard`,
    /// `groups`.
    pub(crate) held_by: &'static str,
    /// Processes of the job that were alive when a step was taken against it, and were signalled.
    /// One that was born and died between two looks is not counted.
    pub(crate) processes_ended: u32,
    /// Milliseconds from the wish until the last process, or the handler, had ended.
    pub(crate) died_after_ms: f64,
    /// Processes of the job found alive after that, as far as what held it can see.
    pub(crate) survivors: u32,
}

fn iso8601<S: Serializer>(time: &Wall, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time.to_iso8601())
}

fn request_text(request: &RequestId) -> String {
    let mut text = request.to_string();
    text.truncate(text.floor_char_boundary(REQUEST_BYTES_MAX));
    text
}

impl CancelRecord {
    /// What the engine knows of it; the rest is for whoever saw it end.
    pub(crate) fn new(receipt: &Receipt) -> Self {
        let Receipt { job, tool, owner, conn, task, why, cancel, stage, since: _ } = receipt;
        let request = cancel.as_ref().and_then(|cancel| cancel.request.as_ref());
        let by =
            cancel.as_ref().map_or_else(|| "daemon".into(), |Cancel { by, .. }| by.to_string());
        Self {
            identity: owner.to_string(),
            connection: conn.to_string(),
            by,
            request: request.map(request_text),
            task: task.map(|task| task.to_string()),
            job: job.get(),
            tool: tool.as_ref().into(),
            why: why.as_str(),
            reason: cancel.as_ref().and_then(|cancel| cancel.reason.clone()),
            stage: stage.map_or("none", |step| step.as_str()),
            held_by: "thread",
            processes_ended: 0,
            died_after_ms: 0.0,
            survivors: 0,
        }
    }
}

/// What a record says of a cancel when it is asked for.
struct Asked<'a> {
    conn: ConnId,
    identity: &'a Identity,
    method: &'static str,
    job: Option<JobId>,
    reason: &'a Option<String>,
}

impl Asked<'_> {
    fn of(
        self,
        request: Option<&RequestId>,
        task: Option<TaskId>,
        tool: Option<&str>,
    ) -> Happening {
        Happening::CancelRequested {
            identity: self.identity.to_string(),
            connection: self.conn.to_string(),
            method: self.method,
            request: request.map(request_text),
            task: task.map(|task| task.to_string()),
            job: self.job.map(JobId::get),
            tool: tool.map(Into::into),
            reason: self.reason.clone(),
        }
    }
}

impl Happening {
    /// What is recorded of a note; nothing for what is no business of an audit, and for
    /// [`Note::Ceased`], of which the engine knows only a part.
    pub(crate) fn of(note: &Note) -> Option<Self> {
        let who = ToString::to_string;
        Some(match note {
            Note::CallCancelled { conn, identity, request, tool, job, reason } => {
                let method = "notifications/cancelled";
                let asked = Asked { conn: *conn, identity, method, job: *job, reason };
                asked.of(Some(request), None, Some(&**tool))
            }
            Note::TaskCancelled { conn, identity, task, job, reason } => {
                let method = "tasks/cancel";
                let asked = Asked { conn: *conn, identity, method, job: *job, reason };
                asked.of(None, Some(*task), None)
            }
            Note::JobCancelled { conn, identity, job, tool, reason } => {
                let method = "ceased/cancel";
                let asked = Asked { conn: *conn, identity, method, job: Some(*job), reason };
                asked.of(None, None, Some(&**tool))
            }
            Note::TaskCreated { conn, identity, task, job, tool, live: _ } => Self::Create {
                identity: who(identity),
                connection: conn.to_string(),
                task: task.to_string(),
                job: job.get(),
                tool: tool.as_ref().into(),
            },
            Note::TaskEnded { identity, task, tool, status } => Self::Complete {
                identity: who(identity),
                task: task.to_string(),
                tool: tool.as_ref().into(),
                status: status.as_str(),
            },
            Note::TaskRetrieved { conn, identity, task, tool, method } => Self::Retrieve {
                identity: who(identity),
                connection: conn.to_string(),
                task: task.to_string(),
                tool: tool.as_ref().into(),
                method,
            },
            Note::TaskExpired { identity, task, tool, status } => Self::Expire {
                identity: who(identity),
                task: task.to_string(),
                tool: tool.as_ref().into(),
                status: status.as_str(),
            },
            Note::Refused { conn, identity, limit } => {
                Self::Refuse { identity: who(identity), connection: conn.to_string(), limit }
            }
            Note::Abandoned { job, tool } => {
                Self::Abandon { job: job.get(), tool: tool.as_ref().into() }
            }
            Note::Suspicious { conn, identity, pattern, count, window } => Self::Suspicious {
                identity: who(identity),
                connection: conn.to_string(),
                pattern: pattern.as_str(),
                count: *count,
                window_ms: u64::try_from(window.as_millis()).unwrap_or(u64::MAX),
            },
            Note::Ceased(_)
            | Note::CancelIgnored { .. }
            | Note::RemoteTask { .. }
            | Note::StoreFailed { .. }
            | Note::StoreRecovered => return None,
        })
    }
}
