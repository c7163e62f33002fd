//! The table of tasks as views see it: counts, and the newest.

use alloc::vec::Vec;

use super::{Status, Task, TaskOwner, Tasks};
use crate::identity::Identity;
use crate::ids::TaskId;

impl Tasks {
    /// How many there are in each status, in the order of [`Status::ALL`].
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Status, usize)> {
        Status::ALL.into_iter().zip(self.counts)
    }

    /// How many of one identity there are in each status, in the order of [`Status::ALL`]. Linear
    /// in its tasks.
    pub(crate) fn counts_of(&self, owner: &Identity) -> impl Iterator<Item = (Status, usize)> {
        let mut counts = [0; Status::ALL.len()];
        for place in self.owner_named(owner).into_iter().flat_map(|owner| owner.order.values()) {
            counts[self.by_id.at(*place).counted as usize] += 1;
        }
        Status::ALL.into_iter().zip(counts)
    }

    /// Counts a task under its visible status.
    pub(crate) fn recount(&mut self, id: TaskId) {
        let Some(task) = self.by_id.get_mut(&id) else { return };
        let shown = task.view().status;
        self.counts[task.counted as usize] -= 1;
        self.counts[shown as usize] += 1;
        task.counted = shown;
    }

    /// Every task is counted under its visible status.
    ///
    /// # Panics
    /// When one is not.
    pub(super) fn check_counts(&self) {
        for (status, count) in self.counts() {
            let shows = |task: &Task| task.view().status == status;
            let found = self.by_id.sum(|task| usize::from(shows(task)));
            assert_eq!(found, count, "tasks that are {status} are counted");
        }
    }

    /// How many tasks of this one's owner have not ended.
    pub(crate) fn live_beside(&self, task: &Task) -> usize {
        self.owners.get(task.owner).live
    }

    /// The newest tasks, newest first: of one identity, or of all.
    pub(crate) fn newest(&self, owner: Option<&Identity>, max: usize) -> Vec<TaskId> {
        // No peer may know of a task that is being created (DUR-01).
        let of = |owner: &TaskOwner| -> Vec<(u64, TaskId)> {
            let tasks = owner.order.values().rev().map(|place| self.by_id.at(*place));
            let newest = tasks.filter(|task| !task.is_being_created()).take(max);
            newest.map(|task| (task.position, task.id)).collect()
        };
        let mut newest: Vec<(u64, TaskId)> = match owner {
            Some(identity) => self.owner_named(identity).map(of).unwrap_or_default(),
            None => self.owners.iter().flat_map(|(_, owner)| of(owner)).collect(),
        };
        newest.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        newest.truncate(max);
        newest.into_iter().map(|(_, id)| id).collect()
    }
}
