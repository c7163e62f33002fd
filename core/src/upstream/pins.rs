//! Pins: the tools of a server as they were approved, and the ones that differ (UPS-19).
//!
//! A model reads the description and schema of a tool as instructions, and a server may change them
//! at any time. The first list that an identity gets of a server is approved by itself; a text that
//! comes later is approved by an operator, for all identities.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::action::Action;
use crate::identity::Identity;
use crate::ids::{ConnId, InstanceId};
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::outbox::requests::Topic;
use crate::rpc::error::{ErrorObject, code};
use crate::tool::Tool;
use crate::upstream::approval::{Approval, ApprovedTools, ToolChange, pinned};
use crate::upstream::audience::ListAudience;
use crate::upstream::audience_states::{audience_of, clients_of};
use crate::upstream::effect::GatewayEffect;
use crate::upstream::gateway::Gateway;
use crate::upstream::interface::UpstreamAction;
use crate::upstream::list::TOOLS;
use crate::upstream::rewrite::{quoted, text_member};
use crate::upstream::route::Route;
use crate::upstream::server::{Pin, UpstreamServer};
use crate::upstream::table::{KnownServer, Upstreams};

/// Texts of one tool that are approved at once: those of two eras, and of two releases.
const VARIANTS_MAX: usize = 4;
/// Identities whose first list is remembered for one server. The lists of further ones are not
/// approved by themselves.
const IDENTITIES_MAX: usize = 1024;

impl KnownServer {
    /// The error for a call of a tool that is not approved, by the name that the server knows.
    pub(crate) fn pin_refusal(&self, name: &str) -> Option<ErrorObject> {
        if self.server.pin != Pin::Refuse {
            return None;
        }
        let is_listed = || self.tools.contains_key(&*format!("{}{name}", self.server.prefix));
        let (word, why) = match (&self.pins.approved, self.pins.changes.get(name)) {
            (None, _) => ("unread", "its server has not told a whole list of its tools"),
            (Some(_), Some(ToolChange { before: None, .. })) => {
                ("new", "it is new since the tools of its server were approved")
            }
            (Some(_), Some(_)) => ("changed", "its text has changed since it was approved"),
            (Some(_), None) if is_listed() => return None,
            (Some(_), None) => ("unlisted", "its server does not list it"),
        };
        let server = &*self.server.name;
        let message = format!(
            "the tool {name:?} of the server {server:?} is not called: {why}. Do not try it again; a \
             person reads the difference and approves it with: ceased approve {server}"
        );
        let data = format!(
            "{{\"pin\":\"{word}\",\"server\":{},\"tool\":{}}}",
            quoted(server),
            quoted(name)
        );
        Some(ErrorObject::new(code::FORBIDDEN, message).with_data(data))
    }

    /// Whether a tool is not listed, by its name and its element of `tools/list`.
    pub(super) fn pin_hides(&self, name: &str, element: &str) -> bool {
        let is_open =
            || self.pins.approved.is_some() && self.pins.change_of(name, element).is_none();
        self.server.pin == Pin::Refuse && !is_open()
    }

    /// The pinned text of each tool that it lists.
    fn pinned_tools(&self) -> impl Iterator<Item = (Box<str>, Box<str>)> {
        let all = self.manifest.iter().flat_map(|manifest| &manifest.tools);
        all.filter_map(|element| Some((text_member(element, "name")?, pinned(element))))
    }
}

impl Upstreams {
    /// The error for a call of a client, if its tool is known not to be approved.
    pub(crate) fn unapproved(
        &self,
        outbox: &Outbox,
        conn: ConnId,
        tool: &Tool,
    ) -> Option<ErrorObject> {
        let route = tool.route.as_deref()?;
        let server = self.server(&route.server).filter(|it| it.server.pin == Pin::Refuse)?;
        let audience = audience_of(outbox, &server.server, conn);
        let state = self.state(&route.server, audience.as_ref())?;
        state.pin_refusal(&route.name).filter(|_| state.known[TOOLS])
    }

    /// Hands the approvals of a server to one of its states, which offers its tools anew.
    fn apply_pins(&mut self, name: &str, audience: Option<&ListAudience>) {
        let Some(pins) = self.pins.get(name) else { return };
        let own = audience.and_then(|of| pins.by.get(&Some(of.identity.clone()))).cloned();
        let common = pins.by.get(&None).cloned();
        let is_known = pins.is_closed || own.is_some() || common.is_some();
        let approved = is_known.then(|| [common.unwrap_or_default(), own.unwrap_or_default()]);
        let state = match audience {
            None => self.servers.iter_mut().find(|server| &*server.server.name == name),
            Some(of) => self.personal.get_mut(name).and_then(|states| states.get_mut(of)),
        };
        if let Some(state) = state.filter(|state| state.pins.approved != approved) {
            state.pins.approved = approved;
            state.offer_tools();
        }
    }

