//! Requests for prompts and resources of the host itself: each is a job, as a call of a tool is.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::engine::Engine;
use crate::ids::ConnId;
use crate::json::writer::Writer;
use crate::outbox::requests::Reply;
use crate::protocol::revision::Results;
use crate::provider::{HostOffer, OfferKind, Variables};
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::upstream::list::{PROMPTS, RESOURCES, TEMPLATES};
use crate::upstream::rewrite::{member, quoted, text_member};
use crate::upstream::table::Watcher;
use crate::upstream::watch::{SUBSCRIBE, UNSUBSCRIBE};

/// Name of the host in the table of watched resources; no server has it.
const HOST: &str = "";

impl Engine {
    /// Whether a connection sees the offers of the host: not beside those of the servers that it is
    /// limited to, nor of one that shows through.
    fn sees_offers(&self, conn: ConnId) -> bool {
        !self.settings.provider.is_empty()
            && self.outbox.scope_of(conn).is_none()
            && self.shown_through(conn).is_none()
    }

    /// Offers of a list that a connection sees.
    fn offers(&self, at: usize, conn: ConnId) -> impl Iterator<Item = &Arc<HostOffer>> {
        let kind = match at {
            PROMPTS => Some(OfferKind::Prompt),
            RESOURCES => Some(OfferKind::Resource),
            TEMPLATES => Some(OfferKind::Template),
            _ => None,
        };
        let kind = kind.filter(|_| self.sees_offers(conn));
        let peer = self.outbox.identity_of(conn);
        let all = self.settings.provider.iter();
        all.filter(move |offer| Some(offer.kind) == kind && offer.serve.allow.permits(&peer))
    }

    /// Elements of a list, separated by commas.
    pub(crate) fn offered_elements(&self, at: usize, conn: ConnId) -> String {
        let mut elements = String::new();
        for offer in self.offers(at, conn) {
            elements.push_str(if elements.is_empty() { "" } else { "," });
            elements.push_str(&offer.listed);
        }
        elements
    }

    /// Whether the host has offers for a capability of servers.
    pub(crate) fn has_offers(&self, capability: &str, conn: ConnId) -> bool {
        let any = |at| self.offers(at, conn).next().is_some();
        match capability {
            "prompts" => any(PROMPTS),
            "resources" => any(RESOURCES) || any(TEMPLATES),
            "completions" => [PROMPTS, TEMPLATES]
                .iter()
                .any(|at| self.offers(*at, conn).any(|offer| offer.complete.is_some())),
            _ => false,
        }
    }

    /// Whether the host has the resource of a request.
    pub(crate) fn offers_resource(&self, conn: ConnId, params: Option<&Params<'_>>) -> bool {
        let uri = params::find(params, ["uri"]).ok().and_then(|[uri]| uri?.string());
        self.sees_offers(conn)
            && uri.is_some_and(|uri| {
                self.settings.provider.resource(&uri, &self.outbox.identity_of(conn)).is_some()
            })
    }

