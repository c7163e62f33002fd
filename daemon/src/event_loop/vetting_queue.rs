//! Peers whose process is being looked at.

use std::collections::BTreeMap;

use ceased_core::identity::Identity;
use ceased_transports::Transport;

/// Peers whose process is being looked at.
#[derive(Default)]
pub(super) struct Vetting {
    pub(super) next: u64,
    pub(super) waiting: BTreeMap<u64, (Box<dyn Transport>, Identity)>,
}
