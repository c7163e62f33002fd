//! Round-robin over identities: which waiting job starts next.
//!
//! A long backlog delays only its owner: after a job of one identity the next one is of the next
//! identity that has one waiting, each in the order of arrival. An identity that runs as many jobs
//! as it may have at once is passed over, so that slow calls of one leave workers to the others. So
//! is a job before a closed gate: those behind it in its lane go on.

mod lane;

use alloc::vec::Vec;

use self::lane::JobLane;
use crate::identity::Identity;
use crate::ids::JobId;
use crate::jobs::gates::{Gate, GateName, Gates};
use crate::limits::Places;

/// Jobs that wait for their turn, and how many of each identity run.
#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    /// Sorted. Only the last remaining entry may be idle; its allocation is kept for the next
    /// identity.
    lanes: Vec<(Identity, OwnedJobs)>,
    len: usize,
    /// Started jobs, without those that wait for an answer.
    running: usize,
    /// Started jobs that wait for an answer.
    asking: usize,
    /// Identity whose job was started last.
    last: Option<Identity>,
    gates: Gates,
}

/// Jobs of one identity.
#[derive(Debug)]
struct OwnedJobs {
    waiting: JobLane,
    running: usize,
    /// Started jobs that wait for an answer to a question, and hold no place of a running one.
    asking: usize,
    /// Every waiting job with a smaller id is before a closed gate. It saves a look at each of
    /// them, until a gate may have opened.
    open_since: JobId,
}

impl Default for OwnedJobs {
    fn default() -> Self {
        Self { waiting: JobLane::default(), running: 0, asking: 0, open_since: FIRST }
    }
}

/// Not larger than the id of any job.
const FIRST: JobId = JobId::new(0);
/// Not smaller than the id of any job.
const LAST: JobId = JobId::new(u64::MAX);

impl OwnedJobs {
    const fn is_idle(&self) -> bool {
        self.waiting.len() == 0 && self.running == 0 && self.asking == 0
    }

    /// The first of them whose gates are open, where an identity may run `share` at once.
    fn next(&self, share: usize, gates: &Gates) -> Option<JobId> {
        if self.running >= share || self.waiting.len() == 0 {
            return None;
        }
        self.waiting.since(self.open_since).find(|job| gates.closed(*job).is_none())
    }

    /// As [`OwnedJobs::next`], and remembers how far it looked.
    fn find_next(&mut self, share: usize, gates: &Gates) -> Option<JobId> {
        let next = self.next(share, gates);
        if self.running < share && !gates.is_empty() {
            self.open_since = next.unwrap_or(LAST);
        }
        next
    }

    /// The first of them that waits at this gate, as [`OwnedJobs::next`].
    fn next_at(&self, gate: &GateName, share: usize, gates: &Gates) -> Option<JobId> {
        if self.running >= share {
            return None;
        }
        let mut open = self.waiting.since(self.open_since);
        open.find(|job| gates.is_at(*job, gate) && gates.closed(*job).is_none())
    }
}

impl JobQueue {
    /// Appends a job with its gates.
    pub(crate) fn push(&mut self, owner: &Identity, job: JobId, gates: Vec<Gate>) {
        self.gates.add(job, gates);
        let jobs = self.entry(owner);
        jobs.open_since = jobs.open_since.min(job);
        let is_new = jobs.waiting.push(job);
        self.len += usize::from(is_new);
    }

    /// Takes a waiting job out; false if it does not wait.
    pub(crate) fn remove(&mut self, owner: &Identity, job: JobId) -> bool {
        let Ok(at) = self.find(owner) else { return false };
        let found = self.lanes[at].1.waiting.remove(job);
        if found {
            self.gates.leave(job);
            self.len -= 1;
            self.drop_idle(at);
        }
        found
    }

    /// Counts a job as no longer running.
    pub(crate) fn end(&mut self, owner: &Identity, job: JobId) {
        if self.gates.leave(job) {
            self.lanes.iter_mut().for_each(|(_, jobs)| jobs.open_since = FIRST);
        }
        let Ok(at) = self.find(owner) else { return };
        self.running -= 1;
        self.lanes[at].1.running -= 1;
        self.drop_idle(at);
    }

