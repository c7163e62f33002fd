//! Requests of the revision without sessions: each names its revision and its client's capabilities
//! (MOD-01).

use alloc::string::String;
use alloc::vec::Vec;

use crate::action::OperatorOrder;
use crate::connection::{Connection, SessionPhase};
use crate::engine::Engine;
use crate::json::meta::CLIENT_INFO;
use crate::json::raw::{Json, Raw};
use crate::json::writer::Writer;
use crate::outbox::requests::{Reply, TaskMethod};
use crate::protocol::request_meta::{self, RequestMeta};
use crate::protocol::revision;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Members, Params};
use crate::server::held_bytes::keep_description;
use crate::tasks::durable::ClaimedKey;
use crate::upstream::awaited::AwaitedAnswer;
use crate::upstream::questions::passed_capabilities;
use crate::upstream::rewrite::member;

/// Time and scope for which a client may cache `server/discover` and `tools/list`: an
/// operator's reload changes it, which a subscription tells, and it is the same for all clients.
pub(crate) const CACHEABLE: &str = "\"ttlMs\":60000,\"cacheScope\":\"public\"";
/// The same for an answer that differs between clients.
pub(crate) const CACHEABLE_BY_ONE: &str = "\"ttlMs\":60000,\"cacheScope\":\"private\"";
/// The time of both, in milliseconds.
pub(crate) const TTL_MS: u64 = 60_000;

/// The members of a result that may be cached for so many milliseconds.
pub(crate) fn cacheable(ttl_ms: u64, is_public: bool) -> String {
    let scope = if is_public { "public" } else { "private" };
    alloc::format!("\"ttlMs\":{ttl_ms},\"cacheScope\":\"{scope}\"")
}

