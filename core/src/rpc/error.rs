//! Errors of JSON-RPC: their codes, and the object a response carries.

use alloc::borrow::Cow;

/// JSON-RPC and protocol error codes this engine sends.
pub mod code {
    /// The frame is not JSON (RPC-01).
    pub const PARSE_ERROR: i64 = -32700;
    /// The frame is JSON but no JSON-RPC message, or its id cannot be one (RPC-01, RPC-02).
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method, or not for this tool or session (RPC-01, TSK-05, TSK-06).
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Bad params, an unknown task, a stale cursor (RPC-01, TSK-22, TSK-23, TSK-27).
    pub const INVALID_PARAMS: i64 = -32602;
    /// Trouble on our side (RPC-01).
    pub const INTERNAL_ERROR: i64 = -32603;
    /// There is no such resource, in revisions with sessions.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The request needs a capability its client did not declare on it (EXT-01).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The request names a revision that is not served that way (MOD-01).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The task was cancelled; what its `tasks/result` answers (TSK-17). Ours.
    pub const TASK_CANCELLED: i64 = -31001;
    /// The task reached its ttl while somebody waited for its result (TSK-35). Ours.
    pub const TASK_EXPIRED: i64 = -31002;
    /// A limit is reached; the message and `data.limit` name it (TSK-36). Ours.
    pub const LIMIT_REACHED: i64 = -31003;
    /// The tool ran longer than its timeout; `data.timedOut` is true. Ours.
    pub const TIMED_OUT: i64 = -31004;
    /// The daemon is shutting down. Ours.
    pub const SHUTTING_DOWN: i64 = -31005;
    /// The store of tasks does not take or give what the answer needs; `data.store` says whether
    /// it is `full` or `broken` (DUR-01). Ours.
    pub const STORE_UNAVAILABLE: i64 = -31006;
    /// The daemon went down while the task ran; what its `tasks/result` answers (DUR-01). Ours.
    pub const INTERRUPTED: i64 = -31007;
    /// The call with this idempotency key is under way and another request waits for it; try again
    /// later. `data.idempotencyKey` names the key. Ours.
    pub const CALL_UNDER_WAY: i64 = -31008;
    /// The peer has to say who it is, or what it said is not believed (TSK-40). Ours; sent by the
    /// host, before it opens a connection.
    pub const UNAUTHENTICATED: i64 = -31010;
    /// The peer may not do this (TSK-39). Ours; sent by the host.
    pub const FORBIDDEN: i64 = -31011;
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorObject {
    /// One of [`code`], or what a handler chose.
    pub code: i64,
    /// One sentence for a person.
    pub message: Cow<'static, str>,
    /// The `data` member as JSON text, if there is one.
    pub data: Option<Cow<'static, str>>,
}

impl ErrorObject {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same error with `data`, which must be valid JSON.
    #[must_use]
    pub fn with_data(mut self, json: impl Into<Cow<'static, str>>) -> Self {
        self.data = Some(json.into());
        self
    }

    /// [`code::INVALID_PARAMS`] with this message.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }
}

pub(crate) fn limit_error(limit: &str, max: usize, message: alloc::string::String) -> ErrorObject {
    ErrorObject::new(code::LIMIT_REACHED, message)
        .with_data(alloc::format!("{{\"limit\":\"{limit}\",\"max\":{max}}}"))
}