    /// A running job begins to wait for an answer, and leaves its place to others.
    pub(crate) fn note_asks(&mut self, owner: &Identity) {
        if let Ok(at) = self.find(owner) {
            let jobs = &mut self.lanes[at].1;
            (jobs.running, jobs.asking) = (jobs.running - 1, jobs.asking + 1);
            (self.running, self.asking) = (self.running - 1, self.asking + 1);
        }
    }

    /// A job waits for no answer any more and runs, also beyond the share of its identity: it holds
    /// a thread or a request of a server already.
    pub(crate) fn note_answered(&mut self, owner: &Identity) {
        if let Ok(at) = self.find(owner) {
            let jobs = &mut self.lanes[at].1;
            (jobs.running, jobs.asking) = (jobs.running + 1, jobs.asking - 1);
            (self.running, self.asking) = (self.running + 1, self.asking - 1);
        }
    }

    /// Number of jobs of one identity that wait for an answer.
    pub(crate) fn asking_of(&self, owner: &Identity) -> usize {
        self.find(owner).map_or(0, |at| self.lanes[at].1.asking)
    }

    /// The entry of an identity, which is made if there is none.
    fn entry(&mut self, owner: &Identity) -> &mut OwnedJobs {
        let at = match self.find(owner) {
            Ok(at) => at,
            Err(_) if matches!(self.lanes.as_slice(), [(_, only)] if only.is_idle()) => {
                self.lanes[0].0.clone_from(owner);
                self.lanes[0].1.open_since = FIRST;
                0
            }
            Err(at) => {
                self.lanes.insert(at, (owner.clone(), OwnedJobs::default()));
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

    /// The entries in the order of their turns, after the one of this identity.
    fn turns(&self, after: Option<&Identity>) -> impl Iterator<Item = usize> + use<> {
        let count = self.lanes.len();
        let first = after.map_or(0, |last| self.lanes.partition_point(|(owner, _)| owner <= last));
        (first..count).chain(0..first)
    }

    const fn has_room(&self, places: Places) -> bool {
        self.running < places.max
    }

    /// Whether [`JobQueue::start`] would find a job.
    pub(crate) fn is_ready(&self, places: Places) -> bool {
        let has_next = |jobs: &OwnedJobs| jobs.next(places.per_identity, &self.gates).is_some();
        self.len > 0 && self.has_room(places) && self.lanes.iter().any(|(_, jobs)| has_next(jobs))
    }

    /// Takes the job whose turn it is and counts it as running, if there is a place for it. Jobs of
    /// identities that have their share of the places go on waiting.
    pub(crate) fn start(&mut self, places: Places) -> Option<JobId> {
        if self.len == 0 || !self.has_room(places) {
            return None;
        }
        let share = places.per_identity;
        let (turn, job) = self
            .turns(self.last.as_ref())
            .find_map(|at| Some((at, self.lanes[at].1.find_next(share, &self.gates)?)))?;
        if self.last.as_ref() != Some(&self.lanes[turn].0) {
            self.last = Some(self.lanes[turn].0.clone());
        }
        let (at, job) = self.turn_at_gate(job, share).unwrap_or((turn, job));
        let (owner, jobs) = self.lanes.get_mut(at)?;
        jobs.waiting.remove(job);
        jobs.running += 1;
        self.running += 1;
        self.gates.enter(owner, job);
        self.len -= 1;
        Some(job)
    }

    /// The job that passes the gate of this one first. Turns at a gate go round by themselves: the
    /// turn of the queue, which moves with every other job, may come to the same identity each time
    /// the gate opens.
    fn turn_at_gate(&self, job: JobId, share: usize) -> Option<(usize, JobId)> {
        let (gate, last) = self.gates.contended(job)?;
        self.turns(last.as_ref())
            .find_map(|at| Some((at, self.lanes[at].1.next_at(&gate, share, &self.gates)?)))
    }

    /// The closed gate that a waiting job is at.
    pub(crate) fn closed_gate(&self, job: JobId) -> Option<&Gate> {
        self.gates.closed(job)
    }

    /// Whether a further job with these gates would wait at one.
    pub(crate) fn would_wait(&self, gates: &[Gate]) -> bool {
        self.gates.would_wait(gates)
    }

    /// Number of waiting jobs.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Number of started jobs, without those that wait for an answer.
    pub(crate) const fn running(&self) -> usize {
        self.running
    }

    /// Number of started jobs that wait for an answer.
    pub(crate) const fn asking(&self) -> usize {
        self.asking
    }

    /// Whether no job waits or runs.
    pub(crate) const fn is_idle(&self) -> bool {
        self.len + self.running + self.asking == 0
    }

    /// Number of waiting jobs of one identity.
    pub(crate) fn len_of(&self, owner: &Identity) -> usize {
        self.find(owner).map_or(0, |at| self.lanes[at].1.waiting.len())
    }

    /// Number of running jobs of one identity.
    pub(crate) fn running_of(&self, owner: &Identity) -> usize {
        self.find(owner).map_or(0, |at| self.lanes[at].1.running)
    }

    /// Whether one more job of an identity would have to wait for a place.
    pub(crate) fn is_crowded(&self, places: Places, owner: &Identity) -> bool {
        let share = places.per_identity;
        let own = self.running_of(owner) + self.len_of(owner);
        own >= share || self.running + self.startable(share) >= places.max
    }

    /// Number of waiting jobs that may start if there are places enough.
    fn startable(&self, share: usize) -> usize {
        let of = |jobs: &OwnedJobs| jobs.waiting.len().min(share.saturating_sub(jobs.running));
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
        let sum =
            |of: fn(&OwnedJobs) -> usize| self.lanes.iter().map(|it| of(&it.1)).sum::<usize>();
        assert_eq!(sum(|jobs| jobs.running), self.running, "running jobs are counted");
        assert_eq!(sum(|jobs| jobs.asking), self.asking, "asking jobs are counted");
        let idle = self.lanes.iter().filter(|(_, jobs)| jobs.is_idle()).count();
        assert!(idle == 0 || self.lanes.len() == 1, "only the last entry may be idle");
        assert!(self.lanes.is_sorted_by_key(|(owner, _)| owner), "entries are sorted");
        self.lanes.iter().for_each(|(_, jobs)| jobs.waiting.check());
        self.gates.check();
        for (_, jobs) in &self.lanes {
            let mut passed = jobs.waiting.since(FIRST).take_while(|job| *job < jobs.open_since);
            assert!(passed.all(|job| self.gates.closed(job).is_some()), "a job that may start");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::gates::gate;

    fn share(per_identity: usize) -> Places {
        Places { max: usize::MAX, per_identity }
    }

    fn started(queue: &mut JobQueue, of_each: usize) -> Vec<u64> {
        core::iter::from_fn(|| queue.start(share(of_each))).map(JobId::get).collect()
    }

    #[test]
    fn turns_go_round_among_identities() {
        let mut queue = JobQueue::default();
        let (ann, bob, cid) = (Identity::User(1), Identity::User(2), Identity::Anonymous);
        for id in 0..5 {
            queue.push(&ann, JobId::new(id), Vec::new());
        }
        queue.push(&bob, JobId::new(5), Vec::new());
        queue.push(&cid, JobId::new(6), Vec::new());
        queue.push(&bob, JobId::new(7), Vec::new());
        assert!(queue.remove(&ann, JobId::new(1)) && !queue.remove(&ann, JobId::new(1)));
        assert_eq!((queue.len(), queue.len_of(&ann), queue.len_of(&bob)), (7, 4, 2));
        queue.check();
        assert_eq!(started(&mut queue, usize::MAX), [0, 5, 6, 2, 7, 3, 4]);
        assert_eq!((queue.len(), queue.running_of(&ann), queue.running()), (0, 4, 7));
        (0..4).for_each(|id| queue.end(&ann, JobId::new(id)));
        (0..2).for_each(|id| queue.end(&bob, JobId::new(id)));
        queue.end(&cid, JobId::new(6));
        assert_eq!((queue.running(), queue.lanes.len()), (0, 1), "one allocation is kept");
        queue.check();
    }

    #[test]
    fn identity_that_runs_its_share_is_passed_over() {
        let mut queue = JobQueue::default();
        let (ann, bob) = (Identity::User(1), Identity::User(2));
        (0..5).for_each(|id| queue.push(&ann, JobId::new(id), Vec::new()));
        assert_eq!(queue.startable(2), 2);
        assert_eq!(started(&mut queue, 2), [0, 1]);
        assert!(!queue.is_ready(share(2)) && queue.is_ready(share(3)) && queue.startable(2) == 0);
        queue.push(&bob, JobId::new(5), Vec::new());
        queue.push(&bob, JobId::new(6), Vec::new());
        assert_eq!((queue.startable(2), queue.startable(3)), (2, 3));
        assert_eq!(started(&mut queue, 2), [5, 6]);
        queue.check();
        queue.end(&ann, JobId::new(0));
        queue.end(&bob, JobId::new(5));
        assert_eq!(started(&mut queue, 2), [2], "a place that becomes free is used");
        queue.push(&bob, JobId::new(7), Vec::new());
        assert_eq!(started(&mut queue, 2), [7]);
        assert_eq!((queue.running_of(&ann), queue.running_of(&bob)), (2, 2));
        (0..2).for_each(|id| queue.end(&bob, JobId::new(id)));
        assert_eq!(queue.running_of(&bob), 0);
        queue.check();
    }

    #[test]
    fn job_before_a_closed_gate_holds_up_no_other() {
        let mut queue = JobQueue::default();
        let (ann, bob) = (Identity::User(1), Identity::User(2));
        let lock = || alloc::vec![gate("lock", 1)];
        for id in 0..3 {
            queue.push(&ann, JobId::new(id), lock());
        }
        queue.push(&bob, JobId::new(3), lock());
        queue.push(&ann, JobId::new(4), Vec::new());
        assert_eq!(started(&mut queue, 9), [0, 4]);
        assert!(!queue.is_ready(share(9)) && queue.len() == 3);
        queue.check();
        // The turn of the next identity, and then of the first again.
        queue.end(&ann, JobId::new(0));
        assert!(queue.is_ready(share(9)));
        assert_eq!(started(&mut queue, 9), [3]);
        queue.end(&bob, JobId::new(3));
        assert_eq!(started(&mut queue, 9), [1]);
        // One that is taken out before its turn leaves the gate as it is.
        assert!(queue.remove(&ann, JobId::new(2)));
        queue.push(&bob, JobId::new(5), lock());
        assert_eq!(started(&mut queue, 9), [0; 0]);
        queue.end(&ann, JobId::new(1));
        assert_eq!(started(&mut queue, 9), [5]);
        queue.check();
    }

    /// Whatever comes and goes: no gate is passed by more than its limit, and no job waits that may
    /// start.
    #[test]
    fn gates_keep_their_limits_and_hold_up_nothing_else() {
        const LIMITS: [usize; 4] = [1, 1, 2, 3];
        let (mut queue, mut random) = (JobQueue::default(), 7_u64);
        let mut waiting: Vec<(Identity, JobId, Vec<usize>)> = Vec::new();
        let mut running = waiting.clone();
        for turn in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let pick = |count: usize| usize::try_from(random >> 40).unwrap() % count;
            match random >> 61 {
                0..4 if waiting.len() < 50 => {
                    let owner = Identity::User(u32::try_from(pick(3)).unwrap());
                    let used: Vec<usize> =
                        (0..4).filter(|at| random >> (20 + at) & 3 == 0).collect();
                    let gates = used.iter().map(|at| gate(["a", "b", "c", "d"][*at], LIMITS[*at]));
                    queue.push(&owner, JobId::new(turn), gates.collect());
                    waiting.push((owner, JobId::new(turn), used));
                }
                4 if !waiting.is_empty() => {
                    let (owner, job, _) = waiting.remove(pick(waiting.len()));
                    assert!(queue.remove(&owner, job));
                }
                _ if !running.is_empty() => {
                    let (owner, job, _) = running.remove(pick(running.len()));
                    queue.end(&owner, job);
                }
                _ => {}
            }
            while let Some(job) = queue.start(share(4)) {
                let at = waiting.iter().position(|(_, id, _)| *id == job).unwrap();
                running.push(waiting.remove(at));
            }
            let held =
                |gate: usize| running.iter().filter(|(.., used)| used.contains(&gate)).count();
            for (gate, limit) in LIMITS.iter().enumerate() {
                assert!(held(gate) <= *limit, "gate {gate} in turn {turn}");
            }
            for (owner, job, used) in &waiting {
                let own = running.iter().filter(|(other, ..)| other == owner).count();
                let closed = used.iter().any(|gate| held(*gate) == LIMITS[*gate]);
                assert!(own == 4 || closed, "{job:?} may start in turn {turn}");
            }
            queue.check();
        }
    }
}
