//! Round-robin over identities: which waiting job starts next.
//!
//! A long backlog delays only its owner: after a job of one identity the next one is of the next
//! identity that has one waiting, each in the order of arrival. An identity that runs as many jobs
//! as it may have at once is passed over, so that slow calls of one leave workers to the others.

mod lane;

use alloc::vec::Vec;

use self::lane::Lane;
use crate::identity::Identity;
use crate::ids::JobId;

/// Jobs that wait for their turn, and how many of each identity run.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Sorted. Only the last remaining entry may be idle; its allocation is kept for the next
    /// identity.
    lanes: Vec<(Identity, Jobs)>,
    len: usize,
    /// Identity whose job was started last.
    last: Option<Identity>,
}

/// Jobs of one identity.
#[derive(Debug, Default)]
struct Jobs {
    waiting: Lane,
    running: usize,
}

impl Jobs {
    const fn is_idle(&self) -> bool {
        self.waiting.len() == 0 && self.running == 0
    }

    /// Whether one of them can start where an identity may run `share` at once.
    const fn is_ready(&self, share: usize) -> bool {
        self.waiting.len() > 0 && self.running < share
    }
}

impl Queue {
    /// Appends a job.
    pub(crate) fn push(&mut self, owner: &Identity, job: JobId) {
        let jobs = self.entry(owner);
        let is_new = jobs.waiting.push(job);
        self.len += usize::from(is_new);
    }

    /// Takes a waiting job out; false if it does not wait.
    pub(crate) fn remove(&mut self, owner: &Identity, job: JobId) -> bool {
        let Ok(at) = self.find(owner) else { return false };
        let found = self.lanes[at].1.waiting.remove(job);
        if found {
            self.len -= 1;
            self.drop_idle(at);
        }
        found
    }

    /// Counts a job as no longer running.
    pub(crate) fn end(&mut self, owner: &Identity) {
        let Ok(at) = self.find(owner) else { return };
        self.lanes[at].1.running -= 1;
        self.drop_idle(at);
    }

    /// The entry of an identity, which is made if there is none.
    fn entry(&mut self, owner: &Identity) -> &mut Jobs {
        let at = match self.find(owner) {
            Ok(at) => at,
            Err(_) if matches!(self.lanes.as_slice(), [(_, only)] if only.is_idle()) => {
                self.lanes[0].0.clone_from(owner);
                0
            }
            Err(at) => {
                self.lanes.insert(at, (owner.clone(), Jobs::default()));
                at
            }
        };
        &mut self.lanes[at].1
    }