    /// The audiences that a server is known to, all of them last.
    fn audiences(&self, name: &str) -> Vec<Option<ListAudience>> {
        let own = self.personal.get(name).into_iter().flat_map(|states| states.keys());
        own.cloned().map(Some).chain([None]).collect()
    }
}

impl Gateway<'_> {
    /// The error for a call that is about to be sent to an instance, if its tool is not approved.
    pub(super) fn pin_refusal(&self, to: InstanceId, route: &Route) -> Option<ErrorObject> {
        let instance = self.upstreams.instances.get(&to)?;
        if instance.server.pin != Pin::Refuse || &*route.method != "tools/call" {
            return None;
        }
        let state = self.upstreams.state(&route.server, instance.audience.as_ref());
        state.and_then(|state| state.pin_refusal(&route.name))
    }

    /// The host has the approval of a server from an earlier process, which counts unless a later one
    /// is known; `None`: it cannot be read, and no list of the server is approved by itself.
    pub(crate) fn on_approval(&mut self, server: &str, approval: Option<&Approval>) {
        if self.upstreams.server(server).is_none_or(|it| it.server.pin == Pin::Off) {
            return;
        }
        let pins = self.upstreams.pins.entry(server.into()).or_default();
        let identity = approval.map(|it| (it, Identity::parse(&it.identity)));
        let (tools, identity) = match identity {
            Some((it, None)) if it.identity.is_empty() => (Some(&it.tools), None),
            Some((it, Some(identity))) => (Some(&it.tools), Some(identity)),
            Some((_, None)) | None => (None, None),
        };
        match tools {
            Some(tools) if !pins.by.contains_key(&identity) => {
                let tools = pins.shared(tools.clone());
                pins.by.insert(identity, tools);
            }
            Some(_) => {}
            None => pins.is_closed = true,
        }
        for audience in self.upstreams.audiences(server) {
            self.upstreams.apply_pins(server, audience.as_ref());
            self.note_changes(server, audience.as_ref());
        }
    }

    /// A server has told its tools, or they are known from its last run. The first whole list of an
    /// identity is approved by itself; the differences of a later one are told.
    pub(crate) fn pin_tools(
        &mut self,
        server: &Arc<UpstreamServer>,
        audience: Option<&ListAudience>,
        is_whole: bool,
    ) {
        if server.pin == Pin::Off {
            return;
        }
        let identity = audience.map(|audience| audience.identity.clone());
        let pins = self.upstreams.pins.entry(server.name.clone()).or_default();
        let is_first = !pins.is_closed && !pins.by.contains_key(&identity);
        let has_room = pins.by.len() < IDENTITIES_MAX;
        if is_first && is_whole && has_room {
            let state = self.upstreams.state(&server.name, audience);
            let told = state.into_iter().flat_map(KnownServer::pinned_tools);
            let tools: ApprovedTools = told.map(|(name, text)| (name, Vec::from([text]))).collect();
            self.keep_approval(server, identity, tools);
        }
        self.upstreams.apply_pins(&server.name, audience);
        self.note_changes(&server.name, audience);
    }

    /// Takes approved tools into the tables, and has the host keep them.
    fn keep_approval(
        &mut self,
        server: &Arc<UpstreamServer>,
        identity: Option<Identity>,
        tools: ApprovedTools,
    ) {
        let pins = self.upstreams.pins.entry(server.name.clone()).or_default();
        let text = identity.as_ref().map_or_else(String::new, |identity| format!("{identity}"));
        let tools = pins.shared(tools);
        let approval = Box::new(Approval { identity: text.into(), tools: (*tools).clone() });
        pins.by.insert(identity, tools);
        let server = Arc::clone(server);
        self.outbox.push(Action::Upstream(UpstreamAction::SaveApproval { server, approval }));
    }

    /// Tells an operator of the tools that differ, if they are others than before.
    pub(super) fn note_changes(&mut self, name: &str, audience: Option<&ListAudience>) {
        let state = match audience {
            None => self.upstreams.server_mut(name),
            Some(of) => self.upstreams.personal.get_mut(name).and_then(|all| all.get_mut(of)),
        };
        let Some(state) = state.filter(|state| state.pins.changes != state.pins.told) else {
            return;
        };
        state.pins.told.clone_from(&state.pins.changes);
        let names = |is_new| {
            let of = move |it: &&ToolChange| it.before.is_none() == is_new;
            state.pins.changes.values().filter(of).map(|it| it.tool.clone()).collect::<Vec<_>>()
        };
        let (changed, new) = (names(false), names(true));
        let is_refused = state.server.pin == Pin::Refuse;
        state.warnings.note_pins(&state.server.name, is_refused, &changed, &new);
        let changes: Vec<ToolChange> = state.pins.changes.values().cloned().collect();
        // A number of an earlier process is none of this one.
        let now = self.now.wall.as_millis();
        self.upstreams.last_pins = now.max(self.upstreams.last_pins + 1);
        if let Some(pins) = self.upstreams.pins.get_mut(name) {
            pins.revision = self.upstreams.last_pins;
        }
        if !changes.is_empty() {
            let (server, changes) = (name.into(), changes.into());
            self.outbox.push(Action::Upstream(UpstreamAction::ToolsDiffer { server, changes }));
        }
    }

    /// `ceased/approve` of an operator: the tools that differ from the approved ones, and their
    /// approval if it names the revision of those that were shown. Returns the members of the answer
    /// after its brace, and whether they are approved now.
    pub(crate) fn approve(
        &mut self,
        name: &str,
        shown: Option<u64>,
    ) -> Result<(String, bool), ErrorObject> {
        let Some(server) = self.upstreams.server(name).map(|it| Arc::clone(&it.server)) else {
            return Err(ErrorObject::invalid_params("there is no such server"));
        };
        if server.pin == Pin::Off {
            let message = format!(
                "the tools of the server {name:?} are not pinned: write pin = \"warn\" or \"refuse\" \
                 in its [[server]]"
            );
            return Err(ErrorObject::invalid_params(message));
        }
        let revision = self.upstreams.pins.get(name).map_or(0, |pins| pins.revision);
        if shown.is_some_and(|shown| shown != revision) {
            let message = format!(
                "the tools of the server {name:?} have changed since they were shown: look at the \
                 difference again"
            );
            return Err(ErrorObject::invalid_params(message));
        }
        let answer = self.written_changes(&server, revision);
        if shown.is_some() {
            self.approve_all(&server);
        }
        Ok((answer, shown.is_some()))
    }

    /// Approves every tool that differs, for all identities.
    fn approve_all(&mut self, server: &Arc<UpstreamServer>) {
        let name = &*server.name;
        let pins = self.upstreams.pins.entry(name.into()).or_default();
        let mut tools = pins.by.get(&None).map(|known| (**known).clone()).unwrap_or_default();
        let states = || self.upstreams.states(name, None).filter(|state| state.known[TOOLS]);
        for change in states().flat_map(|state| state.pins.changes.values()) {
            let texts = tools.entry(change.tool.clone()).or_default();
            texts.retain(|text| *text != change.after);
            texts.push(change.after.clone());
            texts.drain(..texts.len().saturating_sub(VARIANTS_MAX));
        }
        // A server cannot make the approvals grow by new names.
        if tools.len() > self.settings.limits.remote_list_max {
            let listed: BTreeSet<Box<str>> =
                states().flat_map(KnownServer::pinned_tools).map(|(name, _)| name).collect();
            tools.retain(|name, _| listed.contains(name));
        }
        self.keep_approval(server, None, tools);
        for audience in self.upstreams.audiences(name) {
            self.upstreams.apply_pins(name, audience.as_ref());
            self.note_changes(name, audience.as_ref());
            let clients = clients_of(self.outbox, server, audience.as_ref());
            if server.pin == Pin::Refuse && !clients.is_empty() {
                self.effect(GatewayEffect::Announce { topic: Topic::Tools, clients });
            }
        }
    }

    /// The tools of a server that differ, each once for all identities that were told the same.
    fn written_changes(&self, server: &UpstreamServer, revision: u64) -> String {
        let mut bytes = Vec::new();
        let mut json = Writer::new(&mut bytes);
        json.raw(",").member("server", &server.name).raw(",").member("pin", server.pin.as_str());
        json.raw(",\"revision\":").display(revision).raw(",\"changes\":[");
        let mut seen = BTreeSet::new();
        let states = self.upstreams.states(&server.name, None);
        for change in states.flat_map(|state| state.pins.changes.values()) {
            if !seen.insert((&change.tool, &change.before, &change.after)) {
                continue;
            }
            json.raw(if seen.len() == 1 { "{" } else { ",{" }).member("tool", &change.tool);
            if let Some(before) = &change.before {
                json.raw(",\"before\":").raw(before);
            }
            json.raw(",\"after\":").raw(&change.after).raw("}");
        }
        json.raw("]");
        String::from_utf8(bytes).unwrap_or_default()
    }
}
