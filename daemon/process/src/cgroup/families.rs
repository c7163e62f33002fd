//! Families: the processes of jobs that their control groups may not show.
//!
//! A process can be moved to another control group: `su` and `sudo` with pam_systemd, podman and
//! systemd-run do that to their children. It stays a descendant of its job. So the supervisor looks
//! below every process of a group, and where orphans come to this process it looks through them
//! too, and finds out whose they are.
//!
//! That no orphan is left is proven, not guessed. A list of children only grows at its end while it
//! is read, since a child leaves it when it is reaped, and only this thread does that. An orphan
//! that a look has missed was therefore the child of one that has exited meanwhile. So a look that
//! found nothing to reap has missed nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::num::NonZeroI32;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::ids::JobId;
use rustix::fs::fstat;
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, waitid};

use crate::cgroup::roll::{Line, Roll};
use crate::cgroup::{self, Group};
use crate::launch::environment::JOB;
use crate::proc::descent::Followed;
use crate::proc::lineage::Lineage;
use crate::proc::table::{self, Blind, KILL, Stat};

/// How long after its start a job is looked at for processes that left its group.
const LOOK_FIRST: Duration = Duration::from_millis(50);
/// The longest pause between two looks at one job; they get rarer up to that.
const LOOK_LAST: Duration = Duration::from_secs(1);
/// Looks take at most one part in this many of the thread's time.
const LOOK_SHARE: u32 = 50;
/// How often orphans are looked through while some of them exit.
const ROUNDS_MAX: u32 = 8;
/// Lines of the keeper's roll that one job may have.
const LINES_MAX: usize = 1024;
/// Descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 256;
/// How long the looks of one tick may take, but for the last of them.
const LOOKS_WITHIN: Duration = Duration::from_millis(1);
/// Bytes of an environment that are searched for the name of a job.
const ENVIRONMENT_BYTES_MAX: u64 = 256 * 1024;

/// The families of all jobs that are held by control groups.
#[derive(Debug)]
pub(crate) struct Families {
    /// Whether orphans come to this process, and how sure it is that they are of its jobs.
    orphanage: Orphanage,
    families: BTreeMap<JobId, Family>,
    /// The orphans that have come, until they are reaped.
    orphans: BTreeMap<NonZeroI32, Owner>,
    /// Orphans of jobs that have ended.
    unowned: Followed,
    /// `None` where no keeper would read it.
    roll: Option<Roll>,
    looked: Instant,
    /// Whether the orphans were looked through in this turn.
    is_fresh: bool,
}

/// Which orphans come to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Orphanage {
    /// None that are of its business.
    Closed,
    /// Those of its own descendants.
    Own,
    /// All of this process namespace, of which it is the first process.
    All,
}

#[derive(Debug)]
struct Family {
    /// The command, until it was reaped.
    leader: Option<Pid>,
    /// The session and the process group that it leads, or led.
    session: i32,
    /// How the place of its group ends in `/proc/<pid>/cgroup`.
    mark: String,
    /// Its output and progress pipes, by their inodes: they have no other holders but us.
    pipes: Vec<u64>,
    /// Processes known by descent. Most have left the group, or came as orphans.
    kin: Followed,
    /// The leader's line on the roll, then those of its kin.
    leader_line: Option<Line>,
    lines: BTreeMap<(NonZeroI32, u64), Line>,
    look_at: Instant,
    pause: Duration,
}

/// The job that an orphan is of.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    Job(JobId),
    /// One of these, or one that has ended.
    OneOf(BTreeSet<JobId>),
}

impl Families {
    pub(crate) fn new(orphanage: Orphanage, roll: Option<Roll>) -> Self {
        Self {
            orphanage,
            families: BTreeMap::new(),
            orphans: BTreeMap::new(),
            unowned: Followed::default(),
            roll,
            looked: Instant::now(),
            is_fresh: false,
        }
    }

    /// Whether orphans are taken in here, and reaped by nothing else.
    pub(crate) fn adopts(&self) -> bool {
        self.orphanage != Orphanage::Closed
    }

    /// Time has passed: what was seen of the orphans may not hold any more.
    pub(crate) const fn new_turn(&mut self) {
        self.is_fresh = false;
    }

