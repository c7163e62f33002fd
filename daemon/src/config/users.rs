//! The users and groups that a Unix listener lets in.

use std::collections::BTreeSet;

/// The users and groups of a Unix listener.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Users {
    /// Users by number.
    pub users: BTreeSet<u32>,
    /// Groups by number: of the peer's process, or of its user by the account database.
    pub groups: BTreeSet<u32>,
}
