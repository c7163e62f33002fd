//! Client side of a session: initialize, permitted requests to a server, requests of a server.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::collections::timer_queue::TimerQueue;
use crate::connection::{Connection, SessionPhase};
use crate::identity::Identity;
use crate::ids::ConnId;
use crate::json::raw::Raw;
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::outgoing::OutgoingRequests;
use crate::outgoing::call::{Answer, CallCause, CallFor, Caller, OutgoingRequest, Refusal};
use crate::protocol::capabilities::TaskCapabilities;
use crate::protocol::revision::Dialect;
use crate::protocol::role::{AsClient, ClientSide, Declared, ServerCapabilities, Side, read_tools};
use crate::rpc::params::Nullable;
use crate::tool::TaskSupport;

impl OutgoingRequests {
    /// Begins a session as its client.
    pub(crate) fn begin_session(
        &mut self,
        outbox: &mut Outbox,
        timers: &mut TimerQueue,
        conn: ConnId,
        role: AsClient,
    ) {
        let dialect = Dialect::NEWEST_WITH_INITIALIZE;
        let lists = outbox.identity_of(conn) != Identity::Anonymous;
        let declared = Declared::of(role.offers, &outbox.settings().services, lists);
        let Some(connection) = outbox.connection_mut(conn) else { return };
        connection.side = Side::Client(Box::new(ClientSide {
            declared,
            server: ServerCapabilities::default(),
            tools: BTreeMap::new(),
        }));
        let us = &outbox.settings().server;
        let mut params = Vec::new();
        let mut json = Writer::new(&mut params);
        json.raw("{").member("protocolVersion", dialect.revision).raw(",\"capabilities\":");
        declared.write(&mut json);
        json.raw(",\"clientInfo\":{").member("name", &us.name).raw(",");
        json.member("version", &us.version).raw("}}");
        let params = String::from_utf8(params).expect("JSON text is UTF-8");
        let params = RawValue::from_string(params).expect("the writer produces JSON");
        let request = OutgoingRequest {
            key: None,
            method: "initialize".into(),
            params: Some(params),
            answer_timeout: role.answer_timeout,
            task: None,
        };
        let whom = CallFor::Caller(Caller::Host(role.ask));
        let call = self.place(outbox, timers, conn, whom, &request, &CallCause::default());
        self.note_host_call(role.ask, conn, call);
    }
}

impl Outbox {
    /// Handles the server's answer to `initialize`. Returns the answer for the caller: the session
    /// has begun if it is a result.
    pub(crate) fn on_initialize_answered(
        &mut self,
        conn: ConnId,
        outcome: Result<Raw<'_>, Raw<'_>>,
    ) -> Answer {
        let result = match outcome {
            Err(error) => return Answer::Error(error.to_value()),
            Ok(result) => result,
        };
        if let Err(what) = self.settle(conn, result) {
            return Answer::Unusable(what);
        }
        self.send(conn, |json| {
            json.raw(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        });
        Answer::Result(result.to_value())
    }

    fn settle(&mut self, conn: ConnId, result: Raw<'_>) -> Result<(), &'static str> {
        #[derive(Deserialize)]
        struct Initialized<'a> {
            #[serde(borrow, rename = "protocolVersion")]
            protocol_version: Cow<'a, str>,
            #[serde(borrow)]
            capabilities: &'a RawValue,
        }
        #[derive(Deserialize, Default)]
        struct Capabilities<'a> {
            #[serde(borrow, default)]
            tasks: Option<&'a RawValue>,
        }
        if !result.get().starts_with('{') {
            return Err("the answer to initialize is not an object");
        }
        let said: Initialized<'_> = serde_json::from_str(result.get())
            .map_err(|_| "the answer to initialize names no revision or no capabilities")?;
        let dialect = Dialect::find(&said.protocol_version)
            .ok_or("the server speaks no revision of the protocol that we speak")?;
        let capabilities: Capabilities<'_> =
            serde_json::from_str(said.capabilities.get()).unwrap_or_default();
        let Some(connection) = self.connection_mut(conn) else { return Ok(()) };
        connection.dialect = dialect;
        connection.unreadable_id = dialect.unreadable_id;
        connection.phase = SessionPhase::Ready;
        connection.peer.tasks = TaskCapabilities::read(capabilities.tasks, dialect);
        if let Side::Client(side) = &mut connection.side {
            side.server = ServerCapabilities::read(Some(said.capabilities));
        }
        Ok(())
    }

