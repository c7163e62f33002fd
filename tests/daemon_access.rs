//! Permissions: connecting, tools, and isolation of identities (TSK-39, TSK-40).

#[path = "daemon_access/jobs.rs"]
mod jobs;
#[path = "daemon_access/kit.rs"]
mod kit;
#[path = "daemon_access/refusals.rs"]
mod refusals;
#[path = "daemon_access/tokens.rs"]
mod tokens;
#[path = "daemon_access/users.rs"]
mod users;
