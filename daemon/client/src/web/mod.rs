//! Requests over HTTP by a thread that may wait: connections until a deadline, and one request with
//! its whole response. The event loop has its own client in `remote`.

pub mod connect;
mod fetch;
mod reachable;
mod server;

pub use fetch::{Fetch, Fetched};
pub use server::{HttpServer, Wire, is_later};