    /// Records the task support of tools (TSK-04). Tools beyond the limit, and unknown tools, count
    /// as without tasks.
    pub(crate) fn learn_tools(&mut self, conn: ConnId, result: Raw<'_>) {
        let max = self.settings().limits.remote_tools_max;
        let Some(connection) = self.connection_mut(conn) else { return };
        let Side::Client(side) = &mut connection.side else { return };
        for (name, support) in read_tools(result) {
            if side.tools.len() < max || side.tools.contains_key(&name) {
                side.tools.insert(name, support);
            }
        }
    }

    /// Forgets the task support of the server's tools, which changed.
    pub(crate) fn forget_tools(&mut self, conn: ConnId) {
        if let Some(connection) = self.connection_mut(conn)
            && let Side::Client(side) = &mut connection.side
        {
            side.tools.clear();
        }
    }
}

/// Whether the rules permit this request on a ready connection.
///
/// # Errors
///
/// The reason; nothing is sent then (TSK-02, TSK-04).
pub(crate) fn permitted(connection: &Connection, ask: &OutgoingRequest) -> Result<(), Refusal> {
    let tasks = connection.peer.tasks;
    let declared = tasks.answers(&ask.method).unwrap_or_else(|| match &connection.side {
        Side::Server => connection.peer.answers(&ask.method),
        Side::Client(side) => side.server.answers(&ask.method),
    });
    if !declared {
        return Err(Refusal::NotDeclared);
    }
    let augments = tasks.augments(&ask.method);
    if ask.task.is_some() && !augments {
        return Err(Refusal::NoTasks);
    }
    if augments && names_task(ask) {
        return Err(Refusal::TaskInParams);
    }
    match &connection.side {
        Side::Client(side) if augments && &*ask.method == "tools/call" => tool_permits(side, ask),
        Side::Client(_) | Side::Server => Ok(()),
    }
}

/// TSK-04: applies only if the server declared tasks for tool calls.
fn tool_permits(side: &ClientSide, ask: &OutgoingRequest) -> Result<(), Refusal> {
    let support = label_of(ask).and_then(|name| side.tools.get(&*name)).copied();
    match (ask.task, support) {
        (Some(_), Some(TaskSupport::Forbidden) | None) => Err(Refusal::ToolWithoutTasks),
        (None, Some(TaskSupport::Required)) => Err(Refusal::ToolOnlyAsTask),
        (Some(_), Some(TaskSupport::Optional | TaskSupport::Required))
        | (None, Some(TaskSupport::Forbidden | TaskSupport::Optional) | None) => Ok(()),
    }
}

#[derive(Deserialize, Default)]
struct NamedParams<'a> {
    #[serde(borrow, default)]
    name: Nullable<'a>,
    #[serde(borrow, default)]
    task: Nullable<'a>,
}

fn named(ask: &OutgoingRequest) -> NamedParams<'_> {
    let params = ask.params.as_ref().filter(|params| params.get().starts_with('{'));
    params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default()
}

/// Whether the params contain `task`, bypassing the engine.
fn names_task(ask: &OutgoingRequest) -> bool {
    named(ask).task.0.is_some()
}

/// Name of the tool that a request calls.
pub(crate) fn label_of(ask: &OutgoingRequest) -> Option<Box<str>> {
    named(ask).name.0.and_then(Raw::string).map(|name| name.as_ref().into())
}