    fn drop_idle(&mut self, at: usize) {
        if self.lanes[at].1.is_idle() && self.lanes.len() > 1 {
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

    /// The entry whose turn it is, where an identity may run `share` jobs at once.
    fn next(&self, share: usize) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let after = match &self.last {
            Some(last) => self.lanes.partition_point(|(owner, _)| owner <= last),
            None => 0,
        };
        let (before, later) = self.lanes.split_at(after);
        let ready = |(_, jobs): &(Identity, Jobs)| jobs.is_ready(share);
        let later = later.iter().position(ready).map(|at| after + at);
        later.or_else(|| before.iter().position(ready))
    }

    /// Whether [`Queue::start`] would find a job.
    pub(crate) fn is_ready(&self, share: usize) -> bool {
        self.next(share).is_some()
    }

    /// Takes the job whose turn it is and counts it as running. Jobs of identities that run `share`
    /// already go on waiting.
    pub(crate) fn start(&mut self, share: usize) -> Option<JobId> {
        let at = self.next(share)?;
        let (owner, jobs) = self.lanes.get_mut(at)?;
        let job = jobs.waiting.pop()?;
        jobs.running += 1;
        self.len -= 1;
        if self.last.as_ref() != Some(owner) {
            self.last = Some(owner.clone());
        }
        Some(job)
    }

    /// Number of waiting jobs.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Number of waiting jobs of one identity.
    pub(crate) fn len_of(&self, owner: &Identity) -> usize {
        self.find(owner).map_or(0, |at| self.lanes[at].1.waiting.len())
    }

    /// Number of running jobs of one identity.
    pub(crate) fn running_of(&self, owner: &Identity) -> usize {
        self.find(owner).map_or(0, |at| self.lanes[at].1.running)
    }

    /// Number of waiting jobs that may start if there are workers enough.
    pub(crate) fn startable(&self, share: usize) -> usize {
        let of = |jobs: &Jobs| jobs.waiting.len().min(share.saturating_sub(jobs.running));
        if self.len == 0 { 0 } else { self.lanes.iter().map(|(_, jobs)| of(jobs)).sum() }
    }

    /// Whether a job waits.
    pub(crate) fn contains(&self, owner: &Identity, job: JobId) -> bool {
        self.find(owner).is_ok_and(|at| self.lanes[at].1.waiting.contains(job))
    }

    /// How many jobs of the same identity wait before this one. Those of others are not counted:
    /// no identity learns of another's jobs (TSK-39).
    pub(crate) fn before(&self, owner: &Identity, job: JobId) -> usize {
        self.find(owner).map_or(0, |at| self.lanes[at].1.waiting.before(job))
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(crate) fn check(&self) {
        let lens = self.lanes.iter().map(|(_, jobs)| jobs.waiting.len());
        assert_eq!(lens.sum::<usize>(), self.len, "waiting jobs are counted");
        let idle = self.lanes.iter().filter(|(_, jobs)| jobs.is_idle()).count();
        assert!(idle == 0 || self.lanes.len() == 1, "only the last entry may be idle");
        assert!(self.lanes.is_sorted_by_key(|(owner, _)| owner), "entries are sorted");
        self.lanes.iter().for_each(|(_, jobs)| jobs.waiting.check());
    }

    /// Number of running jobs of all identities, for tests.
    pub(crate) fn running(&self) -> usize {
        self.lanes.iter().map(|(_, jobs)| jobs.running).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(queue: &mut Queue, share: usize) -> Vec<u64> {
        core::iter::from_fn(|| queue.start(share)).map(JobId::get).collect()
    }

    #[test]
    fn turns_go_round_among_identities() {
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
        assert_eq!(started(&mut queue, usize::MAX), [0, 5, 6, 2, 7, 3, 4]);
        assert_eq!((queue.len(), queue.running_of(&ann), queue.running()), (0, 4, 7));
        (0..4).for_each(|_| queue.end(&ann));
        (0..2).for_each(|_| queue.end(&bob));
        queue.end(&cid);
        assert_eq!((queue.running(), queue.lanes.len()), (0, 1), "one allocation is kept");
        queue.check();
    }

    #[test]
    fn identity_that_runs_its_share_is_passed_over() {
        let mut queue = Queue::default();
        let (ann, bob) = (Identity::User(1), Identity::User(2));
        (0..5).for_each(|id| queue.push(&ann, JobId::new(id)));
        assert_eq!(queue.startable(2), 2);
        assert_eq!(started(&mut queue, 2), [0, 1]);
        assert!(!queue.is_ready(2) && queue.is_ready(3) && queue.startable(2) == 0);
        queue.push(&bob, JobId::new(5));
        queue.push(&bob, JobId::new(6));
        assert_eq!((queue.startable(2), queue.startable(3)), (2, 3));
        assert_eq!(started(&mut queue, 2), [5, 6]);
        queue.check();
        queue.end(&ann);
        queue.end(&bob);
        assert_eq!(started(&mut queue, 2), [2], "a place that becomes free is used");
        queue.push(&bob, JobId::new(7));
        assert_eq!(started(&mut queue, 2), [7]);
        assert_eq!((queue.running_of(&ann), queue.running_of(&bob)), (2, 2));
        (0..2).for_each(|_| queue.end(&bob));
        assert_eq!(queue.running_of(&bob), 0);
        queue.check();
    }
}
