//! Answering: a request is answered once, in the form of its revision, in its batch or alone.

use crate::json::raw::Json;
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::outbox::requests::Reply;
use crate::outbox::typed_result::{self, ResultType};
use crate::protocol::revision::Results;
use crate::rpc::result::ResultText;
use crate::tasks::durable::TaskOutcome;
use crate::upstream::inputs::asks_for_input;
use crate::upstream::table::Upstreams;

impl Upstreams {
    /// Answers a request with a result of this type, where the revision has types.
    pub(crate) fn answer_as(
        &self,
        outbox: &mut Outbox,
        kind: ResultType,
        reply: Reply,
        result: impl FnOnce(&mut Writer<'_>),
    ) {
        let us = self.name_for(outbox, &reply);
        outbox.answer_as(kind, reply, us, result);
    }

    /// Answers a request with a result, which names the server that shows through: an object, without
    /// the members its revision wants of every result.
    pub(crate) fn answer(
        &self,
        outbox: &mut Outbox,
        reply: Reply,
        result: impl FnOnce(&mut Writer<'_>),
    ) {
        self.answer_as(outbox, ResultType::Complete, reply, result);
    }

    /// Answers a request with the outcome of its call.
    pub(crate) fn answer_with(&self, outbox: &mut Outbox, reply: Reply, outcome: TaskOutcome) {
        match outcome {
            Ok(result) => self.answer_with_tool_result(outbox, reply, &result),
            Err(error) => outbox.fail(reply, &error),
        }
    }

    /// Answers a request with the result of its tool: the JSON text of an object.
    pub(crate) fn answer_with_tool_result(&self, outbox: &mut Outbox, reply: Reply, value: &Json) {
        outbox.counters_mut().answers += 1;
        let us = self.name_for(outbox, &reply);
        outbox.reply(ResultType::Complete, reply, |json, _| {
            json.raw(",\"result\":");
            match &us {
                None => _ = json.raw(value.get()),
                Some(us) => typed_result::write_tools(json, value, us),
            }
        });
    }

    /// Answers a request with the result of an upstream, which may ask for input (UPS-12).
    pub(crate) fn answer_with_relayed(&self, outbox: &mut Outbox, reply: Reply, value: Json) {
        // A client of a revision without typed results gets every result as it is.
        let is_typed = reply.dialect.results == Results::Typed;
        if is_typed && !value.is_bare() && asks_for_input(&ResultText::of(value.get())) {
            return self.answer_with_question(outbox, reply, &value);
        }
        self.answer_with_tool_result(outbox, reply, &value);
    }

    /// Answers a request with the question of an upstream.
    fn answer_with_question(&self, outbox: &mut Outbox, reply: Reply, value: &Json) {
        outbox.counters_mut().answers += 1;
        let us = self.name_for(outbox, &reply);
        outbox.reply(ResultType::Complete, reply, |json, _| {
            json.raw(",\"result\":");
            match &us {
                None => _ = json.raw(value.get()),
                Some(us) => typed_result::write_input_required(json, value, us),
            }
        });
    }
}
