//! Output of jobs for peers that may read it: `ceased/logs`, and resources of the protocol.
//!
//! The host keeps the output; the engine names the reader, and writes the answers.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::time::Duration;

use serde_json::value::RawValue;
use uuid::Uuid;

use crate::action::{Action, LoginWish, OutputOf, OutputQuery, OutputRequest, Viewer};
use crate::engine::Engine;
use crate::identity::{Identity, Rights};
use crate::ids::{ConnId, InstanceId, JobId, StatusId, TaskId};
use crate::json::raw::Raw;
use crate::json::whole::WholeNumber;
use crate::outbox::requests::{Reply, RequestWork, Settled};
use crate::policy::access::Item;
use crate::protocol::revision::Results;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::params::{self, Params};
use crate::server::host_request::{HostForm, HostRequest};
use crate::server::relayed_methods::no_resource;
use crate::upstream::list::{RESOURCES, TEMPLATES};
use crate::upstream::rewrite::text_member;

/// The beginning of the URI of the output of a job, and its end.
const URI: (&str, &str) = ("ceased://jobs/", "/output");

/// Members of an answer that no client may keep: a running job prints more.
const UNCACHEABLE: &str = ",\"ttlMs\":0,\"cacheScope\":\"private\"";

/// Whether a method reads the output of jobs.
pub(crate) fn is_method(method: &str) -> bool {
    matches!(
        method,
        "ceased/logs"
            | "ceased/view"
            | "ceased/login"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
    )
}

impl Engine {
    /// Whether a request is about outputs of jobs. Resources with other URIs are those of servers.
    pub(crate) fn is_for_outputs(
        &self,
        conn: ConnId,
        method: &str,
        params: Option<&Params<'_>>,
    ) -> bool {
        if !self.upstreams.owns_outputs(&self.outbox, conn) || !is_method(method) {
            return false;
        }
        let uri = params::find(params, ["uri"]).ok().and_then(|[uri]| uri?.string());
        let is_output = uri.is_none_or(|uri| output_of(&uri).is_some());
        let is_of_others = !self.upstreams.is_empty() || self.offers_resource(conn, params);
        method != "resources/read" || is_output || !is_of_others
    }

    /// A request of one of these methods.
    #[inline(never)]
    pub(crate) fn read_outputs(&mut self, reply: Reply, method: &str, params: Option<&Params<'_>>) {
        match method {
            "ceased/logs" => self.read_logs(reply, params),
            "ceased/view" => self.link_view(reply),
            "ceased/login" => self.log_in(reply, params),
            "resources/list" => self.list_resources(reply, params),
            "resources/templates/list" => self.list_resource_templates(reply, params),
            _ => self.read_resource(reply, params),
        }
    }

    /// TSK-39: a link for a user that the kernel tells. A token would gain a second one by it, and
    /// an anonymous peer is no identity of its own.
    pub(crate) fn link_view(&mut self, reply: Reply) {
        if matches!(self.outbox.identity(reply.conn), Some(Identity::User(_))) {
            return self.ask_for_output(reply, HostForm::View, OutputRequest::View);
        }
        let message = "ceased/view is for users of this machine: connect to the Unix socket";
        self.outbox.fail(reply, &ErrorObject::new(code::FORBIDDEN, message));
    }

