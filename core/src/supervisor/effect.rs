//! Inputs and effects of a supervision.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::action::{Cancel, RequestOutcome};
use crate::births::Births;
use crate::ids::{JobId, RequestId};
use crate::protocol::trace_context::TraceContext;
use crate::reason::StopReason;
use crate::supervisor::terms::Terms;
use crate::time::Instant;
use crate::upstream::interface::Proof;

/// Number of a check that belongs to the stall watchdog; those of stops are numbers of works, which
/// begin at 1.
pub(crate) const WATCH: u64 = 0;

/// Something that happens to a supervision.
#[derive(Debug)]
pub(crate) enum SupervisionInput<'a> {
    /// The client is connected: the agent starts.
    Opened,
    /// The agent runs, and its pipes are connected.
    Started,
    /// The client sent a frame.
    Client(&'a [u8]),
    /// The agent sent a frame.
    Agent(&'a [u8]),
    /// A person cancels the request of this number in place of the client.
    Cancel { job: JobId, cancel: Cancel },
    /// An operator has the agent started again, with these times and bounds.
    Restart(Terms),
    /// Everything that arrived by now was handed in.
    Turn,
    /// The deadline has passed.
    Due,
    /// Living processes that were born since the time of a check, and CPU time of the tree.
    Examined { check: u64, born: Option<u32>, cpu: Option<Duration> },
    /// Processes were ended, but for so many.
    StraysEnded { check: u64, ended: u32, left: u32 },
    /// No process of the agent is left.
    Ended { status: &'a str, stderr: &'a str },
    /// The client has sent everything, and its requests are answered for this long, counted from the
    /// end of its input, from each answer, and from the end of the handshake.
    Finished(Option<Duration>),
    /// The client is gone.
    Closed,
    /// The agent does not read, or broke the framing.
    Unusable(&'static str),
    /// The daemon shuts down.
    ShutDown,
}

/// Consequence of an input. The engine carries it out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SupervisionEffect {
    /// Pass the frame at hand to the agent, byte for byte.
    ForwardToAgent,
    /// Pass the frame at hand to the client, byte for byte.
    ForwardToClient,
    /// Send a frame to the agent.
    ToAgent(Vec<u8>),
    /// Send a frame to the client.
    ToClient(Vec<u8>),
    /// Start the agent; answered by `Started` or `Ended`.
    Start,
    /// End the agent with its whole tree; answered by `Ended`.
    End,
    /// Count the living processes of these births; answered by `Examined`.
    Examine { check: u64, births: Births },
    /// End the processes of these births; answered by `StraysEnded`.
    EndStrays { check: u64, births: Births },
    /// A request was cancelled by its client.
    Cancelled { request: Option<RequestId>, method: Box<str>, said: &'static str },
    /// A request has been answered, or its turn is over; told where spans are recorded.
    Ended(EndedWork),
    /// The receipt of a stop that is over.
    Receipt(StopReceipt),
    /// Close the connection of the client: nothing is left to do.
    CloseClient,
}

/// The end of a request or turn, for its span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedWork {
    /// The request, if it waited for an answer.
    pub(crate) request: Option<RequestId>,
    pub(crate) method: Box<str>,
    pub(crate) trace: Option<Box<TraceContext>>,
    /// When the agent got it.
    pub(crate) since: Instant,
    /// When it was told to stop.
    pub(crate) stopped: Option<Instant>,
    pub(crate) outcome: RequestOutcome,
}

/// The end of a stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StopReceipt {
    /// Number of the request.
    pub(crate) job: Option<JobId>,
    /// The request that was stopped, if it waited for an answer.
    pub(crate) request: Option<RequestId>,
    pub(crate) method: Box<str>,
    pub(crate) why: StopReason,
    /// The cancel, if it is not of the client.
    pub(crate) cancel: Option<Box<Cancel>>,
    /// When the stop began.
    pub(crate) since: Instant,
    pub(crate) proof: Proof,
    /// Kind and id of the tool call or terminal that was stopped, if it is not a request.
    pub(crate) object: Option<(&'static str, Box<str>)>,
}
