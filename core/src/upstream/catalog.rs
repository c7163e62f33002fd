//! Offers of a server to clients: its tools under their prefixed names.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::protocol::revision::MCP_2026_07_28;
use crate::tool::{StopPolicy, TaskSupport, Tool};
use crate::upstream::approval::{Pins, is_read_as, key_of};
use crate::upstream::list::{LISTS, TOOLS};
use crate::upstream::manifest::Manifest;
use crate::upstream::mirror::mirrors;
use crate::upstream::reading::ListRead;
use crate::upstream::rewrite::{
    elements, member, members, quoted, text_member, with_member, without,
};
use crate::upstream::route::Route;
use crate::upstream::server::{Pin, UpstreamServer};
use crate::upstream::server_counts::ServerCounts;
use crate::upstream::spoken::SpokenEra;
use crate::upstream::table::KnownServer;
use crate::upstream::warnings::Warnings;

/// Longest name of a tool that clients are shown (UPS-11).
const NAME_MAX: usize = 128;

impl KnownServer {
    pub(crate) fn new(server: Arc<UpstreamServer>) -> Self {
        let mut new = Self {
            manifest: None,
            tools: Default::default(),
            support: Default::default(),
            mirrors: Default::default(),
            unfit: Default::default(),
            listed: Vec::new(),
            pins: Pins::default(),
            known: Default::default(),
            warnings: Warnings::default(),
            is_unsaved: false,
            is_verified: false,
            era: None,
            calls_in: SpokenEra::Modern,
            failures: 0,
            not_before: crate::time::Instant::ZERO,
            failure: None,
            waiting: Default::default(),
            counts: ServerCounts::default(),
            server,
        };
        if let Some(manifest) = new.server.manifest.clone() {
            new.take_manifest(manifest);
        }
        new
    }

    /// A tool whose calls are relayed to the server.
    pub(crate) fn relayed(
        &self,
        shown: &str,
        method: &str,
        name: &str,
        task_support: TaskSupport,
    ) -> Tool {
        let server = &self.server;
        let (method, name) = (method.into(), name.into());
        let places = server.places;
        let route = Route { server: server.name.clone(), places, method, name, own: None };
        Tool {
            task_support,
            timeout: server.timeout,
            heartbeat: server.heartbeat,
            allow: server.allow.clone(),
            route: Some(Arc::new(route)),
            payload: server.payload.clone(),
            ..Tool::new(shown, StopPolicy::Relay)
        }
    }

    /// Replaces everything that is known of the server.
    pub(crate) fn take_manifest(&mut self, manifest: Manifest) {
        self.manifest = Some(manifest);
        self.known = [true; LISTS.len()];
        self.offer_tools();
    }

    /// Replaces the description of the server.
    pub(crate) fn take_identity(&mut self, revision: &str, identity: &str) {
        let manifest = self.manifest.get_or_insert_default();
        if (&*manifest.revision, &*manifest.identity) != (revision, identity) {
            (manifest.revision, manifest.identity) = (revision.into(), identity.into());
            self.is_unsaved = true;
            self.offer_tools();
        }
    }

    /// Replaces one list of the server. Returns whether its elements are others.
    pub(crate) fn take_list(&mut self, at: usize, read: ListRead) -> bool {
        let manifest = self.manifest.get_or_insert_default();
        if let Some(before) = manifest.freshness.get_mut(at) {
            self.is_unsaved |= *before != read.freshness;
            *before = read.freshness;
        }
        let elements = (LISTS[at].elements)(manifest);
        let has_changed = *elements != read.elements;
        self.is_unsaved |= has_changed || !self.known[at];
        self.known[at] = true;
        *elements = read.elements;
        if has_changed && at == TOOLS {
            self.offer_tools();
        }
        has_changed
    }

