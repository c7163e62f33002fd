//! The table of tasks as views see it: counts, and the newest.

use alloc::vec::Vec;

use super::{Owner, Status, Tasks};
use crate::event::Identity;
use crate::id::TaskId;

impl Tasks {
    /// How many there are in each status, in the order of [`Status::ALL`].
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Status, usize)> {
        Status::ALL.into_iter().zip(self.counts)
    }

    /// How many tasks of an identity have not ended.
    pub(crate) fn live(&self, owner: &Identity) -> usize {
        self.owners.get(owner).map_or(0, |owner| owner.live)
    }

    /// The newest tasks, newest first: of one identity, or of everybody.
    pub(crate) fn newest(&self, owner: Option<&Identity>, max: usize) -> Vec<TaskId> {
        let of = |owner: &Owner| -> Vec<(u64, TaskId)> {
            owner.order.iter().rev().take(max).map(|(at, id)| (*at, *id)).collect()
        };
        let mut newest: Vec<(u64, TaskId)> = match owner {
            Some(identity) => self.owners.get(identity).map(of).unwrap_or_default(),
            None => self.owners.values().flat_map(of).collect(),
        };
        newest.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        newest.truncate(max);
        newest.into_iter().map(|(_, id)| id).collect()
    }
}
