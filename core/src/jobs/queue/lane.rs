//! The jobs of one identity that wait, in the order they came.

use alloc::collections::VecDeque;

use crate::ids::JobId;

/// Jobs in one piece, about: no more are moved when one is taken out of the middle.
const PIECE: usize = 512;
/// Room that a piece keeps though it is hardly used.
const ROOM_KEPT: usize = 64;

/// Jobs, sorted: ids grow, so that is the order of arrival.
#[derive(Debug, Default)]
pub(super) struct JobLane {
    /// None is empty but a single one, whose room is kept for the next job.
    pieces: VecDeque<VecDeque<JobId>>,
    len: usize,
}

impl JobLane {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The piece in which a job is or would be, unless it comes after all.
    fn piece(&self, job: JobId) -> usize {
        self.pieces.partition_point(|piece| piece.back().is_none_or(|last| *last < job))
    }

    pub(super) fn contains(&self, job: JobId) -> bool {
        self.pieces.get(self.piece(job)).is_some_and(|piece| piece.binary_search(&job).is_ok())
    }

    /// The jobs from this id on, in order.
    pub(super) fn since(&self, first: JobId) -> impl Iterator<Item = JobId> {
        let pieces = self.pieces.iter().skip(self.piece(first)).flatten();
        pieces.copied().skip_while(move |job| *job < first)
    }

    /// How many jobs come before one.
    pub(super) fn before(&self, job: JobId) -> usize {
        let at = self.piece(job);
        let within = self.pieces.get(at).map_or(0, |piece| piece.partition_point(|j| *j < job));
        self.pieces.iter().take(at).map(VecDeque::len).sum::<usize>() + within
    }

    /// Puts a job in; false when it is in.
    pub(super) fn push(&mut self, job: JobId) -> bool {
        let at = self.piece(job);
        if at < self.pieces.len() {
            // A held job may come after one that was asked for later.
            let piece = &mut self.pieces[at];
            let Err(place) = piece.binary_search(&job) else { return false };
            piece.insert(place, job);
            if piece.len() > PIECE {
                let half = piece.split_off(PIECE / 2);
                self.pieces.insert(at + 1, half);
            }
        } else {
            match self.pieces.back_mut() {
                Some(last) if last.len() < PIECE => last.push_back(job),
                Some(_) | None => self.pieces.push_back([job].into()),
            }
        }
        self.len += 1;
        true
    }

    /// Takes a job out; false when it is not in.
    pub(super) fn remove(&mut self, job: JobId) -> bool {
        let at = self.piece(job);
        let Some(piece) = self.pieces.get_mut(at) else { return false };
        let Ok(place) = piece.binary_search(&job) else { return false };
        piece.remove(place);
        self.taken_from(at);
        true
    }

    /// Takes out the job that came first.
    #[cfg(test)]
    pub(super) fn pop(&mut self) -> Option<JobId> {
        let job = self.pieces.front_mut()?.pop_front()?;
        self.taken_from(0);
        Some(job)
    }

    /// A job was taken out of this piece.
    fn taken_from(&mut self, at: usize) {
        self.len -= 1;
        let is_one_of_many = self.pieces.len() > 1;
        let piece = &mut self.pieces[at];
        if piece.is_empty() && is_one_of_many {
            self.pieces.remove(at);
        } else if piece.capacity() > ROOM_KEPT && piece.len() < piece.capacity() / 4 {
            piece.shrink_to(piece.capacity() / 2);
        }
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(super) fn check(&self) {
        assert_eq!(self.pieces.iter().map(VecDeque::len).sum::<usize>(), self.len);
        assert!(self.pieces.iter().flatten().is_sorted(), "a lane is sorted");
        let full = |piece: &VecDeque<JobId>| !piece.is_empty() && piece.len() <= PIECE;
        let kept = self.len == 0 && self.pieces.len() == 1;
        assert!(kept || self.pieces.iter().all(full), "a piece is empty or too long");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    /// Whatever comes, goes, and comes late: the same as a sorted set, in pieces that stay short,
    /// however many wait. Nothing that waits is moved but in its own piece.
    #[test]
    fn lane_is_a_sorted_set() {
        let (mut lane, mut set) = (JobLane::default(), BTreeSet::new());
        let mut random = 1_u64;
        for turn in 0..60_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            let early = JobId::new((random >> 20) % (turn + 1));
            // More at first, then fewer.
            let grows = turn < 20_000 || turn % 4 == 0;
            match random >> 61 {
                0 => assert_eq!(lane.pop(), set.pop_first()),
                1 => assert_eq!(lane.push(early), set.insert(early)),
                _ if grows => assert_eq!(lane.push(JobId::new(turn)), set.insert(JobId::new(turn))),
                _ => assert_eq!(lane.remove(early), set.remove(&early)),
            }
            assert_eq!((lane.len(), lane.contains(early)), (set.len(), set.contains(&early)));
            if turn % 500 == 0 {
                lane.check();
                assert!(lane.pieces.iter().flatten().eq(&set));
            }
        }
        assert!(lane.pieces.len() > 1, "one piece was enough");
        while let Some(first) = set.pop_first() {
            assert_eq!(lane.pop(), Some(first));
        }
        assert_eq!(lane.pop(), None);
        lane.check();
    }

    /// Cancelling every job frees its room.
    #[test]
    fn what_is_hardly_used_is_given_back() {
        let mut lane = JobLane::default();
        (0..100_000).for_each(|job| _ = lane.push(JobId::new(job)));
        (0..100_000).filter(|job| job % 500 > 0).for_each(|job| _ = lane.remove(JobId::new(job)));
        lane.check();
        let room: usize = lane.pieces.iter().map(VecDeque::capacity).sum();
        assert!(room <= lane.pieces.len() * 2 * ROOM_KEPT, "{room} for {}", lane.len());
    }
}
