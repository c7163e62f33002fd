//! An address to listen at, and its access rules.

use ceased_transports::Address;

use crate::access::Access;

/// An address to listen at, and its access rules.
pub(crate) struct ListenSpec {
    pub(crate) address: Address,
    /// Whose the file of a Unix socket is; the group of this process when not said.
    pub(crate) group: Option<u32>,
    pub(crate) access: Access,
}

impl ListenSpec {
    /// For every peer that can connect. Peers on a Unix socket are the users the system says they
    /// are (TSK-39); peers on TCP are anonymous (TSK-40).
    pub(crate) const fn open(address: Address) -> Self {
        let access = match address {
            Address::Unix { .. } | Address::Stdio => Access::Users(None),
            Address::Tcp(_) => Access::Anonymous,
        };
        Self { address, group: None, access }
    }
}
