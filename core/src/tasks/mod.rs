//! Tasks: the table, their methods, and how they reach the store.

pub(crate) mod audit_events;
pub(crate) mod creation;
pub mod durable;
pub(crate) mod extension;
pub(crate) mod lookup;
pub(crate) mod lookups;
pub(crate) mod machine;
pub(crate) mod methods;
pub(crate) mod news;
pub(crate) mod persistence;
pub(crate) mod questions;
mod records;
pub(crate) mod response;
pub mod shared;
pub mod status;
pub(crate) mod store;
pub mod task;
