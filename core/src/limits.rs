//! Every bound of the engine, in one place, with its default and its reason.

use crate::rpc::error::ErrorObject;
use crate::rpc::error::limit_error;
use core::num::NonZeroU32;
use core::time::Duration;

use crate::policy::abuse::SuspicionPolicy;

/// Bounds of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct FrameLimits {
    /// Longest line a peer may send, in bytes without its end.
    pub frame_bytes_max: usize,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { frame_bytes_max: 16 * 1024 * 1024 }
    }
}

/// How many jobs of one kind run at once. Further ones wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// All of them.
    pub max: usize,
    /// Those of one identity, so that others find a place.
    pub per_identity: usize,
}

/// How many requests of clients a server works on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct ServerPlaces {
    /// All of them; as many as own tools have when `None`.
    pub max: Option<usize>,
    /// Those of one identity; as many as own tools have when `None`.
    pub per_identity: Option<usize>,
}

impl ServerPlaces {
    /// The numbers, where own tools have these.
    pub(crate) fn or(self, own: Places) -> Places {
        Places {
            max: self.max.unwrap_or(own.max),
            per_identity: self.per_identity.unwrap_or(own.per_identity),
        }
    }
}

/// The bounds on the memory that peers make the engine hold (TSK-36).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// Bounds of one frame.
    pub frames: FrameLimits,
    /// Questions of one job that wait for an answer.
    pub asks_max: usize,
    /// Calls of one identity that wait until their requestor returns with the required input
    /// (MOD-07). Each holds the room of a running job.
    pub parked_max: usize,
    /// How long such a call waits.
    pub parked_for: Duration,
    /// Requests of ours on one connection that wait for an answer.
    pub calls_max: usize,
    /// Tasks at one peer that are followed; with so many no further one is asked for (TSK-36).
    pub remote_tasks_max: usize,
    /// Tools of one server whose task support is remembered (TSK-04).
    pub remote_tools_max: usize,
    /// Elements of one list of a server behind this engine; those after it are left out with a
    /// warning. All lists of a server together have at most `frame_bytes_max` bytes.
    pub remote_list_max: usize,
    /// Deepest nesting of a frame; deeper ones could exhaust the stack of a reader.
    pub depth_max: usize,
    /// Connections at once.
    pub connections_max: usize,
    /// Connections of one identity at once, so that others can connect.
    pub connections_per_identity_max: usize,
    /// Connections that each [operator](crate::settings::Settings::operators) can have however many
    /// others there are. With none of these free, the idle connection of the operator that has made
    /// no request at all, or none for longest, is closed for a new one.
    pub operator_connections: usize,
    /// Requests of one connection that wait for an answer.
    pub inflight_max: usize,
    /// Subscriptions of one connection, which are requests too (MOD-08).
    pub subscriptions_max: usize,
    /// Tasks one subscription may name (MOD-08).
    pub subscribed_tasks_max: usize,
    /// Messages in one batch.
    pub batch_max: usize,
    /// Jobs of own tools that run at once. Those of a server have places of their own, as
    /// [`UpstreamServer::places`](crate::upstream::server::UpstreamServer::places) says.
    pub running_max: usize,
    /// Of those, jobs of one identity, so that others find a worker.
    pub running_per_identity_max: usize,
    /// Jobs that wait to run; beyond that a call is refused.
    pub queued_max: usize,
    /// Jobs of one identity that wait to run, so that others have room to.
    pub queued_per_identity_max: usize,
    /// Task requests of one identity a second, on average; a second's worth may come at once.
    /// `None`: as many as it likes. Those that cancel are never refused (TSK-37).
    pub task_ops_per_second: Option<NonZeroU32>,
    /// Calls of one identity with an idempotency key that are remembered.
    pub keys_max: usize,
    /// How long the answer to such a call is remembered once there is one.
    pub keys_for: Duration,
    /// Tasks of one identity that are not terminal yet.
    pub live_tasks_max: usize,
    /// Terminal tasks of one identity kept until their ttl.
    pub stored_tasks_max: usize,
    /// Bytes of results kept for one identity.
    pub stored_bytes_max: usize,
    /// Bytes of the largest result of a task that is kept in memory as well once it is in the
    /// store; larger ones are read when they are asked for (DUR-01).
    pub resident_result_bytes: usize,
    /// Bytes of output of ended jobs that the host keeps.
    pub output_bytes_max: usize,
    /// Of those, bytes of one identity.
    pub output_bytes_per_identity_max: usize,
    /// Bytes held for all identities: arguments of calls, ids, URIs, capabilities, unsent frames.
    pub held_bytes_max: usize,
    /// Of those, bytes of one identity.
    pub held_bytes_per_identity_max: usize,
    /// Unsent bytes at which a peer that does not read gets no new work done. It is still read
    /// from, or the cancel that would relieve us could not arrive. At twice this it is dropped; at
    /// eight times this if it goes on reading.
    pub write_buffer_bytes: usize,
    /// Time for which a peer may read nothing of its pending output.
    pub write_stall: Duration,
    /// How long the one answer to a call is waited for after the call was cancelled, where the
    /// dialect wants it answered nevertheless (ACP-03).
    pub cancelled_wait: Duration,
    /// Longest reason or status message kept, in bytes (CAN-12, TSK-43).
    pub text_bytes_max: usize,
    /// Thresholds that raise a warning about an identity (TSK-41).
    pub suspicion: SuspicionPolicy,
}

