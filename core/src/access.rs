//! Access: who may use what an operator offers (TSK-39).

use alloc::collections::BTreeSet;

use crate::event::Identity;

/// Who may use a tool. To everybody else it is a tool that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Allow {
    /// Whoever can connect.
    #[default]
    Everyone,
    /// These and nobody else.
    Only(BTreeSet<Identity>),
}

impl Allow {
    /// Whether it is among them.
    #[must_use]
    pub fn permits(&self, identity: &Identity) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(identities) => identities.contains(identity),
        }
    }
}
