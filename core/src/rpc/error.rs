//! Errors of JSON-RPC: their codes, and the object a response carries.

use alloc::borrow::Cow;

/// JSON-RPC and protocol error codes this engine sends.
pub mod code {
    /// The frame is not JSON (RPC-01).
    pub const PARSE_ERROR: i64 = -32700;
    /// The frame is JSON but no JSON-RPC message, or its id has no valid type (RPC-01, RPC-02).
    pub const INVALID_REQUEST: i64 = -32600;
    /// Unknown method, or a method that this tool or session does not have (RPC-01, TSK-05,
    /// TSK-06).
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// Invalid params, an unknown task, a stale cursor (RPC-01, TSK-22, TSK-23, TSK-27).
    pub const INVALID_PARAMS: i64 = -32602;
    /// Internal error of the server (RPC-01).
    pub const INTERNAL_ERROR: i64 = -32603;
    /// Unknown resource, in revisions with sessions.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The request needs a capability that its client did not declare on it (EXT-01).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The request names a revision that cannot be served by request (MOD-01).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// The task was cancelled: answer of its `tasks/result` (TSK-17). Code of ceased.
    pub const TASK_CANCELLED: i64 = -31001;
    /// The task reached its ttl while a `tasks/result` waited (TSK-35). Code of ceased.
    pub const TASK_EXPIRED: i64 = -31002;
    /// A limit is reached; the message and `data.limit` name it (TSK-36). Code of ceased.
    pub const LIMIT_REACHED: i64 = -31003;
    /// The tool exceeded its timeout; `data.timedOut` is true. Code of ceased.
    pub const TIMED_OUT: i64 = -31004;
    /// The daemon is shutting down. Code of ceased.
    pub const SHUTTING_DOWN: i64 = -31005;
    /// The task store cannot write or read the data of the answer; `data.store` is `full` or
    /// `broken` (DUR-01). Code of ceased.
    pub const STORE_UNAVAILABLE: i64 = -31006;
    /// The daemon ended while the task ran: answer of its `tasks/result` (DUR-01). Code of ceased.
    pub const INTERRUPTED: i64 = -31007;
    /// The call with this idempotency key is under way; retry later. `data.idempotencyKey` names
    /// the key. Code of ceased.
    pub const CALL_UNDER_WAY: i64 = -31008;
    /// The peer must authenticate, or its token is wrong (TSK-40). Code of ceased; sent by the host
    /// before it opens a connection.
    pub const UNAUTHENTICATED: i64 = -31010;
    /// The peer lacks the permission (TSK-39). Code of ceased; sent by the host.
    pub const FORBIDDEN: i64 = -31011;
}

/// A JSON-RPC error object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct ErrorObject {
    /// One of [`code`], or a code of the tool.
    pub code: i64,
    /// One sentence for a person.
    pub message: Cow<'static, str>,
    /// The `data` member as JSON text, if any.
    pub data: Option<Cow<'static, str>>,
}

impl ErrorObject {
    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Adds `data`, which must be valid JSON.
    #[must_use]
    pub fn with_data(mut self, json: impl Into<Cow<'static, str>>) -> Self {
        self.data = Some(json.into());
        self
    }

    /// Creates an error with [`code::MISSING_CAPABILITY`], for work that needs an answer to a method
    /// that the client did not declare: `elicitation/create`, `sampling/createMessage` or
    /// `roots/list`.
    #[must_use]
    pub fn missing_capability(method: &str) -> Self {
        let capability = method.split('/').next().unwrap_or_default();
        let message = alloc::format!("this needs the client capability {capability:?}");
        let data = alloc::format!("{{\"requiredCapabilities\":{{{capability:?}:{{}}}}}}");
        Self::new(code::MISSING_CAPABILITY, message).with_data(data)
    }

    /// Creates an error with [`code::INVALID_PARAMS`].
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }
}

pub(crate) fn limit_error(limit: &str, max: usize, message: alloc::string::String) -> ErrorObject {
    ErrorObject::new(code::LIMIT_REACHED, message)
        .with_data(alloc::format!("{{\"limit\":\"{limit}\",\"max\":{max}}}"))
}
