//! Versions of the protocol.

/// The stable version.
pub(super) const V1: u64 = 1;
/// The version in which a prompt is answered before its turn ends.
pub(super) const V2: u64 = 2;
