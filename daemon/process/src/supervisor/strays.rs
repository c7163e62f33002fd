//! Attribution of processes to a part of a job's life by their birth, and the end of those.
//!
//! A start time is told in clock ticks, usually of 10 ms. A process started in the same tick as the
//! instant in question counts as started after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem;
use std::num::NonZeroI32;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::proc::boot_clock::BootClock;
use crate::proc::descent::Followed;
use crate::proc::table::{KILL, Stat, TERMINATE};
use crate::supervisor::report::Births;

/// Time for processes to end after SIGKILL, which is repeated meanwhile. The kernel ends a process
/// at once unless it waits for a device or is being traced.
const KILLED_WITHIN: Duration = Duration::from_secs(5);
/// Consecutive looks that must find no process: one may miss a process that is just being started.
const CLEAN_LOOKS: u32 = 2;

/// The processes of a job.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Ids of live processes, and perhaps of dead ones.
    pids: BTreeSet<NonZeroI32>,
    /// The command, which is never born after the start of its job.
    leader: Option<Pid>,
    /// Whether no process of the job can be missing.
    pub(crate) is_complete: bool,
}

impl Members {
    pub(crate) fn new(
        found: impl IntoIterator<Item = Pid>,
        leader: Option<Pid>,
        is_complete: bool,
    ) -> Self {
        let pids = found.into_iter().map(Pid::as_raw_nonzero).collect();
        Self { pids, leader, is_complete }
    }

    fn pids(&self) -> impl Iterator<Item = Pid> {
        self.pids.iter().filter_map(|raw| Pid::from_raw(raw.get()))
    }

    /// The live processes except the command, with their data.
    fn alive(&self) -> Vec<(Pid, Stat)> {
        let others = self.pids().filter(|pid| Some(*pid) != self.leader);
        let looked = others.filter_map(|pid| Some((pid, Stat::of(pid)?)));
        looked.filter(|(_, stat)| !stat.is_dead).collect()
    }

    /// Number of live processes of these births; `None` if it cannot be known.
    pub(crate) fn born(&self, births: &BirthTicks) -> Option<u32> {
        let born = births.pick(self.alive()).len();
        (self.is_complete || born > 0).then(|| u32::try_from(born).unwrap_or(u32::MAX))
    }

    /// CPU time of the live processes and of those that they reaped, in clock ticks.
    pub(crate) fn cpu(&self) -> u64 {
        let stats = self.pids().filter_map(Stat::of);
        stats.map(|stat| stat.cpu.saturating_add(stat.reaped_cpu)).fold(0, u64::saturating_add)
    }

    /// Time that the threads of the live processes have waited for a CPU.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.pids().filter_map(waited).reduce(Duration::saturating_add)
    }
}

/// Threads of one process at most whose waits are read: each costs a system call or three.
const THREADS_MAX: usize = 1024;

/// Time that the live threads of a process have waited for a CPU; `None` if the kernel does not say.
fn waited(pid: Pid) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    let of = |text: String| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
    let waits = threads
        .take(THREADS_MAX)
        .filter_map(|thread| of(fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?));
    waits.reduce(u64::saturating_add).map(Duration::from_nanos)
}

/// Longest difference between the birth of a root and the announcement of its work, in ticks of
/// usually 10 ms, for matching them in their order.
const MATCHED_WITHIN: u64 = 100;

/// [`Births`] in clock ticks.
#[derive(Debug, Clone)]
pub(crate) struct BirthTicks {
    since: u64,
    floor: u64,
    other: Option<u64>,
    works: Vec<(u64, bool)>,
}

impl BirthTicks {
    /// `None` if an instant has no known tick.
    pub(crate) fn of(births: &Births, clock: &BootClock) -> Option<Self> {
        let works = births.works.iter();
        Some(Self {
            since: clock.tick_of(births.since)?,
            floor: clock.tick_of(births.floor)?,
            other: match births.other {
                Some(other) => Some(clock.tick_of(other)?),
                None => None,
            },
            works: works
                .map(|(at, is_meant)| Some((clock.tick_of(*at)?, *is_meant)))
                .collect::<Option<_>>()?,
        })
    }

    /// Those of the processes that are meant.
    fn pick(&self, mut alive: Vec<(Pid, Stat)>) -> Vec<(Pid, Stat)> {
        if !self.works.is_empty() {
            let starts: BTreeMap<i32, (u64, i32)> = { alive.iter() }
                .map(|(pid, stat)| (pid.as_raw_nonzero().get(), (stat.start, stat.parent)))
                .collect();
            let root = |pid: i32| root_of(&starts, pid, self.floor);
            let roots: BTreeSet<(u64, i32)> = starts.keys().filter_map(|pid| root(*pid)).collect();
            let meant = self.meant(&roots.into_iter().collect::<Vec<_>>());
            alive.retain(|(pid, _)| {
                root(pid.as_raw_nonzero().get()).is_some_and(|root| meant.contains(&root))
            });
        }
        alive.retain(|(_, stat)| stat.start >= self.since);
        alive
    }

