//! Roles: our side of an MCP session, and the declarations of both sides.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ids::AskId;
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outgoing::call::AnswerTimeout;
use crate::protocol::capabilities::{ELICITATION, ROOTS, SAMPLING};
use crate::tool::{Catalog, TaskSupport};

/// Our side of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Role {
    /// The peer is a client: it initializes the session and calls our tools.
    Server,
    /// The peer is a client of the revision without sessions, and the connection is no part of it:
    /// its requests may come by any number of connections, as over HTTP.
    Stateless,
    /// The peer is a server: we initialize the session and call its tools.
    Client(AsClient),
}

/// Parameters of a session that we begin as the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct AsClient {
    /// Number of the `initialize` request, as for any request of the host; its answer is the
    /// server's. Later requests are accepted from then on; earlier ones are refused with
    /// [`NotInitialized`](crate::outgoing::call::Refusal::NotInitialized). It cannot be cancelled
    /// (CAN-04).
    pub ask: AskId,
    /// Capabilities to declare, out of those that the settings have a service for.
    pub offers: Offers,
    /// Timeout of the answer to `initialize`; the connection is closed after it.
    pub answer_timeout: Option<AnswerTimeout>,
}

/// Services to declare to a server, if the settings have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Offers {
    /// `sampling/createMessage`
    pub sampling: bool,
    /// `elicitation/create`
    pub elicitation: bool,
    /// `roots/list`
    pub roots: bool,
}

impl Offers {
    /// All services of the settings.
    pub const ALL: Self = Self { sampling: true, elicitation: true, roots: true };
}

/// Our side of a connection, with its state.
#[derive(Debug)]
pub(crate) enum Side {
    Server,
    Client(Box<ClientSide>),
}

/// State of a connection on which we are the client.
#[derive(Debug)]
pub(crate) struct ClientSide {
    /// Capabilities that we declared.
    pub(crate) declared: Declared,
    /// Capabilities that the server declared.
    pub(crate) server: ServerCapabilities,
    /// Task support of each tool, from the answers to `tools/list` (TSK-04).
    pub(crate) tools: BTreeMap<Box<str>, TaskSupport>,
}

/// Form in which a service is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfferedMethod {
    /// Not declared.
    Undeclared,
    /// Declared as a plain request.
    Plain,
    /// Declared as a request that may also run as a task.
    Tasks,
}

/// Capabilities that we declared as a client. A reload does not change them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declared {
    sampling: OfferedMethod,
    elicitation: OfferedMethod,
    roots: OfferedMethod,
    lists: bool,
}

impl Declared {
    /// The offered services that `services` has. `lists` is false without an identity: anonymous
    /// peers must not see each other's tasks (TSK-40).
    pub(crate) fn of(offers: Offers, services: &Catalog, lists: bool) -> Self {
        let offer = |wanted: bool, name| match services.get(name).map(|tool| tool.task_support) {
            Some(TaskSupport::Forbidden) if wanted => OfferedMethod::Plain,
            Some(TaskSupport::Optional | TaskSupport::Required) if wanted => OfferedMethod::Tasks,
            Some(_) | None => OfferedMethod::Undeclared,
        };
        Self {
            sampling: offer(offers.sampling, SAMPLING),
            elicitation: offer(offers.elicitation, ELICITATION),
            // The protocol has no tasks for roots.
            roots: match offer(offers.roots, ROOTS) {
                OfferedMethod::Tasks => OfferedMethod::Plain,
                offer @ (OfferedMethod::Undeclared | OfferedMethod::Plain) => offer,
            },
            lists,
        }
    }

    /// Declared form of the service behind this method.
    pub(crate) fn offer(self, method: &str) -> OfferedMethod {
        match method {
            SAMPLING => self.sampling,
            ELICITATION => self.elicitation,
            ROOTS => self.roots,
            _ => OfferedMethod::Undeclared,
        }
    }

    /// Whether `tasks` was declared.
    pub(crate) fn tasks(self) -> bool {
        self.sampling == OfferedMethod::Tasks || self.elicitation == OfferedMethod::Tasks
    }