    /// The roll, for a keeper.
    pub(crate) fn roll(&self) -> Option<BorrowedFd<'_>> {
        self.roll.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    /// A job has begun.
    pub(crate) fn begin(&mut self, job: JobId, leader: Pid, group: &Group, theirs: &[OwnedFd; 4]) {
        let [_, own @ ..] = theirs;
        let leader_line = self.roll.as_mut().and_then(|roll| roll.enter(leader, None));
        let family = Family {
            leader: Some(leader),
            session: leader.as_raw_nonzero().get(),
            mark: group.mark().to_owned(),
            pipes: own.iter().filter_map(|fd| fstat(fd).ok()).map(|found| found.st_ino).collect(),
            kin: Followed::default(),
            leader_line,
            lines: BTreeMap::new(),
            look_at: Instant::now() + LOOK_FIRST,
            pause: LOOK_FIRST,
        };
        self.families.insert(job, family);
    }

    /// The command of a job was reaped: its number may be given to another process.
    pub(crate) fn forget_leader(&mut self, job: JobId) {
        let Some(family) = self.families.get_mut(&job) else { return };
        family.leader = None;
        if let (Some(line), Some(roll)) = (family.leader_line.take(), &mut self.roll) {
            roll.strike(line);
        }
    }

    /// A job has ended.
    pub(crate) fn end(&mut self, job: JobId) {
        let Some(family) = self.families.remove(&job) else { return };
        if let Some(roll) = &mut self.roll {
            family.leader_line.into_iter().chain(family.lines.into_values()).for_each(|line| {
                roll.strike(line);
            });
        }
        let mut orphans = std::mem::take(&mut self.orphans);
        for (raw, owner) in &mut orphans {
            if let Owner::OneOf(jobs) = owner
                && jobs.remove(&job)
                && let Some(pid) = Pid::from_raw(raw.get())
            {
                *owner = self.settle_owner(pid, std::mem::take(jobs));
            }
        }
        self.orphans = orphans;
    }

    /// An orphan of one of these jobs, if that can be told apart.
    fn settle_owner(&mut self, pid: Pid, jobs: BTreeSet<JobId>) -> Owner {
        let stat = Stat::of(pid).filter(|_| self.orphanage == Orphanage::Own);
        let Some(stat) = stat else { return Owner::OneOf(jobs) };
        let mut candidates = jobs.iter();
        match (candidates.next().copied(), candidates.next()) {
            // The job that left it has ended.
            (None, _) => {
                self.unowned.add(pid, stat);
                Owner::OneOf(jobs)
            }
            (Some(job), None) => {
                self.add(job, pid, stat);
                Owner::Job(job)
            }
            (Some(_), Some(_)) => Owner::OneOf(jobs),
        }
    }

    fn add(&mut self, job: JobId, pid: Pid, stat: Stat) {
        if let Some(family) = self.families.get_mut(&job) {
            family.kin.add(pid, stat);
            family.write_down(self.roll.as_mut());
        }
    }

