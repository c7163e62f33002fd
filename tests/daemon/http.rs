//! Streamable HTTP of the real daemon, with a client that writes bytes as they are.

mod access;
mod bounds;
mod chromium;
pub(crate) mod kit;
mod oauth;
mod page;
mod session;
mod shares;
mod stateless;
mod streams;
mod tls;
mod view;
