//! Protocol revisions as data, and what each request and session declares.

pub mod capabilities;
pub(crate) mod request_meta;
pub mod revision;
pub mod role;
