//! Inputs that a server without sessions asks for by its result (`input_required`).
//!
//! A client of the same revision gets the result as it is, and its retry reaches the server. For
//! every other client the engine asks in the form of the client's revision, and sends the request
//! again with the answers.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use crate::event::Outcome;
use crate::ids::{ConnId, JobId};
use crate::outgoing::call::{Answer, OutgoingRequest};
use crate::protocol::request_meta::RequestContext;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::result::ResultText;
use crate::upstream::gateway::Gateway;
use crate::upstream::narrow::era_of;
use crate::upstream::question::ServerQuestion;
use crate::upstream::rewrite::{error_of, member, members, text_member, with_member};
use crate::upstream::table::Inputs;

/// How often a server may ask during one call. A server that always asks would never end it.
const ROUNDS_MAX: u32 = 32;

/// Whether a result asks for input instead of being one.
pub(crate) fn asks_for_input(result: &ResultText<'_>) -> bool {
    result.kind().as_deref() == Some("input_required")
}

impl Gateway<'_> {
    /// Whether a peer knows the tool of a server without sessions by this name.
    pub(crate) fn is_stateless_tool(&self, name: &str, conn: ConnId) -> bool {
        let caller = self.outbox.caller(conn);
        let is_own = caller.tool(&self.settings.catalog, name).is_some();
        let tool = self.upstreams.tool(name, &caller, era_of(self.outbox, conn));
        let tool = tool.filter(|_| !is_own);
        let route = tool.as_ref().and_then(|tool| tool.route.as_ref());
        let server = route.and_then(|route| self.upstreams.server(&route.server));
        server.is_some_and(|server| self.reaches_stateless(&server.server, conn))
    }

    /// Whether the client of a job takes a result that asks for input.
    pub(crate) fn passes_inputs(&self, job: JobId) -> bool {
        let job = self.jobs.get(job);
        job.is_none_or(|job| job.task.is_none() && matches!(job.terms, RequestContext::Request(_)))
    }

    /// Asks the client of a job for the inputs that a result of its server names.
    pub(crate) fn take_inputs(&mut self, job: JobId, result: &str) {
        let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
        relayed.sent = None;
        let inputs = relayed.inputs.get_or_insert_default();
        inputs.rounds += 1;
        inputs.state = member(result, "requestState").map(Into::into);
        inputs.responses.clear();
        if inputs.rounds > ROUNDS_MAX {
            let message = format!("the server asks for input more than {ROUNDS_MAX} times");
            let error = ErrorObject::new(code::LIMIT_REACHED, message);
            return self.end_relayed(job, Outcome::Error(error));
        }
        let wanted: Vec<(String, OutgoingRequest)> =
            members(member(result, "inputRequests").unwrap_or("{}"))
                .into_iter()
                .filter_map(|(key, request)| Some((String::from(key), read_request(request)?)))
                .collect();
        if wanted.is_empty() {
            return self.send_again(job);
        }
        for (key, request) in wanted {
            self.ask_for_input(job, &key, request);
        }
    }

    /// The client has answered for an input. Its key is kept as it was written.
    pub(crate) fn on_input(&mut self, job: JobId, key: &str, answer: Answer) {
        let why = match answer {
            Answer::Result(result) if self.update_server_task(job, key, result.get()) => return,
            Answer::Result(result) => {
                let Some(relayed) = self.upstreams.jobs.get_mut(&job) else { return };
                let Some(Inputs { responses, .. }) = relayed.inputs.as_deref_mut() else { return };
                let comma = if responses.is_empty() { "" } else { "," };
                responses.push_str(&format!("{comma}\"{key}\":{}", result.get()));
                let waits =
                    |question: &ServerQuestion| matches!(question, ServerQuestion::Input(_));
                if !relayed.questions.values().any(waits) {
                    self.send_again(job);
                }
                return;
            }
            // The job is being stopped, which ends it.
            Answer::Cancelled => return,
            Answer::Error(error) => return self.end_without_input(job, &error_of(error.get())),
            Answer::Refused(refusal) => format!("{refusal}"),
            Answer::Unusable(why) => String::from(why),
            Answer::TimedOut => "the client did not answer in time".into(),
            Answer::Lost => "the client is gone".into(),
        };
        self.end_without_input(job, &ErrorObject::new(code::INTERNAL_ERROR, why));
    }

    fn end_without_input(&mut self, job: JobId, why: &ErrorObject) {
        let message = format!("the server asks for input that it does not get: {}", why.message);
        let error = ErrorObject::new(why.code, message);
        self.end_relayed(job, Outcome::Error(error));
    }

    /// Sends the request of a job to its server once more, which has answered it.
    pub(crate) fn send_again(&mut self, job: JobId) {
        let instance = self.upstreams.jobs.get(&job).and_then(|relayed| relayed.instance);
        if let Some(instance) = instance {
            self.send_relayed(instance, job);
        }
    }
}

impl Inputs {
    /// The params of a request with these inputs.
    pub(crate) fn with(&self, params: &str) -> String {
        let responses = format!("{{{}}}", self.responses);
        let params = match self.responses.is_empty() {
            true => String::from(params),
            false => with_member(params, "inputResponses", &responses),
        };
        match &self.state {
            Some(state) => with_member(&params, "requestState", state),
            None => params,
        }
    }
}

/// A request in `inputRequests`; `None` for one without a method.
pub(crate) fn read_request(request: &str) -> Option<OutgoingRequest> {
    let method = text_member(request, "method")?;
    let params = member(request, "params").unwrap_or("{}");
    let params = RawValue::from_string(String::from(params)).ok()?;
    Some(OutgoingRequest {
        key: None,
        method,
        params: Some(params),
        answer_timeout: None,
        task: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UPS-12: the state is sent byte for byte, and each response under its key.
    #[test]
    fn inputs_are_members_of_the_params() {
        let inputs = Inputs {
            state: Some("\"a\\u0062\"".into()),
            responses: r#""k":{"action":"accept"}"#.into(),
            rounds: 1,
        };
        assert_eq!(
            inputs.with(r#"{"name":"x"}"#),
            r#"{"name":"x","inputResponses":{"k":{"action":"accept"}},"requestState":"a\u0062"}"#
        );
        assert_eq!(Inputs::default().with("{}"), "{}");
    }
}
