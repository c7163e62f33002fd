//! Streamable HTTP of the real daemon, with a client that writes bytes as they are.

mod access;
mod bounds;
mod kit;
mod session;
mod stateless;
mod streams;
