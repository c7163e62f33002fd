//! Streamable HTTP: requests and streams of HTTP as messages of the engine, and back.
//!
//! A session of 2025-03-26 to 2025-11-25 is one connection of the engine, reached by many HTTP
//! connections. A request of 2026-07-28 belongs to the engine connection of its HTTP connection: a
//! closed HTTP connection closes it, which cancels the request (HTTP-08).
//!
//! ```text
//!   HTTP connections        streams                sessions            engine connections
//!   POST {"id":1} ────────► POST stream of 1 ──┐
//!   POST {"id":2} ────────► POST stream of 2 ──┼─► session ──────────► ConnId
//!   GET ──────────────────► GET stream ────────┘
//!   POST of 2026-07-28 ───────────────────────────────────────────────► ConnId
//! ```

pub(crate) mod access;
pub(crate) mod answer;
pub(crate) mod delivery;
pub(crate) mod endpoint;
pub(crate) mod envelope;
pub(crate) mod pages;
pub(crate) mod peer;
pub(crate) mod routing;
pub(crate) mod secure;
pub(crate) mod session;
pub(crate) mod signed;
pub(crate) mod trace_headers;
pub(crate) mod view;
