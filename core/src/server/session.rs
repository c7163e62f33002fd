//! Sessions: connecting, initialize, and which method goes where.

use crate::action::OperatorOrder;
use crate::connection::{Counterpart, SessionPhase};
use crate::engine::Engine;
use crate::identity::Identity;
use crate::ids::ConnId;
use crate::json::raw::Raw;
use crate::log_level::LogLevel;
use crate::outbox::Sender;
use crate::outbox::requests::{Reply, TaskMethod};
use crate::outbox::typed_result::server_info;
use crate::policy::access::Item;
use crate::protocol::capabilities::PeerCapabilities;
use crate::protocol::request_meta;
use crate::protocol::revision::{Dialect, Methods, Results, TaskRules};
use crate::protocol::role::{Declared, OfferedMethod, Side};
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::server::held_bytes::{affordable, as_claimed, keep_description};
use crate::server::rate::{self, rated};
use crate::server::stateless;
use crate::upstream::questions::passed_capabilities;

impl Engine {
    pub(crate) fn on_request(&mut self, reply: Reply, method: &str, params: Option<&Params<'_>>) {
        self.outbox.counters_mut().requests += 1;
        let Some(connection) = self.outbox.connection_mut(reply.conn) else {
            return self.outbox.forget(reply);
        };
        connection.requests_made += 1;
        connection.last_request = self.now.at;
        // RPC-02: the first request with this id is not touched.
        if connection.requests.contains(&reply.id) {
            let message =
                self.outbox.clean(&alloc::format!("the id {} is still in flight", reply.id));
            return self.outbox.fail(reply, &ErrorObject::new(code::INVALID_REQUEST, message));
        }
        if connection.send_queue.len() >= self.settings.limits.write_buffer_bytes {
            let reply = as_claimed(reply, params);
            return self.outbox.refuse(
                reply,
                "write_buffer_bytes",
                self.settings.limits.write_buffer_bytes,
                "bytes wait unread on this connection: read them first",
            );
        }
        let methods = connection.dialect.methods;
        let Some(reply) = affordable(&mut self.outbox, reply, method, params) else { return };
        let Some(connection) = self.outbox.connection(reply.conn) else {
            return self.outbox.forget(reply);
        };
        match methods {
            Methods::Services => return self.on_service_request(reply, method, params),
            Methods::Tools => {}
        }
        let (phase, counterpart) = (connection.phase, connection.counterpart());
        let declared = match &connection.side {
            Side::Client(side) => Some(side.declared),
            Side::Server => None,
        };
        let reply = if rate::is_rated(method) {
            rated(&mut self.task_ops, &mut self.outbox, reply, params)
        } else {
            Some(reply)
        };
        let Some(reply) = reply else { return };
        if matches!(counterpart, Counterpart::Instance(_)) {
            return self.gateway().on_request_of_upstream(reply, method, params);
        }
        if let Some(declared) = declared {
            return self.on_request_of_server(reply, method, params, declared);
        }
        if phase == SessionPhase::Ready && method != "ping" {
            self.release_early(reply.conn);
        }
        match request_meta::of(params) {
            None => self.on_session_request(reply, phase, method, params),
            Some(claim) => self.on_modern_request(reply, method, params, claim),
        }
    }

