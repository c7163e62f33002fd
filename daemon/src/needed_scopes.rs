//! Scopes that a configuration wants of tokens, by the decision that lists and calls have (AUTH-01).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ceased_core::identity::Identity;
use ceased_core::policy::access::{Caller, Item, Profile};
use ceased_core::policy::allow::{Allow, Grants, Verdict};
use ceased_core::upstream::server::UpstreamServer;

use crate::config::{Config, prefix_of};
use crate::tools::catalog;

/// Scopes that tools, servers and profiles need.
#[derive(Debug, Default)]
pub(crate) struct NeededScopes {
    /// All of them.
    pub(crate) all: BTreeSet<Box<str>>,
    tools: BTreeMap<String, Vec<Box<str>>>,
    /// Servers with the keys that decide on access alone, by prefix.
    servers: Vec<UpstreamServer>,
    profiles: Vec<Profile>,
}

impl NeededScopes {
    /// Those of a configuration.
    pub(crate) fn of(config: &Config) -> Arc<Self> {
        let tools = config.tools.iter().map(|tool| &tool.allow);
        let servers = config.servers.iter().map(|server| &server.allow);
        let profiles = config.profiles.iter().map(|profile| &profile.allow);
        let all = tools.chain(servers).chain(profiles).flat_map(Allow::scopes);
        let mut needed = Self {
            all: all.map(Into::into).collect(),
            profiles: config.profiles.clone(),
            ..Self::default()
        };
        if needed.all.is_empty() {
            return Arc::new(needed);
        }
        let stranger = Identity::Subject("".into());
        let caller = Caller::new(&stranger, Grants::NONE, &config.profiles);
        for tool in &config.tools {
            let lacking = lacking(caller.verdict(Item::Tool(&catalog::configured(tool))));
            needed.tools.insert(tool.name.to_string(), lacking);
        }
        let count = config.servers.len();
        needed.servers.extend(config.servers.iter().map(|server| UpstreamServer {
            prefix: prefix_of(server, count, &config.tools).into(),
            allow: server.allow.clone(),
            filter: server.filter.clone(),
            ..UpstreamServer::new(&server.name)
        }));
        needed.servers.sort_by_key(|server| usize::MAX - server.prefix.len());
        Arc::new(needed)
    }

    /// Those that a call of a tool needs of a token that has none; empty for a tool that no token
    /// would reach.
    pub(crate) fn of_tool(&self, name: &str) -> Vec<Box<str>> {
        if let Some(scopes) = self.tools.get(name) {
            return scopes.clone();
        }
        let stranger = Identity::Subject("".into());
        let caller = Caller::new(&stranger, Grants::NONE, &self.profiles);
        let of = |server: &UpstreamServer| {
            let short = name.strip_prefix(&*server.prefix)?;
            let is_offered = server.filter.offers(short);
            is_offered.then(|| lacking(caller.verdict(Item::ServerTool(server, short))))
        };
        self.servers.iter().find_map(of).unwrap_or_default()
    }
}

fn lacking(verdict: Verdict<'_>) -> Vec<Box<str>> {
    match verdict {
        Verdict::Lacks(scopes) => scopes.into_iter().map(Box::from).collect(),
        Verdict::Granted | Verdict::Absent => Vec::new(),
    }
}
