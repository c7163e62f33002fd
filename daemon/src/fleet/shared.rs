//! State that the threads of one fleet share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ceased_core::ids::TaskId;
use ceased_fleet::contract::Version;

/// State that the threads of one fleet share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Tasks whose changes by others concern this node.
    followed: Mutex<BTreeMap<TaskId, Followed>>,
    /// This node's epoch; 0 while it is no member.
    pub(super) epoch: AtomicI64,
    /// The daemon has ended.
    pub(super) is_closed: AtomicBool,
}

/// A task whose changes concern this node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Followed {
    /// The version that is known here.
    pub(super) version: Version,
    /// Whether it runs here.
    pub(super) is_own: bool,
}

impl Shared {
    pub(super) fn followed(&self) -> MutexGuard<'_, BTreeMap<TaskId, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