impl Engine {
    /// A request that makes a claim; an error when the claim cannot be served.
    pub(crate) fn on_modern_request(
        &mut self,
        mut reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
        claim: Result<RequestMeta, ErrorObject>,
    ) {
        reply.dialect = &revision::MCP_2026_07_28;
        self.note_dialect(&reply);
        let claim = match claim {
            Ok(claim) => claim,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        reply.dialect = claim.dialect;
        // A look at the daemon is no reason to start servers.
        if !method.starts_with("ceased/") {
            self.note_capabilities(&reply, params, &claim);
        }
        if reply.batch.is_some() {
            return self
                .outbox
                .invalid_request(reply, "this revision has no batches: one message a line");
        }
        if self.drain.is_some() {
            let message = "the daemon is shutting down";
            return self.outbox.fail(reply, &ErrorObject::new(code::SHUTTING_DOWN, message));
        }
        match method {
            "server/discover"
                if self.upstreams.shown_through(&self.outbox, reply.conn).is_some() =>
            {
                self.gateway().await_upstreams(reply, AwaitedAnswer::Discover);
            }
            "server/discover" => self.discover(reply),
            "tools/list" if self.upstreams.is_empty() => self.list_tools(reply, params),
            "tools/call" => self.call_tool(reply, params, Some(&claim), &mut None),
            "subscriptions/listen" => self.listen(reply, params, &claim),
            "ceased/status" => self.report_status(reply, params),
            "ceased/cancel" => self.cancel_any_job(reply, params),
            _ if self.is_for_outputs(reply.conn, method, params) => {
                self.read_outputs(reply, method, params);
            }
            "ceased/reload" => self.operate(reply, OperatorOrder::Reload),
            "ceased/restart" => self.restart_server(reply, params),
            "ceased/drain" => self.operate(reply, OperatorOrder::Drain),
            "ceased/approve" => self.approve_tools(reply, params),
            "ceased/shutdown" => self.operate(reply, OperatorOrder::ShutDown),
            "tasks/get" | "tasks/update" | "tasks/cancel" if !claim.tasks => {
                self.outbox.fail(reply, &missing_tasks("the task methods"));
            }
            "tasks/get" => {
                self.task_machine().about_tasks(reply, TaskMethod::Detailed(claim.peer), params);
            }
            "tasks/update" => self.task_machine().about_tasks(reply, TaskMethod::Update, params),
            "tasks/cancel" => self.task_machine().about_tasks(reply, TaskMethod::Cancel, params),
            // MOD-07: also capabilities of sessions alone.
            _ => {
                if let Some(reply) = self.on_upstream_method(reply, method, params) {
                    self.outbox.unknown_method(reply, method);
                }
            }
        }
    }

    /// Carries out a call or a subscription that has waited for the table which several engines share.
    pub(crate) fn go_on_with(
        &mut self,
        reply: Reply,
        method: TaskMethod,
        params: &str,
        granted: &mut Option<ClaimedKey>,
    ) {
        if method == TaskMethod::Listen {
            return self.listen_after(reply, params);
        }
        let mut members = Members::default();
        members.read(params, 0, self.settings.limits.depth_max);
        let params = Params::seen(Raw::checked(params), &members);
        let claim = request_meta::of(Some(&params)).and_then(Result::ok);
        self.call_tool(reply, Some(&params), claim.as_ref(), granted);
    }

    /// An unreadable frame on a connection without a session is refused in the form of the
    /// revision that is spoken there.
    fn note_dialect(&mut self, reply: &Reply) {
        if let Some(connection) = self.outbox.connection_mut(reply.conn)
            && connection.phase == SessionPhase::Fresh
        {
            connection.unreadable_id = reply.dialect.unreadable_id;
        }
    }

    /// Servers behind us with sessions are told the declarations of the latest request (UPS-12).
    fn note_capabilities(
        &mut self,
        reply: &Reply,
        params: Option<&Params<'_>>,
        claim: &RequestMeta,
    ) {
        if self.upstreams.is_empty() {
            return;
        }
        let meta = params::any_members(params).meta.as_ref();
        let said = meta.and_then(|meta| meta.capabilities).map_or("{}", Raw::get);
        if let Some(connection) = self.outbox.connection_mut(reply.conn)
            && connection.phase == SessionPhase::Fresh
        {
            connection.peer = claim.peer;
            let declared = passed_capabilities(said);
            let claimed = params.and_then(|params| member(params.get(), "_meta"));
            let info = claimed.and_then(|meta| member(meta, CLIENT_INFO));
            let aside = &connection.aside;
            let is_known = aside.declared.as_deref() == declared.as_deref()
                && aside.client_info.as_deref() == info;
            if !is_known {
                keep_description(&mut self.outbox, reply.conn, declared, info);
            }
        }
        let is_first =
            |peer: &Connection| peer.requests_made == 1 && peer.phase == SessionPhase::Fresh;
        if self.outbox.connection(reply.conn).is_some_and(is_first) {
            self.gateway().start_eager_for(reply.conn);
        }
    }

    /// MOD-02
    pub(crate) fn discover(&mut self, reply: Reply) {
        let mut result = Vec::new();
        let mut json = Writer::new(&mut result);
        json.raw("{\"supportedVersions\":");
        request_meta::write_supported(&mut json);
        json.raw(",\"capabilities\":");
        if let Some(shown) = self.upstreams.shown_identity(&self.outbox, reply.conn) {
            json.raw(&shown.capabilities_with_extension()).raw(&shown.others);
            json.raw(",").raw(shown.freshness.as_deref().unwrap_or(CACHEABLE)).raw("}");
        } else {
            json.raw("{\"logging\":{},\"tools\":{\"listChanged\":true}");
            json.raw(&self.upstreams.offered_capabilities(&self.outbox, reply.conn, true));
            json.raw("},");
            if let Some(instructions) = &self.settings.server.instructions {
                json.member("instructions", instructions).raw(",");
            }
            json.raw(CACHEABLE).raw("}");
        }
        let result = Json::written(String::from_utf8(result).unwrap_or_default());
        self.upstreams.answer_with_tool_result(&mut self.outbox, reply, &result);
    }
}

/// Error for a request that needs the tasks extension and did not declare it (EXT-01).
pub(crate) fn missing_tasks(what: &str) -> ErrorObject {
    let message = alloc::format!(
        "{what} needs the client capability extensions[\"io.modelcontextprotocol/tasks\"]"
    );
    let data = r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
    ErrorObject::new(code::MISSING_CAPABILITY, message).with_data(String::from(data))
}
