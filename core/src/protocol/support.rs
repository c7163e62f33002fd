//! Every method and extension of the protocols, and its treatment between a client and a server or an
//! agent, as data. The page "Protocol support" of the book is written from it.

/// Treatment of a message between two hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// It reaches the other side as it is, but for ids, tokens and names.
    Relayed,
    /// The other side gets it in the form of its own revision, or merged with others.
    Translated,
    /// It ends here.
    Own,
    /// Nothing of it reaches the other side.
    Absent,
}

impl Treatment {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Relayed => "relayed",
            Self::Translated => "translated",
            Self::Own => "own",
            Self::Absent => "not relayed",
        }
    }
}

use self::Treatment::{Absent, Own, Relayed, Translated};

/// A row: the method, its treatment where one server shows through (`ceased wrap`,
/// `connect --server`), its treatment in front of several servers, and a remark.
pub type McpRow = (&'static str, Treatment, Treatment, &'static str);

/// Methods of the Model Context Protocol, of all revisions.
pub const MCP: [McpRow; 36] = [
    (
        "initialize",
        Translated,
        Own,
        "each hop negotiates its own revision; the server is told name and capabilities of the client, and the client everything that the server declares but tasks",
    ),
    (
        "notifications/initialized",
        Own,
        Own,
        "each hop has its own; messages of the server wait for it",
    ),
    ("server/discover", Translated, Own, "as `initialize`"),
    ("ping", Own, Own, "answered on each hop"),
    (
        "tools/list",
        Relayed,
        Translated,
        "page by page, or all lists with prefixes; `--task-support`, `tools` and `hide` change it",
    ),
    ("tools/call", Relayed, Relayed, "as a task of ceased where the client asks for one"),
    ("prompts/list", Relayed, Translated, "page by page, or all lists with prefixes"),
    ("prompts/get", Relayed, Relayed, ""),
    ("resources/list", Relayed, Translated, "page by page, or all lists, equal URIs told apart"),
    (
        "resources/templates/list",
        Relayed,
        Translated,
        "page by page, or all lists, equal URIs told apart",
    ),
    ("resources/read", Relayed, Relayed, ""),
    (
        "resources/subscribe",
        Relayed,
        Relayed,
        "for a server without sessions as a topic of its subscription",
    ),
    (
        "resources/unsubscribe",
        Relayed,
        Relayed,
        "for a server without sessions as a topic of its subscription",
    ),
    ("completion/complete", Relayed, Relayed, ""),
    (
        "logging/setLevel",
        Translated,
        Translated,
        "the lowest level that a client of the server wants; relayed to a server without logging",
    ),
    (
        "subscriptions/listen",
        Translated,
        Translated,
        "topics of all clients of a server in one subscription; those that no revision has are left out, as no known extension has one",
    ),
    (
        "tasks/get",
        Own,
        Own,
        "tasks are those of ceased; a task of the client that the server asked for passes from the server",
    ),
    ("tasks/result", Own, Own, "as `tasks/get`"),
    ("tasks/list", Own, Own, "as `tasks/get`"),
    ("tasks/cancel", Own, Own, "as `tasks/get`"),
    ("tasks/update", Own, Own, "as `tasks/get`"),
    (
        "sampling/createMessage",
        Relayed,
        Translated,
        "to the client whose call caused it, as a request or as an input of its result",
    ),
    ("elicitation/create", Relayed, Translated, "as `sampling/createMessage`"),
    ("roots/list", Relayed, Translated, "as `sampling/createMessage`"),
    (
        "notifications/cancelled",
        Translated,
        Translated,
        "with the id of the other hop, and enforced",
    ),
    (
        "notifications/progress",
        Translated,
        Translated,
        "with the token of the other hop, both ways; of several at once the latest",
    ),
    ("notifications/message", Relayed, Relayed, "by the level that the client has asked for"),
    (
        "notifications/tools/list_changed",
        Relayed,
        Relayed,
        "also where the lists of a server differ from those that are known",
    ),
    ("notifications/prompts/list_changed", Relayed, Relayed, "as for tools"),
    ("notifications/resources/list_changed", Relayed, Relayed, "as for tools"),
    ("notifications/resources/updated", Relayed, Relayed, "to the clients that are subscribed"),
    ("notifications/roots/list_changed", Relayed, Relayed, "to the servers of that client alone"),
    ("notifications/elicitation/complete", Relayed, Relayed, "to the client that was asked"),
    (
        "notifications/tasks/status",
        Own,
        Own,
        "of tasks of ceased; that of a task of the client passes to the server",
    ),
    ("notifications/subscriptions/acknowledged", Own, Own, "each hop has its own"),
    (
        "every other method",
        Relayed,
        Absent,
        "requests and notifications, both ways, with ids, progress, cancels, time limits and records; of several servers the one that knows the `uri` of a request",
    ),
];

