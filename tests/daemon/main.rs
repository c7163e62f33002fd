//! The daemon with real sockets, processes and signals.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

mod access;
mod audit;
mod backpressure;
mod bounds;
mod cancel_races;
mod cli;
mod client_directory;
mod confirm;
mod connections;
mod durable;
mod fair;
mod files;
mod flood;
mod handlers;
mod idempotency;
mod idle;
mod inherit;
mod lasting;
mod limits;
mod loop_handoff;
mod modern;
mod record;
mod reload;
mod service;
mod shutdown;
mod sockets;
mod spawn;
mod spawn_lost;
mod start;
mod stdio;
mod store;
mod timeout;
mod top;
mod trust;
mod user;
