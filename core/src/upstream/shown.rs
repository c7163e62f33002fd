//! Identity and capabilities of servers in the answers to `initialize` and `server/discover`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::ids::ConnId;
use crate::json::meta::SERVER_INFO;
use crate::outbox::Outbox;
use crate::outbox::requests::Reply;
use crate::protocol::revision::Results;
use crate::rpc::send_queue::without_break;
use crate::server::stateless;
use crate::tool::TaskSupport;
use crate::upstream::list::{APPS_EXTENSION, SKILLS_EXTENSION, TOOLS};
use crate::upstream::manifest::Freshness;
use crate::upstream::rewrite::{TextMember, member, members, with_member, without};
use crate::upstream::server::Share;
use crate::upstream::server_task::EXTENSION;
use crate::upstream::table::Upstreams;

/// Members of the answer that this engine writes itself, or that belong to the hop of the server.
const OWN_MEMBERS: [&str; 7] = [
    "protocolVersion",
    "supportedVersions",
    "capabilities",
    "serverInfo",
    "ttlMs",
    "cacheScope",
    "resultType",
];

/// Capabilities of servers that this engine writes itself.
const KNOWN_CAPABILITIES: [&str; 7] =
    ["tools", "prompts", "resources", "completions", "logging", "tasks", "extensions"];

/// Identity of a transparent server, as JSON text.
pub(crate) struct ShownIdentity {
    /// Its capabilities but for tasks.
    capabilities: String,
    /// Whether one of its tools runs as a task.
    has_tasks: bool,
    pub(crate) info: Option<Box<str>>,
    /// Every other member of its answer, `instructions` and `_meta` among them, each after a comma
    /// (UPS-17).
    pub(crate) others: String,
    /// How long the answer to `server/discover` may be cached, if the server says so.
    pub(crate) freshness: Option<String>,
}

impl ShownIdentity {
    /// The capabilities, with one of ours if its tools run as tasks.
    pub(crate) fn capabilities_with(&self, ours: Option<(&str, &str)>) -> String {
        match ours.filter(|_| self.has_tasks) {
            Some((name, value)) => with_member(&self.capabilities, name, value),
            None => self.capabilities.clone(),
        }
    }

    /// The capabilities, with the tasks of ours as an extension.
    pub(crate) fn capabilities_with_extension(&self) -> String {
        let extensions = member(&self.capabilities, "extensions").unwrap_or("{}");
        self.capabilities_with(Some(("extensions", &with_member(extensions, EXTENSION, "{}"))))
    }

    fn of(identity: &str, share: Share, has_tasks: bool) -> Self {
        let said = member(identity, "capabilities").unwrap_or("{}");
        let mut capabilities = without(said, &["tasks"]);
        if let Some(extensions) = member(said, "extensions")
            && member(extensions, EXTENSION).is_some()
        {
            let others = without(extensions, &[EXTENSION]);
            capabilities = with_member(&capabilities, "extensions", &others);
        }
        if member(said, "resources").is_some() && share == Share::Call {
            // The process that would tell of an update ends with its call.
            capabilities = with_member(&capabilities, "resources", r#"{"listChanged":true}"#);
        }
        let mut others = String::new();
        for (key, value) in members(&without(identity, &OWN_MEMBERS)) {
            let meta = (key == "_meta").then(|| without(value, &[SERVER_INFO]));
            if meta.as_deref() != Some("{}") {
                let value = meta.as_deref().unwrap_or(value);
                others.push_str(&alloc::format!(",\"{key}\":{value}"));
            }
        }
        let info = server_info(identity).map(Into::into);
        let fresh = Freshness::of(identity);
        let freshness = fresh.ttl_ms.map(|ttl| stateless::cacheable(ttl, fresh.is_public));
        Self { capabilities, has_tasks, info, others, freshness }
    }
}

impl Upstreams {
    /// Members of the capabilities after those that are always there: everything that a server
    /// declares or, while nothing is known of it, may declare. `is_typed`: for a client without a
    /// session, whose tasks are an extension.
    pub(crate) fn offered_capabilities(
        &self,
        outbox: &Outbox,
        conn: ConnId,
        is_typed: bool,
    ) -> String {
        let servers = || self.seen_servers(outbox, conn);
        let any = |capability: &'static str| {
            let offers = self.has_offers(outbox, capability, conn);
            offers
                || servers().any(|server| match &server.manifest {
                    Some(manifest) => member(manifest.capabilities(), capability).is_some(),
                    None => true,
                })
        };
        let mut text = String::new();
        if any("resources") {
            let subscribes = servers().any(|server| server.server.share != Share::Call)
                || self.has_offers(outbox, "resources", conn);
            text.push_str(match subscribes {
                true => ",\"resources\":{\"subscribe\":true,\"listChanged\":true}",
                false => ",\"resources\":{\"listChanged\":true}",
            });
        } else if self.owns_outputs(outbox, conn) {
            text.push_str(",\"resources\":{}");
        }
        text.push_str(if any("prompts") { ",\"prompts\":{\"listChanged\":true}" } else { "" });
        text.push_str(if any("completions") { ",\"completions\":{}" } else { "" });
        let mut extensions = self.offered_extensions(outbox, conn);
        if is_typed {
            extensions = with_member(&extensions, EXTENSION, "{}");
        }
        if extensions != "{}" {
            text.push_str(&alloc::format!(",\"extensions\":{extensions}"));
        }
        text.push_str(&self.unknown_capabilities(outbox, conn));
        text
    }

