//! Observations of one run of a client.

use serde_json::Value;

/// Observations of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Observed {
    /// Every message of the client, with the number of its server.
    pub(super) heard: Vec<(usize, Value)>,
    /// Lines that are no messages.
    pub(super) garbage: Vec<String>,
    /// Whether the client has let go of its servers: closed their input, or exited.
    pub(super) has_let_go: bool,
    /// Whether the client exited with a code other than 0, or by a signal.
    pub(super) has_failed: bool,
    /// Its end, for evidence.
    pub(super) told: String,
    /// Whether the client has started a server.
    pub(super) has_server: bool,
    /// Servers alive after that, and their children.
    pub(super) alive: [usize; 2],
}

impl Observed {
    /// The reason for which the client has not started: it failed before it started a server.
    pub(super) fn not_started(&self) -> Option<String> {
        let is_absent = self.has_failed && !self.has_server;
        is_absent.then(|| format!("the client starts no server: {}", self.told))
    }
}