    /// Begins a request for an offer of the host; hands a request for anything else back.
    pub(crate) fn on_offer_method(
        &mut self,
        reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
    ) -> Option<Reply> {
        if !self.sees_offers(reply.conn) {
            return Some(reply);
        }
        let text = params.map_or("{}", Params::get);
        let peer = self.outbox.identity_of(reply.conn);
        let settings = Arc::clone(&self.settings);
        let provider = &settings.provider;
        let (tool, arguments) = match method {
            "prompts/get" => {
                let Some(name) = text_member(text, "name") else { return Some(reply) };
                let Some(offer) = provider.offered(OfferKind::Prompt, &name, &peer) else {
                    return Some(reply);
                };
                let arguments = member(text, "arguments").filter(|text| text.starts_with('{'));
                (Arc::clone(&offer.serve), String::from(arguments.unwrap_or("{}")))
            }
            "resources/read" => {
                let Some(uri) = text_member(text, "uri") else { return Some(reply) };
                let Some((offer, variables)) = provider.resource(&uri, &peer) else {
                    return Some(reply);
                };
                (Arc::clone(&offer.serve), written(&uri, &variables))
            }
            "completion/complete" => {
                let Some(of) = member(text, "ref") else { return Some(reply) };
                let offer = match (text_member(of, "name"), text_member(of, "uri")) {
                    (Some(name), _) => provider.offered(OfferKind::Prompt, &name, &peer),
                    (None, Some(uri)) => provider.offered(OfferKind::Template, &uri, &peer),
                    (None, None) => None,
                };
                let Some(tool) = offer.and_then(|offer| offer.complete.clone()) else {
                    return Some(reply);
                };
                let argument = member(text, "argument").unwrap_or("{}");
                let context = member(text, "context").unwrap_or("{}");
                (tool, format!("{{\"argument\":{argument},\"context\":{context}}}"))
            }
            SUBSCRIBE | UNSUBSCRIBE if reply.dialect.results == Results::Bare => {
                let Some(uri) = text_member(text, "uri") else { return Some(reply) };
                if provider.resource(&uri, &peer).is_none() {
                    return Some(reply);
                }
                self.watch_offer(reply, method == SUBSCRIBE, &uri);
                return None;
            }
            _ => return Some(reply),
        };
        self.call_offer(reply, tool, params, arguments);
        None
    }

    fn watch_offer(&mut self, reply: Reply, begins: bool, uri: &str) {
        let max = self.settings.limits.subscriptions_max;
        if !begins {
            self.forget_watch(HOST, uri, &Watcher::session(reply.conn));
        } else if self.watches_of(reply.conn) >= max {
            let what = "resources are subscribed to on this connection: unsubscribe from some";
            return self.outbox.refuse(reply, "subscriptions_per_connection", max, what);
        } else {
            self.watch_of_host(uri, Watcher::session(reply.conn));
        }
        self.answer(reply, |json| {
            json.raw("{}");
        });
    }

    /// Whether the host has a resource of this URI for a connection.
    pub(crate) fn has_offer(&self, conn: ConnId, uri: &str) -> bool {
        let peer = self.outbox.identity_of(conn);
        self.sees_offers(conn) && self.settings.provider.resource(uri, &peer).is_some()
    }

    /// Notes that a resource of the host is watched.
    pub(crate) fn watch_of_host(&mut self, uri: &str, watcher: Watcher) {
        self.note_watcher((HOST.into(), uri.into()), watcher, uri.into());
    }

    /// A resource of the host has another content now: the clients that are subscribed to it are
    /// told, and no other.
    pub(crate) fn on_resource_updated(&mut self, uri: &str) {
        let watched = self.upstreams.watched.get(&(HOST.into(), Box::from(uri)));
        let watchers: Vec<Watcher> = watched.iter().flat_map(|of| of.keys().cloned()).collect();
        let params = format!("{{\"uri\":{}}}", quoted(uri));
        for watcher in watchers {
            self.tell_watcher(&watcher, &params);
        }
    }
}

/// Arguments of the work behind a resource.
fn written(uri: &str, variables: &Variables<'_, '_>) -> String {
    let mut bytes = Vec::new();
    let mut json = Writer::new(&mut bytes);
    json.raw("{").member("uri", uri).raw(",\"variables\":{");
    for (position, (name, value)) in variables.iter().enumerate() {
        json.raw(if position == 0 { "" } else { "," }).string(name).raw(":").string(value);
    }
    json.raw("}}");
    String::from_utf8(bytes).unwrap_or_default()
}

/// Error for a resource that there is not.
pub(crate) fn no_resource(reply: &Reply, uri: &str) -> ErrorObject {
    let code = match reply.dialect.results {
        Results::Bare => code::RESOURCE_NOT_FOUND,
        Results::Typed => code::INVALID_PARAMS,
    };
    let data = format!("{{\"uri\":{}}}", quoted(uri));
    ErrorObject::new(code, "there is no such resource").with_data(data)
}
