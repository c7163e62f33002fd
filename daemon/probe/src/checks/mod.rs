//! The checks of a probe.

pub(crate) mod calls;
pub(crate) mod endings;
pub(crate) mod extension;
pub(crate) mod http_requests;
pub(crate) mod http_streams;
pub(crate) mod load;
pub(crate) mod notifications;
pub(crate) mod request_ids;
pub(crate) mod tasks;
pub(crate) mod work;
