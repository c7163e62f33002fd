//! Permissions: connecting, tools, and isolation of identities (TSK-39, TSK-40).

mod identity;
mod jobs;
mod kit;
mod refusals;
mod tokens;
mod users;
