//! What the protocol revisions do differently, as data: the whole difference is on this screen.

/// One protocol revision.
#[derive(Debug, PartialEq, Eq)]
pub struct Dialect {
    /// For people: `mcp/2025-11-25`.
    pub name: &'static str,
    /// What stands in `protocolVersion`.
    pub revision: &'static str,
    /// How a message comes to be read by this revision (MOD-01).
    pub chosen: Chosen,
    /// The notification that cancels a request (CAN-01).
    pub cancel_method: &'static str,
    /// What may still be sent for a request that was cancelled (CAN-08, MOD-04).
    pub after_cancel: AfterCancel,
    /// Requests that cannot be cancelled (CAN-04).
    pub protected: &'static [&'static str],
    /// What an array of messages is.
    pub batch: Batch,
    /// How an error is sent whose request id could not be read (RPC-01).
    pub unreadable_id: UnreadableId,
    /// What every result has besides what was asked for (MOD-02).
    pub results: Results,
    /// Whether `notifications/progress` has a `message`.
    pub progress_message: bool,
    /// Which members a tool has in `tools/list`.
    pub tool_members: ToolMembers,
    /// The task rules of this revision (TSK-01, TSK-03).
    pub tasks: TaskRules,
}

/// How a message comes to be read by a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// `initialize` chose it for the whole connection (RPC-04).
    BySession,
    /// The message itself names it, beside what its sender is capable of (MOD-01).
    ByMessage,
}

/// What may still be sent for a request that was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCancel {
    /// No answer, ever (CAN-08).
    Silence,
    /// Nothing whatever: what was written for it and is not sent yet is taken back (MOD-04).
    Recall,
}

/// What every result has besides what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Results {
    /// Nothing.
    Bare,
    /// `resultType`, and who answers in `_meta` (MOD-02).
    Typed,
}

/// What an array of messages is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// One invalid request.
    Refuse,
    /// Several messages, answered by one array.
    Accept,
}

/// How an error is sent whose request id could not be read.
///
/// JSON-RPC says `"id": null`. The schema of 2025-11-25 allows an error without an id and forbids
/// null; the schemas before it allow neither, so there JSON-RPC itself decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadableId {
    /// `"id": null`
    Null,
    /// No `id` member.
    Omitted,
}

/// Which members a tool has in `tools/list`; each revision adds to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ToolMembers {
    /// `name`, `description`, `inputSchema`
    Plain,
    /// And `title`, `outputSchema`.
    Titled,
    /// And `execution`.
    Execution,
}

/// The task rules of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskRules {
    /// No tasks: `task` in params is ignored and `tasks/*` are unknown methods (TSK-03).
    None,
    /// Tasks of 2025-11-25: asked for by the requestor, with a blocking `tasks/result`.
    Core,
    /// The extension `io.modelcontextprotocol/tasks`: the server decides, for a client that
    /// declared it on the request (EXT-01).
    Extension,
}

const MCP: Dialect = Dialect {
    name: "mcp/2024-11-05",
    revision: "2024-11-05",
    chosen: Chosen::BySession,
    cancel_method: "notifications/cancelled",
    after_cancel: AfterCancel::Silence,
    protected: &["initialize"],
    batch: Batch::Refuse,
    unreadable_id: UnreadableId::Null,
    results: Results::Bare,
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
    progress_message: true,
    ..MCP
};

/// MCP 2025-06-18.
pub static MCP_2025_06_18: Dialect = Dialect {
    name: "mcp/2025-06-18",
    revision: "2025-06-18",
    progress_message: true,
    tool_members: ToolMembers::Titled,
    ..MCP
};

/// MCP 2025-11-25: tasks.
pub static MCP_2025_11_25: Dialect = Dialect {
    name: "mcp/2025-11-25",
    revision: "2025-11-25",
    progress_message: true,
    tool_members: ToolMembers::Execution,
    unreadable_id: UnreadableId::Omitted,
    tasks: TaskRules::Core,
    ..MCP
};

/// MCP 2026-07-28: no session, every request speaks for itself.
pub static MCP_2026_07_28: Dialect = Dialect {
    name: "mcp/2026-07-28",
    revision: "2026-07-28",
    chosen: Chosen::ByMessage,
    after_cancel: AfterCancel::Recall,
    protected: &[],
    unreadable_id: UnreadableId::Omitted,
    results: Results::Typed,
    progress_message: true,
    tool_members: ToolMembers::Titled,
    tasks: TaskRules::Extension,
    ..MCP
};

/// Every dialect, oldest first.
pub static ALL: [&Dialect; 5] =
    [&MCP_2024_11_05, &MCP_2025_03_26, &MCP_2025_06_18, &MCP_2025_11_25, &MCP_2026_07_28];

impl Dialect {
    /// The dialect a connection speaks before it has chosen one: plain JSON-RPC errors, no tasks.
    pub const UNSETTLED: &'static Self = &MCP_2024_11_05;

    /// The newest revision that begins with `initialize`: what we ask a server for.
    pub const NEWEST_WITH_INITIALIZE: &'static Self = &MCP_2025_11_25;

    /// The dialect of this revision, if it is one that begins with `initialize`.
    #[must_use]
    pub fn find(revision: &str) -> Option<&'static Self> {
        Self::named(revision, Chosen::BySession)
    }

    /// The revision to answer `initialize` with: the one asked for, or the newest (RPC-04).
    #[must_use]
    pub fn negotiate(revision: &str) -> &'static Self {
        Self::find(revision).unwrap_or(Self::NEWEST_WITH_INITIALIZE)
    }

    /// The dialect a message names for itself, if there is one (MOD-01).
    #[must_use]
    pub fn claimed(revision: &str) -> Option<&'static Self> {
        Self::named(revision, Chosen::ByMessage)
    }

    fn named(revision: &str, chosen: Chosen) -> Option<&'static Self> {
        let wanted = |dialect: &&Self| dialect.revision == revision && dialect.chosen == chosen;
        ALL.into_iter().find(wanted)
    }
}
