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
    /// Servers alive after that, and their children.
    pub(super) alive: [usize; 2],
}
