//! Protocol revisions as data, and the declarations of each request and session.

pub mod capabilities;
pub(crate) mod request_meta;
pub mod revision;
pub mod role;
pub mod support;
pub mod trace_context;

/// Method by which a peer presents its token, before any other message.
pub const AUTHENTICATE: &str = "ceased/authenticate";
