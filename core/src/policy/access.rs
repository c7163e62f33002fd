//! Access: the identities that may use each tool and server (TSK-39).

use alloc::collections::BTreeSet;

use crate::identity::Identity;

/// Identities that may use a tool. For all others the tool does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Allow {
    /// Every peer that can connect.
    #[default]
    Everyone,
    /// These identities only.
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
