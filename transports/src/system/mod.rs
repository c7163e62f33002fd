//! Calls that differ between Linux and the other Unix systems: macOS compiles, Linux is served.
//!
//! On other systems a socket is closed at exec a moment after it was made, a sender that is not
//! told of a lost reader ends by an option of the socket instead of by a flag, and the process of a
//! peer is known by its number alone.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;
mod peer_ids;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::*;
pub(crate) use peer_ids::PeerIds;
