//! Differences between the protocol revisions, as data.

/// One protocol revision.
#[derive(Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Name for people: `mcp/2025-11-25`.
    pub name: &'static str,
    /// Value of `protocolVersion`.
    pub revision: &'static str,
    /// How the revision of a message is chosen (MOD-01).
    pub chosen: Chosen,
    /// Supported requests.
    pub methods: Methods,
    /// Notification that cancels a request (CAN-01, ACP-01).
    pub cancel_method: &'static str,
    /// Member of its params that names the request.
    pub cancel_id: &'static str,
    /// Member of its params that holds the reason, if any.
    pub cancel_reason: Option<&'static str>,
    /// Accepted spellings of the cancel: method and member (ACP-01).
    pub cancel_heard: &'static [(&'static str, &'static str)],
    /// When a cancel may be sent, and is accepted (ACP-02).
    pub cancel_support: CancelSupport,
    /// Messages that may follow the cancel of a request (CAN-08, MOD-04, ACP-06).
    pub after_cancel: AfterCancel,
    /// Requests that cannot be cancelled (CAN-04, ACP-04).
    pub protected: &'static [&'static str],
    /// Whether `null` is the id of a request.
    pub null_ids: bool,
    /// Handling of an array of messages.
    pub batch: Batch,
    /// Form of an error for a request without a readable id (RPC-01).
    pub unreadable_id: UnreadableId,
    /// Members of every result (MOD-02).
    pub results: Results,
    /// Whether the revision has `elicitation/create`; MCP 2025-06-18 is the first.
    pub elicitation: bool,
    /// Whether an error of a call that a model can correct is a result with `isError` (SEP-1303).
    pub correctable_errors: bool,
    /// Types of content.
    pub content: ContentTypes,
    /// Whether `notifications/progress` has a `message`.
    pub progress_message: bool,
    /// Members of a tool in `tools/list`.
    pub tool_members: ToolMembers,
    /// Task rules (TSK-01, TSK-03).
    pub tasks: TaskRules,
}

/// How the revision of a message is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// `initialize` chose it for the connection (RPC-04).
    BySession,
    /// The message names it, with the capabilities of its sender (MOD-01).
    ByMessage,
    /// The host chose it when it opened the connection.
    ByHost,
}

/// Messages that may follow the cancel of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCancel {
    /// No answer (CAN-08).
    Silence,
    /// No message at all: unsent frames of the request are recalled (MOD-04).
    Recall,
    /// Exactly one answer: a result that came in time, else this error (ACP-06).
    Answer {
        /// Code of the error.
        code: i64,
        /// Message of the error.
        message: &'static str,
    },
}

/// Members of every result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Results {
    /// None.
    Bare,
    /// `resultType`, and the server in `_meta` (MOD-02).
    Typed,
}

/// Supported requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Methods {
    /// The requests of MCP, with the host's tools behind `tools/call`.
    Tools,
    /// The requests that the host declares, each a service
    /// ([`Offer`](crate::acp::protocol::Offer)).
    Services,
}

/// When a cancel may be sent, and is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelSupport {
    /// Always.
    Assumed,
    /// From and to peers that declared `cancellation: {request: true}` at initialize (ACP-02).
    Declared,
}

/// Handling of an array of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// Rejected as one invalid request.
    Refuse,
    /// Accepted as several messages, answered by one array.
    Accept,
}

/// Form of an error for a request without a readable id.
///
/// JSON-RPC requires `"id": null`. The schema of 2025-11-25 allows an error without an id and
/// forbids null; earlier schemas allow neither, so JSON-RPC decides there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadableId {
    /// `"id": null`
    Null,
    /// No `id` member.
    Omitted,
}

/// Members of a tool in `tools/list`; each revision adds to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolMembers {
    /// `name`, `description`, `inputSchema`
    Plain,
    /// Adds `annotations`.
    Annotated,
    /// Adds `title` and `outputSchema`.
    Titled,
    /// Adds `icons`.
    Iconed,
    /// Adds `execution`.
    Execution,
}

/// Types of content; each revision adds to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContentTypes {
    /// Text, images, embedded resources.
    Basic,
    /// Adds audio.
    Audio,
    /// Adds links to resources.
    Links,
}

impl ToolMembers {
    /// All types of content, in order.
    pub(crate) const ALL: [Self; 5] =
        [Self::Plain, Self::Annotated, Self::Titled, Self::Iconed, Self::Execution];
}

/// The task rules of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskRules {
    /// No tasks: `task` in params is ignored and `tasks/*` are unknown methods (TSK-03).
    None,
    /// Tasks of 2025-11-25: the requestor asks for them; `tasks/result` blocks.
    Core,
    /// The extension `io.modelcontextprotocol/tasks`: the server decides, for clients that declare
    /// the extension on the request (EXT-01).
    Extension,
}

const MCP: Dialect = Dialect {
    name: "mcp/2024-11-05",
    revision: "2024-11-05",
    chosen: Chosen::BySession,
    methods: Methods::Tools,
    cancel_method: "notifications/cancelled",
    cancel_id: "requestId",
    cancel_reason: Some("reason"),
    cancel_heard: &[("notifications/cancelled", "requestId")],
    cancel_support: CancelSupport::Assumed,
    after_cancel: AfterCancel::Silence,
    protected: &["initialize"],
    null_ids: false,
    batch: Batch::Refuse,
    unreadable_id: UnreadableId::Null,
    results: Results::Bare,
    elicitation: false,
    correctable_errors: false,
    content: ContentTypes::Basic,
    progress_message: false,
    tool_members: ToolMembers::Plain,
    tasks: TaskRules::None,
};

/// MCP 2024-11-05.
pub static MCP_2024_11_05: Dialect = MCP;