    pub(super) fn offer_tools(&mut self) {
        let Some(manifest) = self.manifest.take() else { return };
        self.pins.changes.clear();
        self.tools.clear();
        self.support.clear();
        self.mirrors.clear();
        self.unfit.clear();
        self.listed.clear();
        let has_headers = self.server.is_remote && *manifest.revision == *MCP_2026_07_28.revision;
        for element in &manifest.tools {
            let Some(name) = text_member(element, "name") else { continue };
            if !self.server.filter.offers(&name) {
                continue;
            }
            let shown = alloc::format!("{}{name}", self.server.prefix);
            let is_new = !self.tools.contains_key(&*shown);
            if shown.len() > NAME_MAX && !self.server.prefix.is_empty() || !is_new {
                continue;
            }
            if has_headers {
                match mirrors(element) {
                    Ok(none) if none.is_empty() => {}
                    Ok(some) => _ = self.mirrors.insert(name.clone(), some),
                    Err(why) => {
                        self.unfit.insert(name, why.into());
                        continue;
                    }
                }
            }
            let said = declared(element);
            if said != TaskSupport::Forbidden {
                self.support.insert(name.clone(), said);
            }
            let (own, support) = self.with_support(element);
            let listed: Box<str> = match self.server.prefix.is_empty() {
                true => own.into(),
                false => with_member(&own, "name", &quoted(&shown)).into(),
            };
            let tool = self.relayed(&shown, "tools/call", &name, support);
            if let Some(change) = self.pins.change_of(&name, element) {
                self.pins.changes.insert(name.clone(), change);
            }
            // UPS-19: the text of a tool that is not approved reaches no model.
            if !self.pin_hides(&name, element) {
                self.listed.push(listed);
            }
            self.tools.insert(shown.into(), Arc::new(tool));
        }
        self.manifest = Some(manifest);
    }

    /// An element of `tools/list` with the task support that the tool has behind this engine.
    fn with_support<'a>(&self, element: &'a str) -> (Cow<'a, str>, TaskSupport) {
        let said = declared(element);
        match self.server.task_support.filter(|support| *support != said) {
            Some(support) => {
                let word = alloc::format!("{{\"taskSupport\":\"{}\"}}", support.as_str());
                (Cow::Owned(with_member(element, "execution", &word)), support)
            }
            None => (Cow::Borrowed(element), said),
        }
    }

    /// A page of `tools/list` as clients see it through which the server shows: as it is, but for
    /// tools that are hidden or run as tasks (UPS-17).
    pub(crate) fn shown_page<'a>(&self, page: &'a str) -> Cow<'a, str> {
        let filter = &self.server.filter;
        let is_refused = self.server.pin == Pin::Refuse;
        let is_whole = filter.only.is_empty()
            && filter.hide.is_empty()
            && self.unfit.is_empty()
            && !is_refused;
        let Some(tools) = member(page, "tools") else { return Cow::Borrowed(page) };
        if is_whole && self.server.task_support.is_none() {
            return Cow::Borrowed(page);
        }
        let is_fit = |name: &str| filter.offers(name) && !self.unfit.contains_key(name);
        let offered = |tool: &&str| {
            // UPS-19: a tool without a name is no tool that was approved.
            let name = text_member(tool, "name");
            name.map_or(!is_refused, |it| is_fit(&it) && !self.pin_hides(&it, tool))
        };
        let kept = elements(tools).into_iter().filter(offered);
        let kept: Vec<Cow<'_, str>> = kept.map(|tool| self.with_support(tool).0).collect();
        let page = match is_refused {
            true => without_lookalikes(page),
            false => Cow::Borrowed(page),
        };
        Cow::Owned(with_member(&page, "tools", &alloc::format!("[{}]", kept.join(","))))
    }
}

/// A page without members that some reader takes for its tools.
fn without_lookalikes(page: &str) -> Cow<'_, str> {
    let is_it = |name: &&str| {
        let key = key_of(name);
        &*key != "tools" && is_read_as(&key, "tools")
    };
    let names: Vec<&str> = members(page).into_iter().map(|(name, _)| name).filter(is_it).collect();
    match names.is_empty() {
        true => Cow::Borrowed(page),
        false => Cow::Owned(without(page, &names)),
    }
}

/// Task support that a tool declares in its list.
fn declared(element: &str) -> TaskSupport {
    let word = member(element, "execution").and_then(|said| text_member(said, "taskSupport"));
    match word.as_deref() {
        Some("optional") => TaskSupport::Optional,
        Some("required") => TaskSupport::Required,
        Some(_) | None => TaskSupport::Forbidden,
    }
}
