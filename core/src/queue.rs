//! The queue of jobs that wait: by turns of those who asked, each in the order they came.
//!
//! Whoever asks for much waits for the own jobs, not for those of others: after a job of one
//! identity the next one is of the next identity that has any, round and round.

use alloc::collections::{BTreeMap, VecDeque};
use core::ops::Bound::{Excluded, Unbounded};

use crate::event::Identity;
use crate::id::JobId;

/// Jobs that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Sorted: ids grow, so the order within a lane is the order of arrival. No lane is empty.
    lanes: BTreeMap<Identity, VecDeque<JobId>>,
    /// The memory of the lane that became empty last.
    spare: VecDeque<JobId>,
    len: usize,
    /// Whose turn was last.
    last: Option<Identity>,
}

impl Queue {
    /// Appends a job.
    pub(crate) fn push(&mut self, owner: &Identity, job: JobId) {
        let lane = match self.lanes.get_mut(owner) {
            Some(lane) => lane,
            None => {
                let lane = core::mem::take(&mut self.spare);
                self.lanes.entry(owner.clone()).or_insert(lane)
            }
        };
        // What was held back may come after what was asked for later.
        if let Err(place) = lane.binary_search(&job) {
            lane.insert(place, job);
            self.len += 1;
        }
    }

    /// Takes a job out of it; false when it is not in it.
    pub(crate) fn remove(&mut self, owner: &Identity, job: JobId) -> bool {
        let Some(lane) = self.lanes.get_mut(owner) else { return false };
        let Ok(place) = lane.binary_search(&job) else { return false };
        lane.remove(place);
        if lane.is_empty() {
            self.spare = self.lanes.remove(owner).unwrap_or_default();
        }
        self.len -= 1;
        true
    }

    /// Takes the job whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<JobId> {
        let after = self
            .last
            .as_ref()
            .and_then(|last| self.lanes.range((Excluded(last), Unbounded)).next());
        let (owner, lane) = after.or_else(|| self.lanes.first_key_value())?;
        let (owner, job) = (owner.clone(), *lane.front()?);
        self.remove(&owner, job);
        self.last = Some(owner);
        Some(job)
    }

    /// Whether none waits.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many jobs wait.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// How many jobs of one identity wait.
    pub(crate) fn len_of(&self, owner: &Identity) -> usize {
        self.lanes.get(owner).map_or(0, VecDeque::len)
    }

    /// Whether a job waits.
    pub(crate) fn contains(&self, owner: &Identity, job: JobId) -> bool {
        self.lanes.get(owner).is_some_and(|lane| lane.binary_search(&job).is_ok())
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(crate) fn check(&self) {
        let lens = self.lanes.values().map(VecDeque::len);
        assert_eq!(lens.clone().sum::<usize>(), self.len, "waiting jobs are counted");
        assert!(lens.into_iter().all(|len| len > 0), "an empty lane is none");
        assert!(self.lanes.values().all(|lane| lane.iter().is_sorted()), "a lane is sorted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn everybody_has_a_turn() {
        let mut queue = Queue::default();
        let (ann, bob, cid) = (Identity::User(1), Identity::User(2), Identity::Anonymous);
        for id in 0..5 {
            queue.push(&ann, JobId::new(id));
        }
        queue.push(&bob, JobId::new(5));
        queue.push(&cid, JobId::new(6));
        queue.push(&bob, JobId::new(7));
        assert!(queue.remove(&ann, JobId::new(1)) && !queue.remove(&ann, JobId::new(1)));
        assert_eq!((queue.len(), queue.len_of(&ann), queue.len_of(&bob)), (7, 4, 2));
        queue.check();
        let order: Vec<u64> = core::iter::from_fn(|| queue.pop()).map(JobId::get).collect();
        assert_eq!(order, [0, 5, 6, 2, 7, 3, 4]);
        assert_eq!(queue.len(), 0);
        queue.check();
    }
}