/// MCP 2025-03-26: the only revision with batches.
pub static MCP_2025_03_26: Dialect = Dialect {
    name: "mcp/2025-03-26",
    revision: "2025-03-26",
    batch: Batch::Accept,
    content: ContentTypes::Audio,
    progress_message: true,
    tool_members: ToolMembers::Annotated,
    ..MCP
};

/// MCP 2025-06-18: `elicitation/create`.
pub static MCP_2025_06_18: Dialect = Dialect {
    name: "mcp/2025-06-18",
    revision: "2025-06-18",
    elicitation: true,
    content: ContentTypes::Links,
    progress_message: true,
    tool_members: ToolMembers::Titled,
    ..MCP
};

/// MCP 2025-11-25: tasks.
pub static MCP_2025_11_25: Dialect = Dialect {
    name: "mcp/2025-11-25",
    revision: "2025-11-25",
    elicitation: true,
    correctable_errors: true,
    content: ContentTypes::Links,
    progress_message: true,
    tool_members: ToolMembers::Execution,
    unreadable_id: UnreadableId::Omitted,
    tasks: TaskRules::Core,
    ..MCP
};

/// MCP 2026-07-28: no session, every request carries its own metadata.
pub static MCP_2026_07_28: Dialect = Dialect {
    name: "mcp/2026-07-28",
    revision: "2026-07-28",
    chosen: Chosen::ByMessage,
    after_cancel: AfterCancel::Recall,
    protected: &[],
    unreadable_id: UnreadableId::Omitted,
    results: Results::Typed,
    elicitation: true,
    correctable_errors: true,
    content: ContentTypes::Links,
    progress_message: true,
    tool_members: ToolMembers::Iconed,
    tasks: TaskRules::Extension,
    ..MCP
};

const ACP_V1: Dialect = Dialect {
    name: "acp",
    revision: "1",
    chosen: Chosen::ByHost,
    methods: Methods::Services,
    cancel_method: "$/cancel_request",
    cancel_id: "requestId",
    cancel_reason: None,
    cancel_heard: &[
        ("$/cancel_request", "requestId"),
        ("$/cancelRequest", "requestId"),
        ("$/cancelRequest", "id"),
    ],
    cancel_support: CancelSupport::Assumed,
    after_cancel: AfterCancel::Answer { code: -32800, message: "Request cancelled" },
    protected: &["initialize"],
    null_ids: true,
    batch: Batch::Refuse,
    unreadable_id: UnreadableId::Null,
    results: Results::Bare,
    elicitation: false,
    correctable_errors: false,
    content: ContentTypes::Basic,
    progress_message: false,
    tool_members: ToolMembers::Plain,
    tasks: TaskRules::None,
};

/// ACP version 1, request cancellation as published.
pub static ACP: Dialect = ACP_V1;

/// ACP version 1, request cancellation as first proposed.
pub static ACP_RFD: Dialect = Dialect {
    name: "acp-rfd",
    cancel_method: "$/cancelRequest",
    cancel_id: "id",
    cancel_support: CancelSupport::Declared,
    after_cancel: AfterCancel::Answer { code: -32800, message: "Cancelled" },
    ..ACP_V1
};

/// Both dialects of ACP. The host chooses one when it opens a connection.
pub static BOTH_ACP: [&Dialect; 2] = [&ACP, &ACP_RFD];

/// Every dialect of MCP, oldest first.
pub static ALL: [&Dialect; 5] =
    [&MCP_2024_11_05, &MCP_2025_03_26, &MCP_2025_06_18, &MCP_2025_11_25, &MCP_2026_07_28];

impl Dialect {
    /// Whether a method is a notification, so that a message with it and `"id": null` is one. Where
    /// `null` is a valid request id, only the cancel is.
    #[must_use]
    pub fn is_notification(&self, method: &str) -> bool {
        self.cancel_heard.iter().any(|(heard, _)| *heard == method)
            || !self.null_ids && method.starts_with("notifications/")
    }

    /// Dialect of a connection before the choice: plain JSON-RPC errors, no tasks.
    pub const UNSETTLED: &'static Self = &MCP_2024_11_05;

    /// The newest revision with `initialize`, which a client session asks for.
    pub const NEWEST_WITH_INITIALIZE: &'static Self = &MCP_2025_11_25;

    /// The dialect of this revision, if it has `initialize`.
    #[must_use]
    pub fn find(revision: &str) -> Option<&'static Self> {
        Self::named(revision, Chosen::BySession)
    }

    /// The dialect of a revision that a server has chosen. Drafts before the first published revision
    /// have its messages.
    #[must_use]
    pub fn chosen_by_server(revision: &str) -> Option<&'static Self> {
        let first = &MCP_2024_11_05;
        let is_date = |text: &str| {
            let digits = |(at, byte): (usize, u8)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            };
            text.len() == first.revision.len() && text.bytes().enumerate().all(digits)
        };
        let is_older = is_date(revision) && revision < first.revision;
        Self::find(revision).or_else(|| is_older.then_some(first))
    }

    /// The revision in the answer to `initialize`: the requested one, or the newest (RPC-04).
    #[must_use]
    pub fn negotiate(revision: &str) -> &'static Self {
        Self::find(revision).unwrap_or(Self::NEWEST_WITH_INITIALIZE)
    }

    /// The dialect named by a message itself, if served (MOD-01).
    #[must_use]
    pub fn claimed(revision: &str) -> Option<&'static Self> {
        Self::named(revision, Chosen::ByMessage)
    }

    fn named(revision: &str, chosen: Chosen) -> Option<&'static Self> {
        let wanted = |dialect: &&Self| dialect.revision == revision && dialect.chosen == chosen;
        ALL.into_iter().find(wanted)
    }
}
