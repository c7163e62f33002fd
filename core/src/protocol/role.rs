//! Roles: which side of MCP we are on a connection, and what the two sides declared.

use crate::protocol::capabilities::{ELICITATION, ROOTS, SAMPLING};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ids::AskId;
use crate::json::writer::Writer;
use crate::outgoing::call::AnswerTimeout;
use crate::tool::{Catalog, TaskSupport};

/// Which side of a session we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The peer is an MCP client: it initializes and calls our tools.
    Server,
    /// The peer is an MCP server: we initialize and call what it has.
    Client(AsClient),
}

/// How we begin a session as the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsClient {
    /// The host's number for `initialize`, as for a call of its own: the answer that is told for it
    /// is the server's, and from then on calls are let through. Before, they are refused with
    /// [`NotInitialized`](crate::outgoing::call::Refusal::NotInitialized). It cannot be cancelled (CAN-04).
    pub ask: AskId,
    /// Capabilities that we declare, out of those of the settings.
    pub offers: Offers,
    /// How long the server may take to answer `initialize`; then the connection is closed.
    pub patience: Option<AnswerTimeout>,
}

/// Which services a server is to know of. Declared is what the settings have a service for as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offers {
    /// `sampling/createMessage`
    pub sampling: bool,
    /// `elicitation/create`
    pub elicitation: bool,
    /// `roots/list`
    pub roots: bool,
}

impl Offers {
    /// Everything the settings have a service for.
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
    /// Which tools run as tasks, as far as the answers to our `tools/list` said (TSK-04).
    pub(crate) tools: BTreeMap<Box<str>, TaskSupport>,
}

/// How we declared one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    /// Not at all.
    No,
    /// As a plain request.
    Plain,
    /// Also as a task.
    Tasks,
}

/// Capabilities that we declared as a client. A reload does not change them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declared {
    sampling: Offer,
    elicitation: Offer,
    roots: Offer,
    lists: bool,
}

impl Declared {
    /// What `services` has of what is offered. Without an identity there is no list of tasks, as
    /// it would show everybody's to everybody (TSK-40).
    pub(crate) fn of(offers: Offers, services: &Catalog, lists: bool) -> Self {
        let offer = |wanted: bool, name| match services.get(name).map(|tool| tool.task_support) {
            Some(TaskSupport::Forbidden) if wanted => Offer::Plain,
            Some(TaskSupport::Optional | TaskSupport::Required) if wanted => Offer::Tasks,
            Some(_) | None => Offer::No,
        };
        Self {
            sampling: offer(offers.sampling, SAMPLING),
            elicitation: offer(offers.elicitation, ELICITATION),
            // The protocol has no tasks for it.
            roots: match offer(offers.roots, ROOTS) {
                Offer::Tasks => Offer::Plain,
                offer @ (Offer::No | Offer::Plain) => offer,
            },
            lists,
        }
    }

    /// How the service behind this method was declared.
    pub(crate) fn offer(self, method: &str) -> Offer {
        match method {
            SAMPLING => self.sampling,
            ELICITATION => self.elicitation,
            ROOTS => self.roots,
            _ => Offer::No,
        }
    }

    /// Whether `tasks` was declared.
    pub(crate) fn tasks(self) -> bool {
        self.sampling == Offer::Tasks || self.elicitation == Offer::Tasks
    }

    /// The `capabilities` of `initialize` (TSK-01).
    pub(crate) fn write(self, json: &mut Writer<'_>) {
        let mut comma = "";
        json.raw("{");
        for (name, offer) in
            [("elicitation", self.elicitation), ("roots", self.roots), ("sampling", self.sampling)]
        {
            if offer != Offer::No {
                json.raw(comma).string(name).raw(":{}");
                comma = ",";
            }
        }
        if self.tasks() {
            json.raw(comma).raw("\"tasks\":{");
            json.raw(if self.lists { "\"list\":{}," } else { "" });
            json.raw("\"cancel\":{},\"requests\":{");
            if self.sampling == Offer::Tasks {
                json.raw("\"sampling\":{\"createMessage\":{}}");
            }
            if self.elicitation == Offer::Tasks {
                json.raw(if self.sampling == Offer::Tasks { "," } else { "" });
                json.raw("\"elicitation\":{\"create\":{}}");
            }
            json.raw("}}");
        }
        json.raw("}");
    }
}

/// Capabilities of a server, as far as they matter for our requests.
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
    /// Reads the `capabilities` of an answer to `initialize`; what cannot be read was not declared.
    pub(crate) fn read(raw: Option<&RawValue>) -> Self {
        #[derive(Deserialize, Default)]
        struct Capabilities<'a> {
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
        let said: Capabilities<'_> =
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

/// Reads which tools of one page of `tools/list` run as tasks: a missing declaration means never
/// (TSK-04). Names nobody could have chosen are passed over.
pub(crate) fn read_tools(result: &RawValue) -> alloc::vec::Vec<(Box<str>, TaskSupport)> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        tools: alloc::vec::Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Listed {
        name: Box<str>,
        #[serde(default)]
        execution: Option<Execution>,
    }
    #[derive(Deserialize)]
    struct Execution {
        #[serde(default, rename = "taskSupport")]
        task_support: Option<Box<str>>,
    }
    let Ok(page) = serde_json::from_str::<Page<'_>>(result.get()) else {
        return alloc::vec::Vec::new();
    };
    let tools = page.tools.into_iter().filter_map(|tool| {
        let Listed { name, execution } = serde_json::from_str(tool.get()).ok()?;
        let support = match execution.and_then(|execution| execution.task_support).as_deref() {
            Some("optional") => TaskSupport::Optional,
            Some("required") => TaskSupport::Required,
            Some(_) | None => TaskSupport::Forbidden,
        };
        (name.len() <= TOOL_NAME_BYTES_MAX).then_some((name, support))
    });
    tools.collect()
}

/// Longest tool name remembered, in bytes; the protocol advises 128 characters.
const TOOL_NAME_BYTES_MAX: usize = 1024;