    /// Whether a process of this birth is, or descends from, a root of one of several works.
    const fn has_root(&self, start: u64) -> bool {
        !self.works.is_empty() && start >= self.floor
    }

    /// The roots whose works are meant, of all roots in the order of their births.
    fn meant(&self, roots: &[(u64, i32)]) -> BTreeSet<(u64, i32)> {
        let pairs = || roots.iter().zip(&self.works);
        let is_matched = roots.len() == self.works.len()
            && pairs().all(|((start, _), (at, _))| start.abs_diff(*at) <= MATCHED_WITHIN);
        if is_matched {
            let meant = pairs().filter(|(_, (_, is_meant))| *is_meant);
            return meant.map(|(root, _)| *root).collect();
        }
        let other = self.other.map(|at| (at, true));
        let is_meant = |start: u64| {
            let all = self.works.iter().copied().chain(other);
            // Of two that are equally close the one that is spared counts.
            let closest = all.min_by_key(|(at, is_meant)| (start.abs_diff(*at), *is_meant));
            closest.is_some_and(|(_, is_meant)| is_meant)
        };
        roots.iter().filter(|(start, _)| is_meant(*start)).copied().collect()
    }
}

/// Birth and id of the first ancestor of a process that was born since `floor`, of these processes
/// with their births and parents; `None` for one that was born before.
fn root_of(starts: &BTreeMap<i32, (u64, i32)>, pid: i32, floor: u64) -> Option<(u64, i32)> {
    let (mut root, mut at) = (None, pid);
    // An id may be used again while the processes are looked at.
    for _ in 0..=starts.len() {
        let Some((start, parent)) = starts.get(&at).filter(|(start, _)| *start >= floor) else {
            break;
        };
        (root, at) = (Some((*start, at)), *parent);
    }
    root
}

/// An order to end the processes of a job that have these births.
#[derive(Debug)]
pub(crate) struct Strays {
    /// Number of the order, repeated in its report.
    pub(crate) ticket: u64,
    /// The processes, and the clock tick of the order.
    births: BirthTicks,
    until: u64,
    /// Whether each live process, by its id and birth, is one of the births: its root may be dead in
    /// the next look, and the roots that are left tell less.
    decided: BTreeMap<(NonZeroI32, u64), bool>,
    known: Followed,
    /// Process id and start time of each process that received a signal.
    signalled: BTreeMap<NonZeroI32, u64>,
    kill_at: Instant,
    is_killing: bool,
    clean_looks: u32,
}

impl Strays {
    /// An order given at the clock tick `until`.
    pub(crate) fn new(ticket: u64, births: BirthTicks, until: u64, grace: Duration) -> Self {
        let now = Instant::now();
        Self {
            ticket,
            births,
            until,
            decided: BTreeMap::new(),
            known: Followed::default(),
            signalled: BTreeMap::new(),
            kill_at: now.checked_add(grace).unwrap_or(now),
            is_killing: false,
            clean_looks: 0,
        }
    }

    /// When SIGKILL is due; `None` once it was sent.
    pub(crate) fn kill_due(&self) -> Option<Instant> {
        (!self.is_killing).then_some(self.kill_at)
    }

    /// Looks for strays and signals them: SIGTERM once, SIGKILL in each look after the grace. True
    /// if none is left, or if those left do not end.
    pub(crate) fn look(&mut self, members: &Members, now: Instant) -> bool {
        self.find(members);
        self.is_killing |= now >= self.kill_at;
        self.signal_known();
        self.clean_looks = if self.known.is_empty() { self.clean_looks + 1 } else { 0 };
        self.clean_looks >= CLEAN_LOOKS || now >= self.kill_at + KILLED_WITHIN
    }

    /// Sends SIGKILL to the known strays once their grace is over: the next look at the process table
    /// takes time.
    pub(crate) fn kill_known(&mut self, now: Instant) {
        if !self.is_killing && now >= self.kill_at {
            self.is_killing = true;
            self.signal_known();
        }
    }

    /// Signals the known strays: SIGTERM once, SIGKILL each time.
    fn signal_known(&mut self) {
        let signals = if self.is_killing { KILL } else { TERMINATE };
        let (old, is_killing) = (&self.signalled, self.is_killing);
        let is_new = |pid: Pid| is_killing || !old.contains_key(&pid.as_raw_nonzero());
        let mut new = BTreeSet::new();
        self.known.signal(signals, is_new, |pid| _ = new.insert(pid.as_raw_nonzero()));
        let all = self.known.all();
        let told = all.iter().map(|(pid, start)| (pid.as_raw_nonzero(), *start));
        self.signalled.extend(told.filter(|(pid, _)| new.contains(pid)));
    }

    /// Finds strays: processes of the births.
    ///
    /// Of those born after the order, only descendants of strays and orphans count: the others
    /// belong to later work of the job, which is none of this order's business.
    fn find(&mut self, members: &Members) {
        for (pid, stat) in self.decide(members.alive()) {
            let is_orphan =
                NonZeroI32::new(stat.parent).is_none_or(|parent| !members.pids.contains(&parent));
            if stat.start <= self.until || is_orphan {
                self.known.add(pid, stat);
            }
        }
        // Adds their descendants and forgets the dead.
        self.known.refresh();
    }