    /// Reaps the orphans that have exited and finds out whose the others are. False when there may
    /// be more of them than were seen.
    pub(crate) fn take_in(&mut self, own_children: &BTreeSet<NonZeroI32>) -> bool {
        if !self.adopts() {
            return true;
        }
        self.is_fresh = true;
        for _ in 0..ROUNDS_MAX {
            match self.look_at_orphans(own_children) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(Blind) => return false,
            }
        }
        false
    }

    /// As [`Families::take_in`], once a turn.
    pub(crate) fn take_in_once(&mut self, own_children: &BTreeSet<NonZeroI32>) {
        if !self.is_fresh {
            self.take_in(own_children);
        }
    }

    /// Takes one look; returns how many were reaped.
    fn look_at_orphans(&mut self, own_children: &BTreeSet<NonZeroI32>) -> Result<usize, Blind> {
        let mut reaped = 0;
        for pid in table::adopted()? {
            let raw = pid.as_raw_nonzero();
            if own_children.contains(&raw) {
                continue;
            }
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            match retry_on_intr(|| waitid(WaitId::Pid(pid), options)) {
                Ok(None) if !self.orphans.contains_key(&raw) => {
                    let owner = self.find_owner(pid);
                    self.orphans.insert(raw, owner);
                }
                Ok(None) => {}
                Ok(Some(_)) => {
                    reaped += 1;
                    self.orphans.remove(&raw);
                }
                Err(_) => _ = self.orphans.remove(&raw),
            }
        }
        Ok(reaped)
    }

    /// The job that an orphan is of.
    fn find_owner(&mut self, pid: Pid) -> Owner {
        let all = || self.families.keys().copied().collect();
        let Some(stat) = Stat::of(pid) else { return Owner::OneOf(all()) };
        let found = self.known_owner(pid, stat);
        let found = found.or_else(|| {
            let name = named_in_environment(pid)?;
            self.find(|job, _| job.to_string().as_bytes() == name)
        });
        let found = found.or_else(|| {
            let pipes = pipes(pid);
            self.find(|_, family| family.pipes.iter().any(|pipe| pipes.contains(pipe)))
        });
        // Last: it may have moved to the group of another job.
        let found = found.or_else(|| {
            let group = cgroup::of(pid)?;
            self.find(|_, family| cgroup::is_in(&group, &family.mark))
        });
        match found {
            Some(job) => {
                self.add(job, pid, stat);
                Owner::Job(job)
            }
            None => {
                let all = all();
                tracing::debug!(pid = stat.parent, "an orphan that any job may have left");
                self.settle_owner(pid, all)
            }
        }
    }

    /// The job that has a process, or a process of the same session, among those it knows.
    fn known_owner(&self, pid: Pid, stat: Stat) -> Option<JobId> {
        let is_led = |family: &Family| [stat.session, stat.group].contains(&family.session);
        self.find(|_, family| family.kin.has(pid, stat))
            .or_else(|| self.find(|_, family| is_led(family)))
            .or_else(|| self.find(|_, family| family.kin.has_session(stat.session)))
    }

    /// The newest job of which something holds: an old one may have had the same numbers.
    fn find(&self, holds: impl Fn(JobId, &Family) -> bool) -> Option<JobId> {
        self.families.iter().rev().find(|(job, family)| holds(**job, family)).map(|(job, _)| *job)
    }

    /// Follows the descent of a job: below its command, the processes of its group, and those that
    /// are known already. False when some could not be looked at.
    pub(crate) fn follow(&mut self, job: JobId, group: &Group) -> bool {
        let Some(family) = self.families.get_mut(&job) else { return true };
        let members: BTreeSet<NonZeroI32> =
            group.processes().into_iter().map(Pid::as_raw_nonzero).collect();
        let roots = members.iter().filter_map(|raw| Pid::from_raw(raw.get()));
        let mut is_complete = true;
        for root in family.leader.into_iter().chain(roots) {
            is_complete &= family.kin.add_children(root, &members);
        }
        is_complete &= family.kin.refresh();
        family.write_down(self.roll.as_mut());
        is_complete
    }

    /// Whether a process of the job is alive that its group does not have, or may be. Right once
    /// orphans were taken in after the end of its command and of all of its group.
    pub(crate) fn has_kin(&mut self, job: JobId) -> bool {
        let Some(family) = self.families.get_mut(&job) else { return false };
        !family.kin.is_empty() && (!family.kin.refresh() || !family.kin.is_empty())
    }

    /// Those processes, as they were found last.
    pub(crate) fn kin(&self, job: JobId) -> Vec<Pid> {
        let family = self.families.get(&job);
        family.map_or(Vec::new(), |f| f.kin.all().into_iter().map(|(pid, _)| pid).collect())
    }

    /// Whether a process, or an ancestor of it, was found by the descent of a job.
    pub(crate) fn holds(&self, job: JobId, lineage: &Lineage) -> bool {
        let family = self.families.get(&job);
        family.is_some_and(|family| lineage.any(|pid, stat| family.kin.has(pid, stat)))
    }

    /// Whether an orphan is alive that may be the job's, or another's.
    pub(crate) fn may_have_lost(&self, job: JobId) -> bool {
        self.orphans
            .values()
            .any(|owner| matches!(owner, Owner::OneOf(jobs) if jobs.contains(&job)))
    }

    /// Sends signals to the processes of a job that were found by descent, but not to `told`; adds
    /// those that took one.
    pub(crate) fn signal(
        &self,
        job: JobId,
        signals: &[Signal],
        told: Option<&BTreeSet<NonZeroI32>>,
    ) -> Vec<NonZeroI32> {
        let mut signalled = Vec::new();
        if let Some(family) = self.families.get(&job) {
            let is_new = |pid: Pid| told.is_none_or(|told| !told.contains(&pid.as_raw_nonzero()));
            family.kin.signal(signals, is_new, |pid| signalled.push(pid.as_raw_nonzero()));
        }
        signalled
    }

    /// When [`Families::tick`] is due, if ever.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let is_idle = self.families.is_empty() && self.unowned.is_empty();
        (!is_idle).then(|| LOOK_FIRST.saturating_sub(self.looked.elapsed()))
    }

    /// Looks at orphans, and says which jobs are to be followed now.
    pub(crate) fn tick(&mut self, own_children: &BTreeSet<NonZeroI32>) -> Vec<JobId> {
        if self.due_in() != Some(Duration::ZERO) {
            return Vec::new();
        }
        self.looked = Instant::now();
        self.take_in(own_children);
        if !self.unowned.is_empty() {
            self.unowned.refresh();
            self.unowned.signal(
                KILL,
                |_| true,
                |pid| {
                    let pid = pid.as_raw_nonzero();
                    tracing::warn!(%pid, "killed a process that a job had left behind");
                },
            );
        }
        let now = self.looked;
        self.families.iter().filter(|(_, f)| f.look_at <= now).map(|(job, _)| *job).collect()
    }

    /// Whether the looks of this tick have taken all of its time.
    pub(crate) fn is_late(&self) -> bool {
        self.looked.elapsed() > LOOKS_WITHIN
    }

    /// A job was followed in a tick, which took so long.
    pub(crate) fn put_off(&mut self, job: JobId, took: Duration) {
        if let Some(family) = self.families.get_mut(&job) {
            family.pause = (family.pause * 2).min(LOOK_LAST).max(took * LOOK_SHARE);
            family.look_at = Instant::now() + family.pause;
        }
    }
}

