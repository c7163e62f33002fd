//! Settings in a recording: everything the engine reads, without the data of a host that runs a
//! tool.

use std::sync::Arc;
use std::time::Duration;

use ceased_core::acp::protocol::{AcpServices, Offer};
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::policy::access::Allow;
use ceased_core::provider::{HostOffer, OfferKind, Provider};
use ceased_core::settings::{ServerInfo, Settings};
use ceased_core::tool::{Catalog, OnDisconnect, StopPolicy, TaskSupport, Tool, ToolHints};
use serde::{Deserialize, Serialize};

use super::parts::Who;
use super::upstream::ServerRecipe;
use crate::tools::arguments::Arguments;
use crate::tools::catalog;

/// [`Settings`] as data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Recipe {
    server: (String, String),
    #[serde(default)]
    words: [Option<String>; 3],
    #[serde(default)]
    outputs: bool,
    limits: Limits,
    tasks: TaskPolicy,
    tools: Vec<ToolRecipe>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    provider: Vec<ProvidedRecipe>,
    #[serde(default)]
    services: Vec<ToolRecipe>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<ToolRecipe>,
    #[serde(default)]
    acp: (OfferRecipe, OfferRecipe),
    #[serde(default)]
    operators: Vec<Who>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerRecipe>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    agents: Vec<ServerRecipe>,
    #[serde(default, skip_serializing_if = "is_false")]
    agent_only: bool,
    #[serde(default)]
    start_at_once: usize,
}

/// [`Offer`] as data.
#[derive(Debug, Default, Serialize, Deserialize)]
struct OfferRecipe {
    services: Vec<ToolRecipe>,
    notifications: Vec<String>,
}

impl OfferRecipe {
    fn new(offer: &Offer) -> Self {
        let Offer { services, notifications } = offer;
        Self {
            services: services.iter().map(|tool| ToolRecipe::new(tool)).collect(),
            notifications: notifications.iter().map(ToString::to_string).collect(),
        }
    }
}

/// [`HostOffer`] as data.
#[derive(Debug, Serialize, Deserialize)]
struct ProvidedRecipe {
    kind: OfferKind,
    id: String,
    listed: String,
    serve: ToolRecipe,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    complete: Option<ToolRecipe>,
}

impl ProvidedRecipe {
    fn new(offer: &HostOffer) -> Self {
        let HostOffer { kind, id, listed, serve, complete } = offer;
        Self {
            kind: *kind,
            id: id.to_string(),
            listed: listed.to_string(),
            serve: ToolRecipe::new(serve),
            complete: complete.as_ref().map(|tool| ToolRecipe::new(tool)),
        }
    }

    fn get(&self) -> Result<HostOffer, String> {
        Ok(HostOffer {
            kind: self.kind,
            id: self.id.as_str().into(),
            listed: self.listed.as_str().into(),
            serve: Arc::new(self.serve.get()?),
            complete: self.complete.as_ref().map(ToolRecipe::get).transpose()?.map(Arc::new),
        })
    }
}

/// [`Tool`] as data. Its check is made anew from its schema.
#[derive(Debug, Serialize, Deserialize)]
struct ToolRecipe {
    name: String,
    title: Option<String>,
    description: Option<String>,
    input_schema: String,
    output_schema: Option<String>,
    task_support: TaskSupport,
    timeout: Option<Duration>,
    stop_policy: StopPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heartbeat: Option<Duration>,
    #[serde(default)]
    hints: ToolHints,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    icon: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    read_only: bool,
    checked: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    asks_first: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_running: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lock: Option<String>,
    #[serde(default)]
    on_disconnect: OnDisconnect,
    /// Identities that may use it; all if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<Vec<Who>>,
}

impl Recipe {
    pub(super) fn new(settings: &Settings) -> Self {
        let Settings { server, limits, tasks, catalog, services, acp, outputs, .. } = settings;
        let Settings { operators, servers, start_at_once, provider, run, .. } = settings;
        let Settings { agents, agent_only, .. } = settings;
        Self {
            server: (server.name.to_string(), server.version.to_string()),
            words: [&server.title, &server.website, &server.instructions]
                .map(|text| text.as_ref().map(ToString::to_string)),
            outputs: *outputs,
            limits: *limits,
            tasks: *tasks,
            tools: catalog.iter().map(|tool| ToolRecipe::new(tool)).collect(),
            provider: provider.iter().map(|offer| ProvidedRecipe::new(offer)).collect(),
            services: services.iter().map(|tool| ToolRecipe::new(tool)).collect(),
            run: run.as_deref().map(ToolRecipe::new),
            acp: (OfferRecipe::new(&acp.agent), OfferRecipe::new(&acp.client)),
            operators: operators.iter().map(Who::new).collect(),
            servers: servers.iter().filter_map(|server| ServerRecipe::new(server)).collect(),
            agents: agents.iter().filter_map(|agent| ServerRecipe::new(agent)).collect(),
            agent_only: *agent_only,
            start_at_once: *start_at_once,
        }
    }