    /// Those of the live processes that are of the births: as an earlier look has found them, or as
    /// their parent is.
    fn decide(&mut self, mut alive: Vec<(Pid, Stat)>) -> Vec<(Pid, Stat)> {
        let picked = self.births.pick(alive.clone());
        let picked: BTreeSet<NonZeroI32> =
            picked.into_iter().map(|(pid, _)| pid.as_raw_nonzero()).collect();
        // A parent is older than its children.
        alive.sort_by_key(|(pid, stat)| (stat.start, pid.as_raw_nonzero()));
        let before = mem::take(&mut self.decided);
        let mut by_parent: BTreeMap<i32, bool> = BTreeMap::new();
        alive.retain(|(pid, stat)| {
            let pid = pid.as_raw_nonzero();
            let known = before.get(&(pid, stat.start)).or_else(|| by_parent.get(&stat.parent));
            let is_meant = known.copied().unwrap_or_else(|| picked.contains(&pid));
            self.decided.insert((pid, stat.start), is_meant);
            if is_meant || self.births.has_root(stat.start) {
                by_parent.insert(pid.get(), is_meant);
            }
            is_meant
        });
        alive
    }

    /// Numbers of ended and of remaining processes.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let left: BTreeMap<NonZeroI32, u64> =
            self.known.all().into_iter().map(|(pid, at)| (pid.as_raw_nonzero(), at)).collect();
        let is_left = |(pid, start): &(&NonZeroI32, &u64)| left.get(pid) == Some(*start);
        let ended = self.signalled.iter().filter(|process| !is_left(process)).count();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (number(ended), number(left.len()))
    }

    /// Number of processes signalled so far.
    pub(crate) fn signalled(&self) -> u32 {
        u32::try_from(self.signalled.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn births(floor: u64, other: Option<u64>, works: &[(u64, bool)]) -> BirthTicks {
        BirthTicks { since: floor, floor, other, works: works.to_vec() }
    }

    fn meant(of: &BirthTicks, roots: &[(u64, i32)]) -> Vec<i32> {
        of.meant(roots).into_iter().map(|(_, pid)| pid).collect()
    }

    /// SUP-05, SUP-06: a root is of the work that was announced closest to its birth.
    #[test]
    fn roots_are_of_the_closest_work() {
        // Started before and after the announcement.
        let two = births(0, None, &[(100, true), (500, false)]);
        assert_eq!(meant(&two, &[(98, 7), (503, 8), (99, 9)]), [7, 9]);
        // Work of the turn, announced by no message, beside background work of an earlier turn.
        let turn = births(0, Some(900), &[(100, false)]);
        assert_eq!(meant(&turn, &[(101, 7), (950, 8)]), [8]);
        // In one tick the order decides.
        let same = births(0, Some(100), &[(100, false), (100, true)]);
        assert_eq!(meant(&same, &[(100, 7), (100, 8)]), [8]);
        assert_eq!(meant(&same, &[(100, 7), (100, 8), (100, 9)]), [0; 0]);
    }

    fn process(pid: i32, start: u64, parent: i32) -> (Pid, Stat) {
        let stat = Stat {
            is_dead: false,
            parent,
            group: pid,
            session: pid,
            start,
            cpu: 0,
            reaped_cpu: 0,
            resident: 0,
        };
        (Pid::from_raw(pid).unwrap(), stat)
    }

    /// SUP-06: an order keeps to the processes that it has found: the death of a root, which leaves
    /// as many roots as works, moves no other work into it.
    #[test]
    fn work_of_a_process_is_decided_once() {
        let two = births(0, None, &[(100, true), (100, false)]);
        let mut strays = Strays::new(1, two, 200, Duration::ZERO);
        let mut decide = |alive: &[(Pid, Stat)]| -> Vec<i32> {
            let meant = strays.decide(alive.to_vec()).into_iter();
            meant.map(|(pid, _)| pid.as_raw_nonzero().get()).collect()
        };
        let other = [process(8, 100, 1), process(10, 101, 8)];
        let first = [&[process(7, 100, 1), process(9, 101, 7)][..], &other].concat();
        assert_eq!(decide(&first), [7, 9]);
        let orphaned = [&[process(9, 101, 1)][..], &other, &[process(11, 102, 10)]].concat();
        assert_eq!(decide(&orphaned), [9]);
        assert_eq!(decide(&other), [0; 0]);
    }

    /// A descendant is of the work of its root, however late it was born; the program is of none.
    #[test]
    fn descendants_are_of_the_work_of_their_root() {
        let starts = BTreeMap::from([(2, (5, 1)), (3, (50, 2)), (4, (700, 3)), (5, (701, 2))]);
        assert_eq!(root_of(&starts, 4, 10), Some((50, 3)));
        assert_eq!(root_of(&starts, 5, 10), Some((701, 5)));
        assert_eq!(root_of(&starts, 2, 10), None);
        let circle = BTreeMap::from([(2, (5, 3)), (3, (6, 2))]);
        assert!(root_of(&circle, 2, 0).is_some());
    }
}
