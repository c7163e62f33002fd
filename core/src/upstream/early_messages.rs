//! Messages of servers that are held for a client whose session is not initialized.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use crate::outbox::requests::{Reply, Topic};
use crate::outgoing::call::OutgoingRequest;

/// Messages that are held for one client.
#[derive(Debug, Default)]
pub(crate) struct EarlyMessages {
    /// Requests of its servers, in their order.
    pub(crate) questions: VecDeque<(Reply, OutgoingRequest)>,
    /// Lists that have changed.
    pub(crate) topics: BTreeSet<Topic>,
    /// Notifications that this engine does not know, whole.
    pub(crate) notes: Vec<String>,
}
