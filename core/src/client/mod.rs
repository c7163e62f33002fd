//! Client side of a session.

pub(crate) mod session;
