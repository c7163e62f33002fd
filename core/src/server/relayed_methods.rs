//! Methods that servers behind this one have a part in: lists, and requests that reach one of them.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::engine::Engine;
use crate::ids::ConnId;
use crate::json::writer::Writer;
use crate::outbox::requests::Reply;
use crate::protocol::request_meta;
use crate::protocol::revision::Results;
use crate::provider::{OfferKind, UriVariables};
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::server::call_params::progress_token;
use crate::server::input_required::Retry;
use crate::upstream::awaited::AwaitedAnswer;
use crate::upstream::list::{LISTS, declares};
use crate::upstream::rewrite::{member, quoted, text_member};
use crate::upstream::server::Share;
use crate::upstream::table::Watcher;
use crate::upstream::targets::TARGETED;
use crate::upstream::watch::{HOST, SUBSCRIBE, UNSUBSCRIBE, tell_watcher};

/// Methods that sessions alone have: in the revision without them there are none of these names,
/// whatever a server behind has (MOD-07).
const OF_SESSIONS: [&str; 5] = ["initialize", "ping", "logging/setLevel", SUBSCRIBE, UNSUBSCRIBE];
/// Beginnings of the methods that are of this engine alone.
const OWN: [&str; 2] = ["ceased/", "tasks/"];

impl Engine {
    /// Answers a request that upstreams have a part in; hands it back where they have none.
    pub(crate) fn on_upstream_method(
        &mut self,
        reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
    ) -> Option<Reply> {
        let has_offers = !self.settings.provider.is_empty();
        if (self.upstreams.is_empty() && !has_offers) || OWN.iter().any(|it| method.starts_with(it))
        {
            return Some(reply);
        }
        if reply.dialect.results == Results::Typed && OF_SESSIONS.contains(&method) {
            return Some(reply);
        }
        if self.passes(&reply, method) {
            self.relay(reply, method, params);
            return None;
        }
        if let Some(at) = LISTS.iter().position(|list| list.method == method) {
            let cursor = params::find(params, ["cursor"]);
            match cursor {
                Ok([None]) => self.gateway().await_upstreams(reply, AwaitedAnswer::List(at)),
                Ok([Some(_)]) => {
                    let message = format!("unknown cursor: {method} has one page");
                    self.outbox.fail(reply, &ErrorObject::invalid_params(message));
                }
                Err(error) => self.outbox.fail(reply, &error),
            }
            return None;
        }
        let is_retry = self.is_retry(params);
        let reply = match has_offers && !is_retry {
            true => self.on_offer_method(reply, method, params)?,
            false => reply,
        };
        if [SUBSCRIBE, UNSUBSCRIBE].contains(&method) && reply.dialect.results == Results::Bare {
            let watch = self.gateway().on_watch(reply, method, params);
            if let Some((reply, tool, passed)) = watch {
                self.call_upstream_with(reply, tool, params, &passed);
            }
            return None;
        }
        let state = params::any_members(params).request_state;
        if let (Some(Ok(claim)), Some(state)) = (request_meta::of(params), state)
            && is_retry
        {
            let members = params::any_members(params);
            let progress_token = progress_token(members.meta.as_ref());
            let retry = Retry { state, responses: members.input_responses, progress_token };
            self.retry_call(reply, method, &claim, &retry);
            return None;
        }
        self.relay(reply, method, params);
        None
    }

    /// Relays a request to its server, or refuses it.
    fn relay(&mut self, reply: Reply, method: &str, params: Option<&Params<'_>>) {
        let text = params.map_or("{}", Params::get);
        let (servers, outbox) = (&self.upstreams, &self.outbox);
        let is_plain = servers.shown_through(outbox, reply.conn).is_some();
        let target = servers.target_of(outbox, method, text, reply.conn);
        match target.map(|target| target.request(is_plain, method, text)) {
            Some((tool, passed)) => self.call_upstream_with(reply, tool, params, &passed),
            None if !TARGETED.contains(&method) => self.outbox.unknown_method(reply, method),
            None => {
                let error = not_offered(&reply, method, text);
                self.outbox.fail(reply, &error);
            }
        }
    }

    /// A call whose params are wrong. The server that shows through judges a call that names no tool
    /// (UPS-17).
    pub(super) fn fail_call(
        &mut self,
        reply: Reply,
        params: Option<&Params<'_>>,
        error: &ErrorObject,
    ) {
        let read = params::members(params);
        let is_nameless =
            read.is_ok_and(|read| read.once(params::ALL).is_ok() && read.name.is_none());
        let is_plain = self.upstreams.shown_through(&self.outbox, reply.conn).is_some()
            && self.outbox.caller(reply.conn).is_unlimited();
        match is_nameless && is_plain {
            true => self.relay(reply, "tools/call", params),
            false => self.outbox.fail(reply, error),
        }
    }

    /// Whether the server that shows through judges a request itself: each page of its lists, and
    /// requests about a capability that it does not have (UPS-17). The list that is known answers
    /// while the server starts (UPS-09), where a process has room for few calls, and to a caller that
    /// sees a part of it.
    fn passes(&self, reply: &Reply, method: &str) -> bool {
        let Some(shown) = self.upstreams.shown_through(&self.outbox, reply.conn) else {
            return false;
        };
        let Some(at) = LISTS.iter().position(|list| list.method == method) else {
            return self.is_for_server(reply.conn, method);
        };
        let of = &shown.server;
        let runs = self.upstreams.has_session(&self.outbox, of, reply.conn);
        let is_whole = self.outbox.caller(reply.conn).is_unlimited();
        let has_room = of.share != Share::Call && of.max_calls.is_none();
        (runs || !shown.known[at]) && has_room && is_whole
    }

    /// Whether a request is about a capability that the server that shows through does not have.
    pub(crate) fn is_for_server(&self, conn: ConnId, method: &str) -> bool {
        let capability = match method {
            "logging/setLevel" => "logging",
            SUBSCRIBE | UNSUBSCRIBE => "resources",
            _ => return false,
        };
        let shown = self.upstreams.shown_through(&self.outbox, conn);
        let manifest = shown.and_then(|server| server.manifest.as_ref());
        manifest.is_some_and(|of| !declares(of.capabilities(), capability))
    }

    /// Whether a request brings the inputs that a call here waits for.
    fn is_retry(&self, params: Option<&Params<'_>>) -> bool {
        let state = params::any_members(params).request_state;
        matches!(request_meta::of(params), Some(Ok(_)))
            && state.is_some_and(|state| self.suspended.names_call(state))
    }
}

/// Error for a request that no server can be found for.
fn not_offered(reply: &Reply, method: &str, params: &str) -> ErrorObject {
    match text_member(params, "uri") {
        Some(uri) if method == "resources/read" => no_resource(reply, &uri),
        _ => {
            let message = format!("no server offers what this {method} names");
            ErrorObject::invalid_params(message)
        }
    }
}

/// Requests for prompts and resources of the host itself: each is a job, as a call of a tool is.
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
        self.upstreams.answer(&mut self.outbox, reply, |json| {
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
fn written(uri: &str, variables: &UriVariables<'_, '_>) -> String {
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
