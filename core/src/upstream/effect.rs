//! Consequences of the gateway beyond it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::event::Outcome;
use crate::ids::{AskId, ConnId, JobId};
use crate::outbox::requests::{Reply, Topic};
use crate::outgoing::call::OutgoingRequest;
use crate::upstream::awaited::AwaitedAnswer;

/// A consequence beyond the gateway.
#[derive(Debug)]
pub(crate) enum GatewayEffect {
    /// A relayed job has ended.
    End { job: JobId, outcome: Outcome },
    /// A relayed job becomes a task, if its client can have one.
    Escalate(JobId),
    /// A relayed job asks its client.
    AskForJob { job: JobId, ask: AskId, request: OutgoingRequest },
    /// A question of a relayed job is withdrawn.
    Withdraw { job: JobId, ask: AskId, reason: Option<Box<str>> },
    /// A list of these clients may be another now.
    Announce { topic: Topic, clients: Vec<ConnId> },
    /// A request that waited for servers is answered.
    Answer { reply: Reply, awaited: AwaitedAnswer },
    /// The connection to an instance is gone.
    Remove(ConnId),
}
