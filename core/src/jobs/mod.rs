//! Jobs: the queue, their life from start to end, and what becomes of their result.

pub(crate) mod heartbeat;
pub(crate) mod job;
pub(crate) mod lifecycle;
pub(crate) mod outlast;
pub(crate) mod queue;
pub(crate) mod result;