impl Limits {
    /// The places for jobs of own tools.
    pub(crate) const fn places(&self) -> Places {
        Places { max: self.running_max, per_identity: self.running_per_identity_max }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frames: FrameLimits::default(),
            asks_max: 64,
            parked_max: 16,
            parked_for: Duration::from_secs(300),
            calls_max: 1024,
            remote_tasks_max: 1024,
            remote_tools_max: 4096,
            remote_list_max: 65_536,
            depth_max: 128,
            connections_max: 1024,
            connections_per_identity_max: usize::MAX,
            operator_connections: 8,
            inflight_max: 1024,
            subscriptions_max: 64,
            subscribed_tasks_max: 1024,
            batch_max: 1024,
            running_max: 64,
            running_per_identity_max: usize::MAX,
            queued_max: 1024,
            queued_per_identity_max: usize::MAX,
            task_ops_per_second: None,
            keys_max: 1024,
            keys_for: Duration::from_secs(600),
            live_tasks_max: 256,
            stored_tasks_max: 10_000,
            stored_bytes_max: 256 * 1024 * 1024,
            resident_result_bytes: 16 * 1024,
            output_bytes_max: 64 * 1024 * 1024,
            output_bytes_per_identity_max: 16 * 1024 * 1024,
            held_bytes_max: 512 * 1024 * 1024,
            held_bytes_per_identity_max: usize::MAX,
            write_buffer_bytes: 8 * 1024 * 1024,
            write_stall: Duration::from_secs(30),
            cancelled_wait: Duration::from_secs(30),
            text_bytes_max: 512,
            suspicion: SuspicionPolicy::default(),
        }
    }
}

/// How tasks are kept (TSK-34, TSK-35, TSK-40).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskPolicy {
    /// Whether tasks outlive the process (DUR-01): the host has a store, carries out
    /// [`Action::Store`](crate::action::Action::Store), and nothing is said of a task before the
    /// store has it. Read when an engine is made; a reload does not change it.
    pub durable: bool,
    /// Whether the store is a table that several engines share (FLT-02): each answer about tasks is made of
    /// a question to it ([`Action::LookUp`](crate::action::Action::LookUp)). With `durable` alone; read
    /// when an engine is made.
    pub shared: bool,
    /// How long the store is left alone after it did not take a write, before it is tried again
    /// (DUR-01).
    pub store_retry: Duration,
    /// For a request that names no ttl.
    pub default_ttl: Duration,
    /// Longest ttl; a longer one is shortened to this.
    pub max_ttl: Duration,
    /// Default and longest ttl for a peer without authentication.
    pub anonymous_ttl: Duration,
    /// Treatment of a task that still runs at its ttl.
    pub on_ttl: OnTtl,
    /// How long the result of a task that outlived its ttl is kept.
    pub late_result: Duration,
    /// How often requestors are asked to poll.
    pub poll_interval: Duration,
    /// Tasks on one page of `tasks/list`; one at least, or it would have no end.
    pub page_size: usize,
    /// Whether `notifications/tasks/status` are sent (TSK-18).
    pub status_notifications: bool,
}

impl Default for TaskPolicy {
    fn default() -> Self {
        Self {
            durable: false,
            shared: false,
            store_retry: Duration::from_secs(2),
            default_ttl: Duration::from_secs(3600),
            max_ttl: Duration::from_secs(24 * 3600),
            anonymous_ttl: Duration::from_secs(600),
            on_ttl: OnTtl::Finish,
            late_result: Duration::from_secs(300),
            poll_interval: Duration::from_secs(1),
            page_size: 100,
            status_notifications: true,
        }
    }
}

/// Treatment of a task that still runs at its ttl (TSK-35).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum OnTtl {
    /// It may finish, bounded by the tool's timeout and by `max_ttl`.
    Finish,
    /// It is stopped and deleted.
    Stop,
}

/// Limit that keeps a connection out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// Its name in a configuration.
    pub name: &'static str,
    /// Its value.
    pub max: usize,
}

impl ConnectionLimit {
    /// The error that tells a peer (TSK-36).
    #[must_use]
    pub fn error(self) -> ErrorObject {
        let Self { name, max } = self;
        let message = match name {
            "connections" => alloc::format!("the daemon serves {max} connections at most"),
            _ => alloc::format!(
                "limit reached: {name} = {max}: so many of yours are open: close some"
            ),
        };
        limit_error(name, max, message)
    }
}