    /// The login of an identity at a server by URL that it may use.
    fn log_in(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let conn = reply.conn;
        let asked = match read_login(params) {
            Ok(asked) => asked,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        let is_of_job = self.outbox.connection(conn).is_none_or(|it| it.rights != Rights::Full);
        let Some(identity) = self.outbox.identity(conn).filter(|_| !is_of_job) else {
            let message = "ceased/login is for a peer outside of jobs";
            return self.outbox.fail(reply, &ErrorObject::new(code::FORBIDDEN, message));
        };
        if *identity == Identity::Anonymous {
            let message =
                "ceased/login is for an identity: connect to the Unix socket or with a token";
            return self.outbox.fail(reply, &ErrorObject::new(code::FORBIDDEN, message));
        }
        let server = self.upstreams.server(&asked.0).map(|known| &known.server);
        let caller = self.outbox.caller(conn);
        if !server.is_some_and(|it| it.is_remote && caller.sees(Item::Server(it.as_ref()))) {
            let name = self.outbox.clean(&asked.0);
            let message = format!("there is no server {name:?} by URL");
            return self.outbox.fail(reply, &ErrorObject::invalid_params(message));
        }
        let (server, wish) = asked;
        self.ask_for_output(reply, HostForm::Login, OutputRequest::Login { server, wish });
    }

    /// A part of the output of one job, by its number or its task.
    pub(crate) fn read_logs(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        match read_server(params) {
            Ok(Some(request)) => return self.ask_for_output(reply, HostForm::Logs, request),
            Ok(None) => {}
            Err(error) => return self.outbox.fail(reply, &error),
        }
        match read_part(params) {
            Ok((of, from, since)) => {
                let of = self.resolved(of);
                let request = OutputRequest::Part { of, from, since };
                self.ask_for_output(reply, HostForm::Logs, request);
            }
            Err(error) => self.outbox.fail(reply, &error),
        }
    }

    /// OUT-01: a peer's own outputs, and nothing of another's.
    pub(crate) fn list_resources(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        match params::find(params, ["cursor"]) {
            Ok([None]) => {
                self.gateway().wake_upstreams(reply.conn);
                self.ask_for_output(reply, HostForm::Resources, OutputRequest::List);
            }
            Ok([Some(_)]) => {
                let message = "unknown cursor: resources/list has one page";
                self.outbox.fail(reply, &ErrorObject::invalid_params(message));
            }
            Err(error) => self.outbox.fail(reply, &error),
        }
    }

    pub(crate) fn list_resource_templates(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        match params::find(params, ["cursor"]) {
            Ok([None]) => {}
            Ok([Some(_)]) => {
                let message = "unknown cursor: resources/templates/list has one page";
                return self.outbox.fail(reply, &ErrorObject::invalid_params(message));
            }
            Err(error) => return self.outbox.fail(reply, &error),
        }
        let typed = reply.dialect.results == Results::Typed;
        self.gateway().wake_upstreams(reply.conn);
        let others = self.upstreams.listed_elements(&self.outbox, TEMPLATES, reply.conn);
        self.upstreams.answer(&mut self.outbox, reply, |json| {
            json.raw("{\"resourceTemplates\":[{\"uriTemplate\":\"ceased://jobs/{id}/output\",");
            json.raw("\"name\":\"output\",\"mimeType\":\"text/plain\",\"description\":\"");
            json.raw("The output of a call, by the number of its job or the id of its task\"}");
            json.raw(if others.is_empty() { "" } else { "," }).raw(&others).raw("]");
            json.raw(if typed { UNCACHEABLE } else { "" }).raw("}");
        });
    }

    pub(crate) fn read_resource(&mut self, reply: Reply, params: Option<&Params<'_>>) {
        let uri = params::find(params, ["uri"]).and_then(|[uri]| params::text("uri", uri));
        let uri = match uri {
            Ok(uri) => uri,
            Err(error) => return self.outbox.fail(reply, &error),
        };
        match output_of(&uri) {
            Some(of) => {
                let of = self.resolved(of);
                let form = HostForm::Resource(uri.into());
                self.ask_for_output(reply, form, OutputRequest::Whole(of));
            }
            None => {
                let error = no_resource(&reply, &uri);
                self.outbox.fail(reply, &error);
            }
        }
    }

    /// The job behind a task, while there is one.
    fn resolved(&self, of: OutputOf) -> OutputOf {
        let task = of.task.and_then(|task| self.tasks.get(task));
        OutputOf { job: of.job.or_else(|| task.and_then(|task| task.job)), ..of }
    }

    fn ask_for_output(&mut self, reply: Reply, form: HostForm, request: OutputRequest) {
        if self.outbox.is_full(reply.conn) {
            return self.outbox.refuse_inflight(reply);
        }
        let (conn, id) = (reply.conn, reply.id.clone());
        let read = StatusId::new(self.next_survey);
        let sees_all = self.outbox.is_operator(conn);
        let Some(connection) = self.outbox.connection_mut(conn) else {
            return self.outbox.forget(reply);
        };
        let (identity, rights) = (connection.identity.clone(), connection.rights);
        self.next_survey += 1;
        connection.requests.open(reply, RequestWork::Survey(read));
        self.surveys.insert(read, HostRequest { conn, request: id, form });
        let viewer = Viewer { identity, rights, conn, sees_all };
        self.outbox.push(Action::ReadOutput(Box::new(OutputQuery { read, request, viewer })));
    }

    /// The host has read: answers the request, if that still waits.
    pub(crate) fn on_output_read(&mut self, read: StatusId, output: Option<&RawValue>) {
        let Some((reply, form)) = self.take_host_request(read) else { return };
        let conn = reply.conn;
        let typed = reply.dialect.results == Results::Typed;
        let others = match form {
            HostForm::Resources => self.upstreams.listed_elements(&self.outbox, RESOURCES, conn),
            HostForm::Logs
            | HostForm::View
            | HostForm::Login
            | HostForm::Resource(_)
            | HostForm::Status => String::new(),
        };
        match (output, &form) {
            // OUT-01: output that the peer may not read is as if it had never been.
            (None, HostForm::Resource(uri)) => {
                let error = no_resource(&reply, uri);
                self.outbox.fail(reply, &error);
            }
            (None, HostForm::View) => {
                let message = "no listener serves the live view to this machine: add a [[listen]] \
                               with transport = \"http\" and a loopback address";
                self.outbox.fail(reply, &ErrorObject::invalid_params(message));
            }
            (Some(output), HostForm::Login) if text_member(output.get(), "refused").is_some() => {
                let refused = text_member(output.get(), "refused").unwrap_or_default();
                self.outbox.fail(reply, &ErrorObject::invalid_params(refused.to_string()));
            }
            (None, HostForm::Logs | HostForm::Resources | HostForm::Status | HostForm::Login) => {
                let message = "there is no such output: the job never ran, or is forgotten";
                self.outbox.fail(reply, &ErrorObject::invalid_params(message));
            }
            (
                Some(output),
                HostForm::Logs | HostForm::View | HostForm::Login | HostForm::Status,
            ) => {
                self.upstreams.answer(&mut self.outbox, reply, |json| {
                    json.raw(output.get());
                });
            }
            (Some(output), HostForm::Resources) => {
                self.upstreams.answer(&mut self.outbox, reply, |json| {
                    let own = output.get().trim_end().strip_suffix(']').unwrap_or("[");
                    let comma = if own.len() > 1 && !others.is_empty() { "," } else { "" };
                    json.raw("{\"resources\":").raw(own).raw(comma).raw(&others).raw("]");
                    json.raw(if typed { UNCACHEABLE } else { "" }).raw("}");
                });
            }
            (Some(output), HostForm::Resource(uri)) => {
                self.upstreams.answer(&mut self.outbox, reply, |json| {
                    json.raw("{\"contents\":[{").member("uri", uri);
                    json.raw(",\"mimeType\":\"text/plain\",\"text\":").raw(output.get()).raw("}]");
                    json.raw(if typed { UNCACHEABLE } else { "" }).raw("}");
                });
            }
        }
        self.outbox.close_if_finished(conn);
    }

    /// Takes a request that waits for the host; `None` when it does not any more.
    pub(crate) fn take_host_request(&mut self, id: StatusId) -> Option<(Reply, HostForm)> {
        let HostRequest { conn, request, form } = self.surveys.remove(&id)?;
        let connection = self.outbox.connection_mut(conn)?;
        let reply = connection.requests.settle(&request, Settled::Survey(id))?;
        Some((reply, form))
    }
}

/// The job or the task that a URI names.
fn output_of(uri: &str) -> Option<OutputOf> {
    let id = uri.strip_prefix(URI.0)?.strip_suffix(URI.1)?;
    let digits = id.bytes().all(|byte| byte.is_ascii_digit());
    match digits {
        true => Some(OutputOf { job: Some(JobId::new(id.parse().ok()?)), task: None }),
        false => Some(OutputOf { job: None, task: Some(TaskId::new(Uuid::try_parse(id).ok()?)) }),
    }
}

/// A job, places in its streams, and the time within which something was printed.
type ReadPart = (OutputOf, [u64; 2], Option<Duration>);

/// A whole number in the params.
fn number(name: &str, raw: Raw<'_>) -> Result<u64, ErrorObject> {
    WholeNumber::read(raw.get()).as_ref().and_then(WholeNumber::to_u64_saturating).ok_or_else(
        || ErrorObject::invalid_params(alloc::format!("params.{name} must be a whole number")),
    )
}

/// Reads which job, by number or task, and from where on in its streams.
fn read_part(params: Option<&Params<'_>>) -> Result<ReadPart, ErrorObject> {
    let [job, task, stdout, stderr, since] =
        params::find(params, ["job", "task", "stdout", "stderr", "sinceMs"])?;
    let from = |name, raw: Option<Raw<'_>>| raw.map_or(Ok(0), |raw| number(name, raw));
    let of = match (job, task) {
        (Some(job), None) => OutputOf { job: Some(JobId::new(number("job", job)?)), task: None },
        (None, Some(_)) => {
            let text = params::text("task", task)?;
            let id = Uuid::try_parse(&text)
                .map_err(|_| ErrorObject::invalid_params("params.task must be the id of a task"))?;
            OutputOf { job: None, task: Some(TaskId::new(id)) }
        }
        (Some(_), Some(_)) | (None, None) => {
            return Err(ErrorObject::invalid_params(
                "either params.job or params.task is required",
            ));
        }
    };
    let since = since.map(|raw| number("sinceMs", raw)).transpose()?.map(Duration::from_millis);
    Ok((of, [from("stdout", stdout)?, from("stderr", stderr)?], since))
}

/// Reads the server, and the wish about the login there.
fn read_login(params: Option<&Params<'_>>) -> Result<(Box<str>, LoginWish), ErrorObject> {
    let [server, login, end] = params::find(params, ["server", "login", "end"])?;
    let name = params::text("server", server)?.into();
    let wish = match (login, end.is_some_and(|end| end.get() == "true")) {
        (None, false) => LoginWish::Begin,
        (Some(login), false) => LoginWish::Keep(login.get().into()),
        (None, true) => LoginWish::End,
        (Some(_), true) => {
            let message = "params.login and params.end exclude each other";
            return Err(ErrorObject::invalid_params(message));
        }
    };
    Ok((name, wish))
}

/// Reads which server, which of its instances, and from where on; `None` if no server is named.
fn read_server(params: Option<&Params<'_>>) -> Result<Option<OutputRequest>, ErrorObject> {
    let [server, instance, stderr, since] =
        params::find(params, ["server", "instance", "stderr", "sinceMs"])?;
    if server.is_none() {
        return Ok(None);
    }
    let instance = instance.map(|raw| number("instance", raw)).transpose()?;
    Ok(Some(OutputRequest::Server {
        name: params::text("server", server)?.into(),
        instance: instance.map(InstanceId::new),
        from: stderr.map_or(Ok(0), |raw| number("stderr", raw))?,
        since: since.map(|raw| number("sinceMs", raw)).transpose()?.map(Duration::from_millis),
    }))
}
