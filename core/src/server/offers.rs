//! Requests for prompts and resources of the host itself: each is a job, as a call of a tool is.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::engine::Engine;
use crate::ids::ConnId;
use crate::json::writer::Writer;
use crate::outbox::requests::Reply;
use crate::protocol::revision::Results;
use crate::provider::{OfferKind, Variables};
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::upstream::rewrite::{member, quoted, text_member};
use crate::upstream::table::Watcher;
use crate::upstream::watch::{HOST, SUBSCRIBE, UNSUBSCRIBE, tell_watcher};

impl Engine {
    /// Whether the host has the resource of a request.
    pub(crate) fn offers_resource(&self, conn: ConnId, params: Option<&Params<'_>>) -> bool {
        let uri = params::find(params, ["uri"]).ok().and_then(|[uri]| uri?.string());
        uri.is_some_and(|uri| self.upstreams.has_offer(&self.outbox, conn, &uri))
    }

    /// Begins a request for an offer of the host; hands a request for anything else back.
    pub(crate) fn on_offer_method(
        &mut self,
        reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
    ) -> Option<Reply> {
        if !self.upstreams.sees_offers(&self.outbox, reply.conn) {
            return Some(reply);
        }
        let text = params.map_or("{}", Params::get);
        let caller = self.outbox.caller(reply.conn);
        let settings = Arc::clone(&self.settings);
        let provider = &settings.provider;
        let (tool, arguments) = match method {
            "prompts/get" => {
                let Some(name) = text_member(text, "name") else { return Some(reply) };
                let Some(offer) = provider.offered(OfferKind::Prompt, &name, &caller) else {
                    return Some(reply);
                };
                let arguments = member(text, "arguments").filter(|text| text.starts_with('{'));
                (Arc::clone(&offer.serve), String::from(arguments.unwrap_or("{}")))
            }
            "resources/read" => {
                let Some(uri) = text_member(text, "uri") else { return Some(reply) };
                let Some((offer, variables)) = provider.resource(&uri, &caller) else {
                    return Some(reply);
                };
                (Arc::clone(&offer.serve), written(&uri, &variables))
            }
            "completion/complete" => {
                let Some(of) = member(text, "ref") else { return Some(reply) };
                let offer = match (text_member(of, "name"), text_member(of, "uri")) {
                    (Some(name), _) => provider.offered(OfferKind::Prompt, &name, &caller),
                    (None, Some(uri)) => provider.offered(OfferKind::Template, &uri, &caller),
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
                if provider.resource(&uri, &caller).is_none() {
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
            self.upstreams.forget_watch(HOST, uri, &Watcher::session(reply.conn));
        } else if self.upstreams.watches_of(reply.conn) >= max {
            let what = "resources are subscribed to on this connection: unsubscribe from some";
            return self.outbox.refuse(reply, "subscriptions_per_connection", max, what);
        } else {
            self.upstreams.watch_of_host(&self.outbox, uri, Watcher::session(reply.conn));
        }
        self.answer(reply, |json| {
            json.raw("{}");
        });
    }

    /// A resource of the host has another content now: the clients that are subscribed to it are
    /// told, and no other.
    pub(crate) fn on_resource_updated(&mut self, uri: &str) {
        let params = format!("{{\"uri\":{}}}", quoted(uri));
        for watcher in self.upstreams.watchers_of(HOST, uri) {
            tell_watcher(&mut self.outbox, &watcher, &params);
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