    /// UPS-17: capabilities of an only server that no revision has, each after a comma.
    fn unknown_capabilities(&self, outbox: &Outbox, conn: ConnId) -> String {
        let mut text = String::new();
        if !self.has_only_server(outbox) {
            return text;
        }
        for manifest in self.seen_servers(outbox, conn).filter_map(|it| it.manifest.as_ref()) {
            for (key, value) in members(&without(manifest.capabilities(), &KNOWN_CAPABILITIES)) {
                text.push_str(&alloc::format!(",\"{key}\":{value}"));
            }
        }
        text
    }

    /// UPS-18: the extensions of all servers that a client sees, as far as the client has them, each
    /// with the settings of the first server. UPS-17: an only server declares all of its own.
    fn offered_extensions(&self, outbox: &Outbox, conn: ConnId) -> String {
        let declared = outbox.connection(conn).and_then(|it| it.aside.declared.as_deref());
        let wanted = declared.and_then(|said| member(said, "extensions")).unwrap_or("{}");
        let wanted: Vec<TextMember<'_>> = members(wanted);
        let is_only = self.has_only_server(outbox);
        let mut all = String::from("{}");
        let mut offer = |key: &str, value: &str, is_known: bool| {
            let is_new = !members(&all).iter().any(|(known, _)| *known == key);
            let is_wanted = || wanted.iter().any(|(name, _)| *name == key);
            if key != EXTENSION && is_new && (is_known && is_only || is_wanted()) {
                all = with_member(&all, key, value);
            }
        };
        for server in self.seen_servers(outbox, conn) {
            match &server.manifest {
                Some(manifest) => {
                    let said = member(manifest.capabilities(), "extensions").unwrap_or("{}");
                    members(said).into_iter().for_each(|(key, value)| offer(key, value, true));
                }
                // It may have those whose methods are routed here.
                None => {
                    let routed = [SKILLS_EXTENSION, APPS_EXTENSION];
                    routed.into_iter().for_each(|it| offer(it, "{}", false));
                }
            }
        }
        all
    }

    /// Whether everything that clients are offered is of one server.
    fn has_only_server(&self, outbox: &Outbox) -> bool {
        let settings = outbox.settings();
        let offers_none = settings.catalog.iter().next().is_none() && settings.provider.is_empty();
        self.servers.len() == 1 && offers_none
    }

    /// Members of `initialize` and `server/discover` that a transparent server decides.
    pub(crate) fn shown_identity(&self, outbox: &Outbox, conn: ConnId) -> Option<ShownIdentity> {
        let server = self.shown_through(outbox, conn)?;
        let manifest = server.manifest.as_ref()?;
        let has_tasks = match server.known[TOOLS] {
            true => server.tools.values().any(|tool| tool.task_support != TaskSupport::Forbidden),
            // Its tools are not listed yet: as the settings or the server itself say.
            false => server.server.task_support.map_or_else(
                || declares_tasks(manifest.capabilities()),
                |support| support != TaskSupport::Forbidden,
            ),
        };
        Some(ShownIdentity::of(&manifest.identity, server.server.share, has_tasks))
    }

    /// Name and version of a transparent server, as JSON text.
    pub(crate) fn shown_server_info(&self, outbox: &Outbox, conn: ConnId) -> Option<&str> {
        server_info(&self.shown_through(outbox, conn)?.manifest.as_ref()?.identity)
    }

    /// Name and version of this server, or of the one that shows through, where the revision of a
    /// request wants them in its result (MOD-02).
    #[inline]
    pub(crate) fn name_for(&self, outbox: &Outbox, reply: &Reply) -> Option<Arc<[u8]>> {
        match reply.dialect.results {
            Results::Bare => None,
            Results::Typed => Some(self.name_shown(outbox, reply.conn)),
        }
    }

    fn name_shown(&self, outbox: &Outbox, conn: ConnId) -> Arc<[u8]> {
        match self.shown_server_info(outbox, conn) {
            // Its line may contain carriage returns between values.
            Some(info) => info.bytes().map(without_break).collect(),
            None => outbox.server_info(),
        }
    }
}

/// Whether a server with these capabilities runs tools as tasks.
fn declares_tasks(capabilities: &str) -> bool {
    let extension = || member(capabilities, "extensions").and_then(|all| member(all, EXTENSION));
    member(capabilities, "tasks").is_some() || extension().is_some()
}

/// Name and version in the answer to `initialize` or `server/discover`.
fn server_info(identity: &str) -> Option<&str> {
    let in_meta = || member(identity, "_meta").and_then(|meta| member(meta, SERVER_INFO));
    member(identity, "serverInfo").or_else(in_meta)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UPS-17: everything that the server says stays, but for tasks and the members of its hop.
    #[test]
    fn identity_is_whole() {
        let tasks = r#""io.modelcontextprotocol/tasks":{}"#;
        let identity = alloc::format!(
            r#"{{"supportedVersions":["2026-07-28"],"capabilities":{{"x":1,"tasks":{{}},"extensions":{{{tasks},"v/e":{{"a":[]}}}}}},"ttlMs":5,"cacheScope":"public","instructions":"i","vendor":[1.0],"_meta":{{"{SERVER_INFO}":{{"name":"s"}},"k":2}},"resultType":"complete"}}"#
        );
        let shown = ShownIdentity::of(&identity, Share::Connection, true);
        assert_eq!(shown.capabilities, r#"{"x":1,"extensions":{"v/e":{"a":[]}}}"#);
        assert_eq!(shown.others, r#","instructions":"i","vendor":[1.0],"_meta":{"k":2}"#);
        assert_eq!(shown.info.as_deref(), Some(r#"{"name":"s"}"#));
        let with = shown.capabilities_with_extension();
        assert_eq!(with, alloc::format!(r#"{{"x":1,"extensions":{{"v/e":{{"a":[]}},{tasks}}}}}"#));
    }
}
