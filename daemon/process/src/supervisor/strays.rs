//! Attribution of processes to a part of a job's life by their birth, and the end of those.
//!
//! A start time is told in clock ticks, usually of 10 ms. A process started in the same tick as the
//! instant in question counts as started after it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroI32;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::proc::descent::Followed;
use crate::proc::table::{KILL, Stat, TERMINATE};

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

    /// Number of live processes born in or after a clock tick; `None` if it cannot be known.
    pub(crate) fn born_since(&self, tick: u64) -> Option<u32> {
        let born = self.alive().into_iter().filter(|(_, stat)| stat.start >= tick).count();
        (self.is_complete || born > 0).then(|| u32::try_from(born).unwrap_or(u32::MAX))
    }

    /// CPU time of the live processes and of those that they reaped, in clock ticks.
    pub(crate) fn cpu(&self) -> u64 {
        let stats = self.pids().filter_map(Stat::of);
        stats.map(|stat| stat.cpu.saturating_add(stat.reaped_cpu)).fold(0, u64::saturating_add)
    }
}

/// An order to end the processes of a job that were born after an instant.
#[derive(Debug)]
pub(crate) struct Strays {
    /// Number of the order, repeated in its report.
    pub(crate) ticket: u64,
    /// Clock ticks of the instant and of the order.
    since: u64,
    until: u64,
    known: Followed,
    /// Process id and start time of each process that received a signal.
    signalled: BTreeMap<NonZeroI32, u64>,
    kill_at: Instant,
    is_killing: bool,
    clean_looks: u32,
}

impl Strays {
    /// An order given at the clock tick `until`.
    pub(crate) fn new(ticket: u64, since: u64, until: u64, grace: Duration) -> Self {
        let now = Instant::now();
        Self {
            ticket,
            since,
            until,
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

    /// Finds strays: processes born after the instant.
    ///
    /// Of those born after the order, only descendants of strays and orphans count: the others
    /// belong to later work of the job, which is none of this order's business.
    fn find(&mut self, members: &Members) {
        for (pid, stat) in members.alive() {
            let is_orphan =
                NonZeroI32::new(stat.parent).is_none_or(|parent| !members.pids.contains(&parent));
            if stat.start >= self.since && (stat.start <= self.until || is_orphan) {
                self.known.add(pid, stat);
            }
        }
        // Adds their descendants and forgets the dead.
        self.known.refresh();
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
