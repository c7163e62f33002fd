//! Results of revisions that give each a type and name the server (MOD-02).

use crate::ids::RequestState;
use crate::tasks::durable::{RecordKey, Work};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::json::meta::write_with_type;
use crate::json::meta::{SERVER_INFO, WORK};
use crate::json::raw::Json;
use crate::json::writer::Writer;
use crate::outbox::requests::Reply;
use crate::protocol::revision::ToolMembers;
use crate::settings::ServerInfo;

impl ResultType {
    /// The word on the wire.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Complete | Self::Ended | Self::Work(_) => "complete",
            Self::Task(_) => "task",
            Self::InputRequired(_) => "input_required",
        }
    }
}

/// Writes a result of our own: an object without `_meta` gets its type, and us in `_meta`.
pub(crate) fn write_own(
    json: &mut Writer<'_>,
    kind: ResultType,
    reply: &Reply,
    us: &[u8],
    result: impl FnOnce(&mut Writer<'_>),
) {
    json.raw("{").member("resultType", kind.as_str()).raw(",\"_meta\":{");
    if kind == ResultType::Ended {
        write_subscription(json, reply);
        json.raw(",");
    }
    if let ResultType::Work(work) = kind {
        json.member(WORK, work.as_str()).raw(",");
    }
    json.string(SERVER_INFO).raw(":").bytes(us).raw("}");
    json.members_of(result).raw("}");
}

/// Writes a tool's result, `_meta` naming us, every other member as it was.
pub(crate) fn write_tools(json: &mut Writer<'_>, result: &Json, us: &[u8]) {
    write_with_type(json, result, ResultType::Complete.as_str(), &[(SERVER_INFO, us)]);
}

/// Writes a result of an upstream that asks for input: as [`write_tools`], with its type.
pub(crate) fn write_input_required(json: &mut Writer<'_>, result: &Json, us: &[u8]) {
    write_with_type(json, result, "input_required", &[(SERVER_INFO, us)]);
}

/// Key of `_meta` with the subscription that a message belongs to.
pub(crate) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The subscription a message belongs to, its id as it was written (MOD-08).
pub(crate) fn write_subscription(json: &mut Writer<'_>, reply: &Reply) {
    json.string(SUBSCRIPTION_ID).raw(":").id(&reply.id, reply.token());
}

/// This server as an object, with the members that the revision has: a title since 2025-06-18,
/// a page since 2025-11-25.
pub(crate) fn server_info(server: &ServerInfo, members: ToolMembers) -> Arc<[u8]> {
    let mut us = Vec::new();
    let json = &mut Writer::new(&mut us);
    json.raw("{").member("name", &server.name).raw(",").member("version", &server.version);
    if let Some(title) = server.title.as_ref().filter(|_| members >= ToolMembers::Titled) {
        json.raw(",").member("title", title);
    }
    if let Some(website) = server.website.as_ref().filter(|_| members >= ToolMembers::Iconed) {
        json.raw(",").member("websiteUrl", website);
    }
    json.raw("}");
    us.into()
}

/// Type of a result, for revisions that name it (MOD-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultType {
    /// The result itself.
    Complete,
    /// A task that will have it (EXT-02).
    Task(RecordKey),
    /// Input that the tool asks for first (MOD-07).
    InputRequired(RequestState),
    /// Word that a subscription has ended (MOD-08).
    Ended,
    /// The result itself, of a task whose work stands so.
    Work(Work),
}