/// Extensions of the Model Context Protocol.
pub const EXTENSIONS: [McpRow; 4] = [
    ("io.modelcontextprotocol/tasks", Own, Own, "ceased runs the tasks"),
    (
        "io.modelcontextprotocol/skills",
        Relayed,
        Translated,
        "`skills/list` of all servers; `skills/get`, `resources/directory/read` and files by their URI",
    ),
    (
        "io.modelcontextprotocol/ui",
        Relayed,
        Relayed,
        "`ui://` resources and the `_meta` of tools, equal URIs told apart",
    ),
    (
        "every other extension",
        Relayed,
        Absent,
        "declared for a client that has it too, and for every client of the only server of a daemon; of several servers its methods reach none but by a `uri`",
    ),
];

/// A row: the method, its treatment in version 1 and in version 2, where it is there, and a remark.
pub type AcpRow = (&'static str, Option<Treatment>, Option<Treatment>, &'static str);

/// Methods of the Agent Client Protocol, in front of an agent.
pub const ACP: [AcpRow; 31] = [
    ("initialize", Some(Relayed), Some(Relayed), "sent again to a fresh agent"),
    ("authenticate", Some(Relayed), None, "sent again to a fresh agent"),
    ("logout", Some(Relayed), None, ""),
    ("auth/login", None, Some(Relayed), "sent again to a fresh agent"),
    ("auth/logout", None, Some(Relayed), ""),
    ("session/new", Some(Relayed), Some(Relayed), ""),
    ("session/load", Some(Relayed), None, "sent to a fresh agent for its sessions"),
    ("session/resume", Some(Relayed), Some(Relayed), "sent to a fresh agent for its sessions"),
    ("session/list", Some(Relayed), Some(Relayed), ""),
    (
        "session/close",
        Some(Relayed),
        Some(Relayed),
        "in version 2 ends what is left of background work",
    ),
    ("session/delete", Some(Relayed), Some(Relayed), "as `session/close`"),
    ("session/prompt", Some(Relayed), Some(Relayed), "waits for the end of a cancelled turn"),
    (
        "session/cancel",
        Some(Translated),
        Some(Translated),
        "for the turn that is live, and enforced; background work is spared",
    ),
    ("session/set_mode", Some(Relayed), None, "sent again to a fresh agent"),
    ("session/set_config_option", Some(Relayed), Some(Relayed), "sent again to a fresh agent"),
    (
        "session/update",
        Some(Relayed),
        Some(Relayed),
        "`idle` of a stopped turn is of ceased, with the last background work",
    ),
    ("tool_call/cancel", None, Some(Relayed), "enforced for the tool call alone"),
    ("terminal/cancel", None, Some(Relayed), "enforced for the terminal alone"),
    ("session/request_permission", Some(Relayed), Some(Relayed), "withdrawn with its turn"),
    ("elicitation/create", Some(Relayed), Some(Relayed), "withdrawn with its turn"),
    ("elicitation/complete", Some(Relayed), Some(Relayed), ""),
    ("fs/read_text_file", Some(Relayed), None, ""),
    ("fs/write_text_file", Some(Relayed), None, ""),
    ("terminal/create", Some(Relayed), None, "the command is the client's, and is left alone"),
    ("terminal/output", Some(Relayed), None, ""),
    ("terminal/wait_for_exit", Some(Relayed), None, ""),
    ("terminal/kill", Some(Relayed), None, ""),
    ("terminal/release", Some(Relayed), None, ""),
    (
        "$/cancel_request",
        Some(Translated),
        Some(Translated),
        "in the spelling that the receiver knows, and enforced",
    ),
    ("$/cancelRequest", Some(Translated), Some(Translated), "the form as first proposed"),
    ("every other method", Some(Relayed), Some(Relayed), "byte for byte, both ways"),
];
