//! The daemon, killed at any moment.
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on has to fail")]

mod crash;
