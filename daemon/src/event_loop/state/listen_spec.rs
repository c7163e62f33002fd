//! An address to listen at, and its access rules.

use std::sync::Arc;

use ceased_transports::Address;

use crate::access::Access;
use crate::http::access::HttpRules;

/// An address to listen at, and its access rules.
pub(crate) struct ListenSpec {
    pub(crate) address: Address,
    /// Whose the file of a Unix socket is; the group of this process when not said.
    pub(crate) group: Option<u32>,
    pub(crate) access: Access,
    /// Rules of a listener for HTTP; `None` for one of JSON-RPC lines.
    pub(crate) http: Option<Arc<HttpRules>>,
}

impl ListenSpec {
    /// For every peer that can connect. Peers on a Unix socket are the users the system says they
    /// are (TSK-39); peers on TCP are anonymous (TSK-40).
    pub(crate) const fn open(address: Address) -> Self {
        let access = match address {
            Address::Unix { .. } | Address::Stdio => Access::Users(None),
            Address::Tcp(_) => Access::Anonymous,
        };
        Self { address, group: None, access, http: None }
    }
}
