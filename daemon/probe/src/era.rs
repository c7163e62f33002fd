//! Protocol revisions, as far as a probe has to tell them apart.

use serde_json::{Value, json};

/// The newest revision with sessions.
pub(crate) const SESSION: &str = "2025-11-25";
/// The revision without sessions.
pub(crate) const STATELESS: &str = "2026-07-28";
/// Key of the tasks extension.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Kind of revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Era {
    /// One with `initialize`, and the version to ask for.
    Session(String),
    /// 2026-07-28: each request describes itself.
    Stateless,
}

impl Era {
    /// The era of a revision.
    pub(crate) fn of(revision: &str) -> Self {
        if revision == STATELESS { Self::Stateless } else { Self::Session(revision.to_owned()) }
    }

    /// Adds the description of a self-contained request to its params.
    pub(crate) fn describe(&self, params: &mut Value, capabilities: &Value) {
        let client = json!({"name": "ceased-probe", "version": env!("CARGO_PKG_VERSION")});
        if let Some(members) = params.as_object_mut() {
            let meta = members.entry("_meta").or_insert_with(|| json!({}));
            meta["io.modelcontextprotocol/protocolVersion"] = json!(STATELESS);
            meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
            meta["io.modelcontextprotocol/clientInfo"] = client;
        }
    }
}