    /// The settings again.
    ///
    /// # Errors
    /// When a tool's schema cannot be read any more, or the engine does not take the tool.
    pub(super) fn get(&self) -> Result<Settings, String> {
        let made = |recipes: &[ToolRecipe]| {
            let tools: Result<Vec<Tool>, String> = recipes.iter().map(ToolRecipe::get).collect();
            Catalog::new(tools?).map_err(|error| error.to_string())
        };
        let offer = |recipe: &OfferRecipe| {
            let services = made(&recipe.services)?;
            let notifications = recipe.notifications.iter().map(|method| method.as_str().into());
            Ok::<_, String>(Offer { services, notifications: notifications.collect() })
        };
        let provider = |recipes: &[ProvidedRecipe]| {
            let offers: Result<Vec<HostOffer>, String> =
                recipes.iter().map(ProvidedRecipe::get).collect();
            Provider::new(offers?).map_err(|error| error.to_string())
        };
        let (name, version) = &self.server;
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        Ok(Settings {
            server: ServerInfo {
                title: text(&self.words[0]),
                website: text(&self.words[1]),
                instructions: text(&self.words[2]),
                ..ServerInfo::new(name, version)
            },
            outputs: self.outputs,
            limits: self.limits,
            tasks: self.tasks,
            catalog: made(&self.tools)?,
            provider: provider(&self.provider)?,
            services: made(&self.services)?,
            run: self.run.as_ref().map(|tool| tool.get().map(Arc::new)).transpose()?,
            acp: AcpServices { agent: offer(&self.acp.0)?, client: offer(&self.acp.1)? },
            operators: self.operators.iter().map(Who::get).collect(),
            servers: self.servers.iter().map(ServerRecipe::get).collect::<Result<_, _>>()?,
            agents: self.agents.iter().map(ServerRecipe::get).collect::<Result<_, _>>()?,
            agent_only: self.agent_only,
            start_at_once: self.start_at_once,
        })
    }
}

/// Values that most tools do not have are omitted.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over like that")]
const fn is_false(what: &bool) -> bool {
    !*what
}

impl ToolRecipe {
    fn new(tool: &Tool) -> Self {
        Self {
            name: tool.name.to_string(),
            title: tool.title.as_ref().map(ToString::to_string),
            description: tool.description.as_ref().map(ToString::to_string),
            input_schema: tool.input_schema.to_string(),
            output_schema: tool.output_schema.as_ref().map(ToString::to_string),
            task_support: tool.task_support,
            timeout: tool.timeout,
            stop_policy: tool.stop_policy,
            heartbeat: tool.heartbeat,
            hints: tool.hints,
            icon: tool.icon.as_ref().map(ToString::to_string),
            read_only: tool.read_only,
            checked: tool.check.is_some(),
            asks_first: tool.asks_first,
            max_running: tool.max_running,
            lock: tool.lock.as_ref().map(ToString::to_string),
            on_disconnect: tool.on_disconnect,
            allow: match &tool.allow {
                Allow::Everyone => None,
                Allow::Only(who) => Some(who.iter().map(Who::new).collect()),
            },
        }
    }

    fn get(&self) -> Result<Tool, String> {
        let check =
            self.checked.then(|| Arguments::new(&self.input_schema).map(catalog::by_schema));
        let check = check.transpose().map_err(|why| format!("{}: {why}", self.name))?;
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        Ok(Tool {
            name: self.name.as_str().into(),
            title: text(&self.title),
            description: text(&self.description),
            input_schema: self.input_schema.as_str().into(),
            output_schema: text(&self.output_schema),
            task_support: self.task_support,
            timeout: self.timeout,
            stop_policy: self.stop_policy,
            heartbeat: self.heartbeat,
            hints: self.hints,
            icon: text(&self.icon),
            read_only: self.read_only,
            check,
            asks_first: self.asks_first,
            max_running: self.max_running,
            lock: text(&self.lock),
            on_disconnect: self.on_disconnect,
            allow: self
                .allow
                .as_ref()
                .map_or(Allow::Everyone, |who| Allow::Only(who.iter().map(Who::get).collect())),
            route: None,
            payload: None,
        })
    }
}
