//! Protocol revisions as data, and what each request and session declares.

pub(crate) mod request_meta;
pub mod revision;
pub mod role;