    /// Writes the `capabilities` of `initialize` (TSK-01).
    pub(crate) fn write(self, json: &mut Writer<'_>) {
        let mut comma = "";
        json.raw("{");
        for (name, offer) in
            [("elicitation", self.elicitation), ("roots", self.roots), ("sampling", self.sampling)]
        {
            if offer != OfferedMethod::Undeclared {
                json.raw(comma).string(name).raw(":{}");
                comma = ",";
            }
        }
        if self.tasks() {
            json.raw(comma).raw("\"tasks\":{");
            json.raw(if self.lists { "\"list\":{}," } else { "" });
            json.raw("\"cancel\":{},\"requests\":{");
            if self.sampling == OfferedMethod::Tasks {
                json.raw("\"sampling\":{\"createMessage\":{}}");
            }
            if self.elicitation == OfferedMethod::Tasks {
                json.raw(if self.sampling == OfferedMethod::Tasks { "," } else { "" });
                json.raw("\"elicitation\":{\"create\":{}}");
            }
            json.raw("}}");
        }
        json.raw("}");
    }
}

/// Capabilities of a server that matter for outgoing requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ServerCapabilities {
    tools: bool,
    prompts: bool,
    resources: bool,
    subscribe: bool,
    logging: bool,
    completions: bool,
}

impl ServerCapabilities {
    /// Reads the `capabilities` of an answer to `initialize`; unreadable ones count as not
    /// declared.
    pub(crate) fn read(raw: Option<&RawValue>) -> Self {
        #[derive(Deserialize, Default)]
        struct DeclaredByServer<'a> {
            #[serde(borrow, default)]
            tools: Option<&'a RawValue>,
            #[serde(borrow, default)]
            prompts: Option<&'a RawValue>,
            #[serde(borrow, default)]
            resources: Option<&'a RawValue>,
            #[serde(borrow, default)]
            logging: Option<&'a RawValue>,
            #[serde(borrow, default)]
            completions: Option<&'a RawValue>,
        }
        #[derive(Deserialize, Default)]
        struct Resources {
            #[serde(default)]
            subscribe: bool,
        }
        let said: DeclaredByServer<'_> =
            raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let resources: Option<Resources> =
            said.resources.map(|raw| serde_json::from_str(raw.get()).unwrap_or_default());
        Self {
            tools: said.tools.is_some(),
            prompts: said.prompts.is_some(),
            resources: resources.is_some(),
            subscribe: resources.is_some_and(|resources| resources.subscribe),
            logging: said.logging.is_some(),
            completions: said.completions.is_some(),
        }
    }

    /// Whether a request of this method may be sent.
    pub(crate) fn answers(self, method: &str) -> bool {
        match method {
            "ping" => true,
            "tools/list" | "tools/call" => self.tools,
            "prompts/list" | "prompts/get" => self.prompts,
            "resources/list" | "resources/read" | "resources/templates/list" => self.resources,
            "resources/subscribe" | "resources/unsubscribe" => self.subscribe,
            "logging/setLevel" => self.logging,
            "completion/complete" => self.completions,
            _ => false,
        }
    }
}

/// Reads the task support of the tools in one page of `tools/list`; an absent declaration means
/// never (TSK-04). Skips names beyond the length limit.
pub(crate) fn read_tools(result: Raw<'_>) -> alloc::vec::Vec<(Box<str>, TaskSupport)> {
    #[derive(Deserialize)]
    struct ToolsPage<'a> {
        #[serde(borrow)]
        tools: alloc::vec::Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct ListedTool {
        name: Box<str>,
        #[serde(default)]
        execution: Option<ToolExecution>,
    }
    #[derive(Deserialize)]
    struct ToolExecution {
        #[serde(default, rename = "taskSupport")]
        task_support: Option<Box<str>>,
    }
    let Ok(page) = serde_json::from_str::<ToolsPage<'_>>(result.get()) else {
        return alloc::vec::Vec::new();
    };
    let tools = page.tools.into_iter().filter_map(|tool| {
        let ListedTool { name, execution } = serde_json::from_str(tool.get()).ok()?;
        let support = match execution.and_then(|execution| execution.task_support).as_deref() {
            Some("optional") => TaskSupport::Optional,
            Some("required") => TaskSupport::Required,
            Some(_) | None => TaskSupport::Forbidden,
        };
        (name.len() <= TOOL_NAME_BYTES_MAX).then_some((name, support))
    });
    tools.collect()
}

/// Longest tool name kept, in bytes; the protocol advises at most 128 characters.
const TOOL_NAME_BYTES_MAX: usize = 1024;
