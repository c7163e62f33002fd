//! The queue of jobs that wait: by turns of those who asked, each in the order they came.
//!
//! Whoever asks for much waits for the own jobs, not for those of others: after a job of one
//! identity the next one is of the next identity that has any, round and round.

mod held;
mod lane;

use alloc::vec::Vec;

pub(crate) use self::held::Held;
use self::lane::Lane;
use crate::event::Identity;
use crate::id::JobId;

/// Jobs that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Sorted. No lane is empty but the last one there was, which is kept for whoever comes next.
    lanes: Vec<(Identity, Lane)>,
    len: usize,
    /// Whose turn was last.
    last: Option<Identity>,
}

impl Queue {
    /// Appends a job.
    pub(crate) fn push(&mut self, owner: &Identity, job: JobId) {
        let at = match (self.find(owner), self.lanes.first_mut()) {
            (Ok(at), _) => at,
            (Err(_), Some((of, _))) if self.len == 0 => {
                of.clone_from(owner);
                0
            }
            (Err(at), _) => {
                self.lanes.insert(at, (owner.clone(), Lane::default()));
                at
            }
        };
        self.len += usize::from(self.lanes[at].1.push(job));
    }

    /// Takes a job out of it; false when it is not in it.
    pub(crate) fn remove(&mut self, owner: &Identity, job: JobId) -> bool {
        let Ok(at) = self.find(owner) else { return false };
        let found = self.lanes[at].1.remove(job);
        if found {
            self.taken_from(at);
        }
        found
    }

    /// A job was taken out of this lane.
    fn taken_from(&mut self, at: usize) {
        self.len -= 1;
        if self.lanes[at].1.len() == 0 && self.lanes.len() > 1 {
            self.lanes.remove(at);
        }
    }

    fn find(&self, owner: &Identity) -> Result<usize, usize> {
        match self.lanes.as_slice() {
            // Mostly there is one peer.
            [(of, _)] if of == owner => Ok(0),
            lanes => lanes.binary_search_by(|(of, _)| of.cmp(owner)),
        }
    }

    /// Takes the job whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<JobId> {
        let after = match &self.last {
            Some(last) => self.lanes.partition_point(|(owner, _)| owner <= last),
            None => 0,
        };
        let at = if after < self.lanes.len() { after } else { 0 };
        let (owner, lane) = self.lanes.get_mut(at)?;
        let job = lane.pop()?;
        if self.last.as_ref() != Some(owner) {
            self.last = Some(owner.clone());
        }
        self.taken_from(at);
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
        self.find(owner).map_or(0, |at| self.lanes[at].1.len())
    }

    /// Whether a job waits.
    pub(crate) fn contains(&self, owner: &Identity, job: JobId) -> bool {
        self.find(owner).is_ok_and(|at| self.lanes[at].1.contains(job))
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(crate) fn check(&self) {
        let lens = self.lanes.iter().map(|(_, lane)| lane.len());
        assert_eq!(lens.clone().sum::<usize>(), self.len, "waiting jobs are counted");
        let kept = usize::from(self.len == 0);
        assert_eq!(lens.filter(|len| *len == 0).count(), kept.min(self.lanes.len()));
        assert!(self.len > 0 || self.lanes.len() <= 1, "an empty lane is none but the last");
        assert!(self.lanes.is_sorted_by_key(|(owner, _)| owner), "lanes are sorted");
        self.lanes.iter().for_each(|(_, lane)| lane.check());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
