//! The task table that several daemons of ceased share.
//!
//! [`postgres`] is a client of PostgreSQL without an async runtime.

pub mod postgres;
