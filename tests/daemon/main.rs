//! The daemon with real sockets, processes and signals.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

mod access;
mod agents;
mod audit;
mod cli;
mod config;
mod durable;
mod http;
mod limits;
mod probe;
mod process;
mod remote;
mod servers;
mod service;
mod traces;
mod user;
mod wrap_acp;
