//! Requests that this side makes, and tasks that run at peers.

pub mod call;
pub mod remote_task;
pub(crate) mod remote_tasks;
pub(crate) mod requests;
