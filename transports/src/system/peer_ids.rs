//! The process at the other end of a Unix socket.

/// User, group and process of a peer on a Unix socket. The process is `None` where the system has
/// no number for it.
pub(crate) struct PeerIds {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: Option<u32>,
}