impl Family {
    /// Writes down for the keeper what is known of the family and not written yet.
    fn write_down(&mut self, roll: Option<&mut Roll>) {
        let Some(roll) = roll else { return };
        let known = self.kin.all();
        if known.len() < self.lines.len() {
            let gone = |(pid, start): &(NonZeroI32, u64)| {
                !known.iter().any(|(p, s)| p.as_raw_nonzero() == *pid && s == start)
            };
            self.lines.extract_if(.., |key, _| gone(key)).for_each(|(_, line)| roll.strike(line));
        }
        for (pid, start) in known {
            let key = (pid.as_raw_nonzero(), start);
            if self.lines.len() < LINES_MAX
                && !self.lines.contains_key(&key)
                && let Some(line) = roll.enter(pid, Some(start))
            {
                self.lines.insert(key, line);
            }
        }
    }
}

/// The job that a process's environment names.
fn named_in_environment(pid: Pid) -> Option<Vec<u8>> {
    let file = fs::File::open(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let mut bytes = Vec::new();
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let mut variables = bytes.split(|byte| *byte == 0);
    variables
        .find_map(|pair| pair.strip_prefix(JOB.as_bytes())?.strip_prefix(b"="))
        .map(<[u8]>::to_vec)
}

/// The pipes that a process holds, by their inodes.
fn pipes(pid: Pid) -> BTreeSet<u64> {
    let entries = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()));
    let links = entries.into_iter().flatten().flatten().take(DESCRIPTORS_MAX);
    let named = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode =
        |name: PathBuf| name.to_str()?.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok();
    named.filter_map(inode).collect()
}

/// Which orphans come to this process, if it adopts them.
pub(crate) fn orphanage(adopts: bool) -> Orphanage {
    match (adopts, getpid().as_raw_nonzero().get()) {
        (false, _) => Orphanage::Closed,
        (true, 1) => Orphanage::All,
        (true, _) => Orphanage::Own,
    }
}