    /// A request of a session, or before one.
    fn on_session_request(
        &mut self,
        reply: Reply,
        phase: SessionPhase,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        let tasks = reply.dialect.tasks;
        match (method, phase) {
            ("ping", _) => self.upstreams.answer(&mut self.outbox, reply, |json| {
                json.raw("{}");
            }),
            ("initialize", SessionPhase::Fresh) if reply.batch.is_none() => {
                self.initialize(reply, params);
            }
            ("initialize", SessionPhase::Fresh) => {
                self.outbox.invalid_request(reply, "initialize cannot be part of a batch");
            }
            // RPC-04
            ("initialize", SessionPhase::Ready) => {
                self.outbox.invalid_request(reply, "this session is initialized already");
            }
            ("ceased/scope", SessionPhase::Fresh) => self.narrow(reply, params),
            ("ceased/agent", SessionPhase::Fresh) => self.supervisor().attach_agent(reply, params),
            ("server/discover" | "subscriptions/listen" | "tasks/update", SessionPhase::Fresh) => {
                self.outbox.fail(reply, &request_meta::missing("protocolVersion", "a string"));
            }
            (_, SessionPhase::Fresh) => {
                self.outbox
                    .invalid_request(reply, "this session is not initialized: initialize first");
            }
            (_, SessionPhase::Ready) if self.drain.is_some() => {
                let message = "the daemon is shutting down";
                self.outbox.fail(reply, &ErrorObject::new(code::SHUTTING_DOWN, message));
            }
            ("tools/list", SessionPhase::Ready) if self.upstreams.is_empty() => {
                self.list_tools(reply, params);
            }
            ("tools/call", SessionPhase::Ready) => self.call_tool(reply, params, None, &mut None),
            ("logging/setLevel", SessionPhase::Ready)
                if !self.is_for_server(reply.conn, method) =>
            {
                self.set_log_level(reply, params);
            }
            ("ceased/status", SessionPhase::Ready) => self.report_status(reply, params),
            ("ceased/cancel", SessionPhase::Ready) => self.cancel_any_job(reply, params),
            ("ceased/run", SessionPhase::Ready) => self.run_command(reply, params),
            (_, SessionPhase::Ready) if self.is_for_outputs(reply.conn, method, params) => {
                self.read_outputs(reply, method, params);
            }
            ("ceased/reload", SessionPhase::Ready) => self.operate(reply, OperatorOrder::Reload),
            ("ceased/restart", SessionPhase::Ready) => self.restart_server(reply, params),
            ("ceased/drain", SessionPhase::Ready) => self.operate(reply, OperatorOrder::Drain),
            ("ceased/approve", SessionPhase::Ready) => self.approve_tools(reply, params),
            ("ceased/shutdown", SessionPhase::Ready) => {
                self.operate(reply, OperatorOrder::ShutDown);
            }
            (_, SessionPhase::Ready) => {
                let about = TaskMethod::of_session(method).filter(|_| tasks == TaskRules::Core);
                if let Some(about) = about {
                    self.task_machine().about_tasks(reply, about, params);
                } else if let Some(reply) = self.on_upstream_method(reply, method, params) {
                    self.outbox.unknown_method(reply, method);
                }
            }
        }
    }

    /// A request of a server whose client this engine is.
    fn on_request_of_server(
        &mut self,
        reply: Reply,
        method: &str,
        params: Option<&Params<'_>>,
        declared: Declared,
    ) {
        let Some(connection) = self.outbox.connection(reply.conn) else {
            return self.outbox.forget(reply);
        };
        let core = connection.dialect.tasks == TaskRules::Core;
        let tasks = core && declared.tasks();
        match (method, connection.phase) {
            ("ping", _) => self.upstreams.answer(&mut self.outbox, reply, |json| {
                json.raw("{}");
            }),
            (_, SessionPhase::Fresh) => {
                let message = "this session is not initialized: answer initialize first";
                self.outbox.fail(reply, &ErrorObject::new(code::INVALID_REQUEST, message));
            }
            (_, SessionPhase::Ready) if self.drain.is_some() => {
                self.outbox.fail(reply, &crate::jobs::result::shutting_down());
            }
            (_, SessionPhase::Ready) => {
                match (TaskMethod::of_session(method).filter(|_| tasks), declared.offer(method)) {
                    (Some(about), _) => self.task_machine().about_tasks(reply, about, params),
                    (None, OfferedMethod::Undeclared) => self.outbox.unknown_method(reply, method),
                    (None, OfferedMethod::Plain) => self.call_service(reply, method, params, false),
                    (None, OfferedMethod::Tasks) => self.call_service(reply, method, params, core),
                }
            }
        }
    }

    pub(crate) fn on_notification(
        &mut self,
        sender: Sender,
        method: &str,
        params: Option<&Params<'_>>,
    ) {
        let Sender { conn, counterpart, dialect } = sender;
        if dialect.methods == Methods::Services {
            self.on_service_notification(conn, method, params);
        } else if method == "notifications/progress" {
            self.outgoing().on_peer_progress(conn, params);
        } else if method == "notifications/tasks/status" {
            self.outgoing().on_status_hint(conn, params);
            self.pass_on(conn, method, params);
        } else if let Counterpart::Instance(id) = counterpart {
            self.gateway().on_notification(sender, id, method, params);
        } else if method == dialect.cancel_method {
            self.on_cancelled(conn, params);
        } else if method == "notifications/tools/list_changed" {
            self.outbox.forget_tools(conn);
        } else if method == "notifications/initialized" {
            self.release_early(conn);
        } else if method == "notifications/roots/list_changed" {
            self.gateway().on_roots_changed(conn);
        } else {
            // Every other notification has another receiver.
            self.pass_on(conn, method, params);
        }
    }

    /// A notification for the server that shows through.
    fn pass_on(&mut self, conn: ConnId, method: &str, params: Option<&Params<'_>>) {
        if !self.upstreams.is_empty() {
            self.gateway().pass_to_server(conn, method, params);
        }
    }

