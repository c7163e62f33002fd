//! Calls that repeat one by its idempotency key.

use alloc::vec::Vec;

use crate::engine::Engine;
use crate::identity::Identity;
use crate::json::writer::Writer;
use crate::outbox::requests::{Reply, TaskView};
use crate::rpc::error::ErrorObject;
use crate::rpc::error::code;
use crate::server::idempotency::Request;
use crate::server::keyed_calls::Progress;

impl Engine {
    /// Answers a request that repeats a call; returns the reply of one that is to be carried out.
    pub(crate) fn lookup(&mut self, reply: Reply, request: &Request) -> Option<Reply> {
        let owner = self.outbox.identity_of(reply.conn);
        if owner == Identity::Anonymous {
            let message = "an idempotency key is for peers with an identity";
            self.outbox.fail(reply, &ErrorObject::invalid_params(message));
            return None;
        }
        let Some(id) = self.keyed.find(&owner, &request.key) else {
            return self.room_for_key(reply, &owner);
        };
        let Some(first) = self.keyed.get(id) else { return Some(reply) };
        if !first.wish.is(&request.wish) {
            let message = "this idempotency key was used for another call: take a new one";
            self.outbox.fail(reply, &ErrorObject::invalid_params(message));
            return None;
        }
        match &first.progress {
            Progress::Done(outcome) => {
                let outcome = outcome.clone();
                self.upstreams.answer_with(&mut self.outbox, reply, outcome);
            }
            Progress::Task(task) => {
                let task = *task;
                self.respond_with_task(reply, task, TaskView::Handle);
            }
            Progress::Running(_) | Progress::Ending { .. } => {
                self.outbox.fail(reply, &under_way(&request.key));
            }
        }
        None
    }

    fn room_for_key(&mut self, reply: Reply, owner: &Identity) -> Option<Reply> {
        let limits = self.settings.limits;
        let (count, bytes) = self.keyed.held_by(owner);
        if count >= limits.keys_max {
            let what = "calls with a key of yours are remembered: wait until some are forgotten";
            self.outbox.refuse(reply, "idempotency_keys_per_identity", limits.keys_max, what);
        } else if bytes >= limits.stored_bytes_max {
            let what = "bytes of answers to calls with a key are remembered: wait until some are \
                        forgotten";
            self.outbox.refuse(reply, "stored_bytes_per_identity", limits.stored_bytes_max, what);
        } else {
            return Some(reply);
        }
        None
    }
}

/// The refusal of a call whose key names one that runs, or whose end is being stored.
fn under_way(key: &str) -> ErrorObject {
    let message = "the call with this idempotency key is still under way: try again later";
    let mut data = Vec::new();
    Writer::new(&mut data).raw("{").member("idempotencyKey", key).raw("}");
    let data = alloc::string::String::from_utf8(data).unwrap_or_default();
    ErrorObject::new(code::CALL_UNDER_WAY, message).with_data(data)
}
