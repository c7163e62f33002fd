//! Protocol revisions as data, and what each request and session declares.

pub mod capabilities;
pub(crate) mod request_meta;
pub mod revision;
pub mod role;

/// Method by which a peer presents its token to a listener that asks for one, before anything else.
pub const AUTHENTICATE: &str = "ceased/authenticate";