    #[inline(never)]
    fn initialize(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let read = params::find(params, ["protocolVersion", "capabilities", "clientInfo"])
            .and_then(|[version, able, info]| {
                Ok((params::text("protocolVersion", version)?, able, info))
            });
        let (version, capabilities, info) = match read {
            Ok(read) => read,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let Some(connection) = self.outbox.connection_mut(reply.conn) else { return };
        let dialect = Dialect::negotiate(&version);
        connection.dialect = dialect;
        connection.unreadable_id = dialect.unreadable_id;
        connection.phase = SessionPhase::Ready;
        connection.peer = PeerCapabilities::read(capabilities, dialect);
        if self.upstreams.is_empty() {
            return self.answer_initialize(reply);
        }
        let declared = capabilities.and_then(|said| passed_capabilities(said.get()));
        keep_description(&mut self.outbox, reply.conn, declared, info.map(Raw::get));
        self.gateway().begin_session(reply);
    }

    /// `ceased/scope`: limits a connection to some servers or a profile, before its handshake.
    fn narrow(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        match self.upstreams.narrow(&mut self.outbox, reply.conn, params) {
            Ok(()) => self.upstreams.answer(&mut self.outbox, reply, |json| {
                json.raw("{}");
            }),
            Err(error) => self.outbox.fail(reply, &error),
        }
    }

    /// A client is initialized: it gets the messages of servers that were held for it.
    fn release_early(&mut self, conn: ConnId) {
        if self.upstreams.early.contains_key(&conn) {
            self.gateway().release_early(conn);
        }
    }

    /// Answers `initialize` in the dialect of its connection.
    pub(crate) fn answer_initialize(&mut self, reply: Reply) {
        let Some(connection) = self.outbox.connection(reply.conn) else { return };
        let dialect = connection.dialect;
        // TSK-40: without an identity a list would show the tasks of all peers to all peers.
        let lists = connection.identity != Identity::Anonymous;
        let us = server_info(&self.settings.server, dialect.tool_members);
        let shown = self.upstreams.shown_identity(&self.outbox, reply.conn);
        let others = self.upstreams.offered_capabilities(&self.outbox, reply.conn, false);
        let settings = alloc::sync::Arc::clone(&self.settings);
        self.upstreams.answer(&mut self.outbox, reply, |json| {
            json.raw("{").member("protocolVersion", dialect.revision).raw(",\"capabilities\":");
            let tasks = match (dialect.tasks, lists) {
                (TaskRules::None | TaskRules::Extension, _) => None,
                // TSK-01
                (TaskRules::Core, true) => {
                    Some(r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#)
                }
                (TaskRules::Core, false) => {
                    Some(r#"{"cancel":{},"requests":{"tools":{"call":{}}}}"#)
                }
            };
            if let Some(shown) = &shown {
                json.raw(&shown.capabilities_with(tasks.map(|tasks| ("tasks", tasks))));
            } else {
                json.raw("{\"logging\":{},\"tools\":{\"listChanged\":true}").raw(&others);
                if let Some(tasks) = tasks {
                    json.raw(",\"tasks\":").raw(tasks);
                }
                json.raw("}");
            }
            json.raw(",\"serverInfo\":");
            match shown.as_ref().and_then(|shown| shown.info.as_deref()) {
                Some(info) => json.raw(info),
                None => json.bytes(&us),
            };
            if let Some(shown) = &shown {
                json.raw(&shown.others);
            } else if let Some(instructions) = &settings.server.instructions {
                json.raw(",").member("instructions", instructions);
            }
            json.raw("}");
        });
    }

    fn set_log_level(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let word = match params::find(params, ["level"])
            .and_then(|[level]| params::text("level", level))
        {
            Ok(word) => word,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let Some(level) = LogLevel::ALL.iter().find(|level| level.as_str() == word) else {
            let message = alloc::format!("there is no log level {:?}", self.outbox.clean(&word));
            return self.outbox.fail(reply, &ErrorObject::invalid_params(message));
        };
        if let Some(connection) = self.outbox.connection_mut(reply.conn) {
            connection.log_level = *level;
        }
        self.gateway().relay_log_level(reply.conn, *level);
        self.upstreams.answer(&mut self.outbox, reply, |json| {
            json.raw("{}");
        });
    }

    pub(crate) fn list_tools(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let [cursor] = match params::find(params, ["cursor"]) {
            Ok(members) => members,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        if cursor.is_some() {
            let message = "unknown cursor: tools/list has one page";
            return self.outbox.fail(reply, &ErrorObject::invalid_params(message));
        }
        let (dialect, settings) = (reply.dialect, alloc::sync::Arc::clone(&self.settings));
        let caller = self.outbox.caller(reply.conn);
        let list = settings.catalog.list(dialect.tool_members, |it| caller.sees(Item::Tool(it)));
        self.upstreams.answer(&mut self.outbox, reply, |json| {
            match dialect.results {
                Results::Bare => json.raw("{"),
                Results::Typed if settings.is_public() => {
                    json.raw("{").raw(stateless::CACHEABLE).raw(",")
                }
                Results::Typed => json.raw("{").raw(stateless::CACHEABLE_BY_ONE).raw(","),
            };
            json.bytes(&list);
        });
    }
}
