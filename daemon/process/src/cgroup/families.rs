//! Families: processes of jobs that have left the jobs' control groups.
//!
//! A process can be moved to another control group: `su` and `sudo` with pam_systemd, podman and
//! systemd-run do that to their children. It stays a descendant of its job. So the supervisor scans
//! the descendants of every process of a group, and, if this process is a subreaper, also
//! identifies the jobs of orphans: see [`attribution`](crate::cgroup::attribution).
//!
//! The absence of orphans is proven. A list of children only grows at its end while it is read,
//! since a child leaves it when it is reaped, and only this thread reaps. An orphan missed by a
//! scan was therefore the child of a process that exited meanwhile. So a scan that found nothing to
//! reap has missed nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::num::NonZeroI32;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ids::JobId;
use rustix::fs::{FileType, fstat};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, waitid};

use crate::cgroup::attribution::{Owner, Traces};
use crate::cgroup::roll::{Line, Roll};
use crate::cgroup::{self, Group, Mark};
use crate::launch::environment::JOB;
use crate::proc::descent::Followed;
use crate::proc::lineage::Lineage;
use crate::proc::table::{self, Blind, KILL, Stat};

/// Delay of the first scan of a job after its start.
const LOOK_FIRST: Duration = Duration::from_millis(50);
/// Longest pause between two scans of a job; pauses grow up to that.
const LOOK_LAST: Duration = Duration::from_secs(1);
/// Scans take at most 1/N of the thread's time.
const LOOK_SHARE: u32 = 50;
/// Maximum number of scans of orphans while some of them exit.
const ROUNDS_MAX: u32 = 8;
/// Maximum number of lines of one job in the keeper's roll.
const LINES_MAX: usize = 1024;
/// Maximum number of descriptors of a process that are inspected.
const DESCRIPTORS_MAX: usize = 256;
/// Time budget of the scans of one tick, excluding the last one.
const LOOKS_WITHIN: Duration = Duration::from_millis(1);
/// Maximum bytes of an environment searched for the job variable.
const ENVIRONMENT_BYTES_MAX: u64 = 256 * 1024;

/// The families of all jobs contained by control groups.
#[derive(Debug)]
pub(crate) struct Families {
    /// Whether orphans are reparented to this process, and how certainly they belong to its jobs.
    orphan_origin: OrphanOrigin,
    families: BTreeMap<JobId, Family>,
    /// Orphans reparented to this process and not reaped yet.
    orphans: BTreeMap<NonZeroI32, Owner>,
    /// Orphans of ended jobs.
    unowned: Followed,
    /// `None` without a keeper to read it.
    roll: Option<Roll>,
    looked: Instant,
    /// Whether the orphans were scanned in this turn.
    is_fresh: bool,
}

/// Origin of the orphans reparented to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrphanOrigin {
    /// None that concern the supervisor.
    NotAdopted,
    /// Its own descendants.
    Own,
    /// All of this process namespace, of which this is the first process.
    All,
}

#[derive(Debug)]
struct Family {
    /// The command, until it is reaped.
    leader: Option<Pid>,
    /// Session and process group led by the command.
    session: i32,
    /// Clock tick in which it was about to start: no process of the job is older.
    begun: u64,
    /// Mark of the processes of its group.
    mark: Arc<Mark>,
    /// Inodes of its output and progress pipes, which only the job and the supervisor hold.
    pipes: Vec<u64>,
    /// Processes known by descent. Most have left the group, or are orphans.
    kin: Followed,
    /// Orphans that name this job, and may be of another one.
    claimants: Followed,
    /// The command's line on the roll, then those of its kin.
    leader_line: Option<Line>,
    lines: BTreeMap<(NonZeroI32, u64), Line>,
    look_at: Instant,
    pause: Duration,
}

impl Families {
    pub(crate) fn new(orphan_origin: OrphanOrigin, roll: Option<Roll>) -> Self {
        Self {
            orphan_origin,
            families: BTreeMap::new(),
            orphans: BTreeMap::new(),
            unowned: Followed::default(),
            roll,
            looked: Instant::now(),
            is_fresh: false,
        }
    }

    /// Whether this process adopts orphans, and is the only one that reaps them.
    pub(crate) fn adopts(&self) -> bool {
        self.orphan_origin != OrphanOrigin::NotAdopted
    }

    /// Invalidates the last scan of the orphans.
    pub(crate) const fn new_turn(&mut self) {
        self.is_fresh = false;
    }

    /// The roll, for the keeper.
    pub(crate) fn roll(&self) -> Option<BorrowedFd<'_>> {
        self.roll.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    /// Adds a job whose command was started in or after the clock tick `begun`.
    pub(crate) fn begin(
        &mut self,
        job: JobId,
        (leader, begun): (Pid, u64),
        group: &Group,
        theirs: &[OwnedFd; 4],
    ) {
        let [_, own @ ..] = theirs;
        let leader_line = self.roll.as_mut().and_then(|roll| roll.add(leader, None));
        let family = Family {
            leader: Some(leader),
            session: leader.as_raw_nonzero().get(),
            begun,
            mark: Arc::clone(group.mark()),
            pipes: own.iter().filter_map(pipe_inode).collect(),
            kin: Followed::default(),
            claimants: Followed::default(),
            leader_line,
            lines: BTreeMap::new(),
            look_at: Instant::now() + LOOK_FIRST,
            pause: LOOK_FIRST,
        };
        self.families.insert(job, family);
    }

    /// Forgets the command of a job, which was reaped: its process id may be reused.
    pub(crate) fn forget_leader(&mut self, job: JobId) {
        let Some(family) = self.families.get_mut(&job) else { return };
        family.leader = None;
        if let (Some(line), Some(roll)) = (family.leader_line.take(), &mut self.roll) {
            roll.clear(line);
        }
    }

    /// Removes a job, and kills the orphans that name it.
    pub(crate) fn end(&mut self, job: JobId) {
        let Some(family) = self.families.remove(&job) else { return };
        family.claimants.signal(KILL, |_| true, |_| {});
        if let Some(roll) = &mut self.roll {
            family.leader_line.into_iter().chain(family.lines.into_values()).for_each(|line| {
                roll.clear(line);
            });
        }
        for (raw, owner) in &mut self.orphans {
            if let Owner::OneOf { jobs, .. } = owner
                && jobs.remove(&job)
                && jobs.is_empty()
                && self.orphan_origin == OrphanOrigin::Own
                && let Some(pid) = Pid::from_raw(raw.get())
                && let Some(stat) = Stat::of(pid)
            {
                self.unowned.add(pid, stat);
            }
        }
    }

    fn add(&mut self, job: JobId, pid: Pid, stat: Stat) {
        if let Some(family) = self.families.get_mut(&job) {
            family.kin.add(pid, stat);
            family.write_down(self.roll.as_mut());
        }
    }

    /// Reaps exited orphans and finds the owners of the others. False if there may be more orphans.
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

    /// As [`Families::take_in`], at most once a turn.
    pub(crate) fn take_in_once(&mut self, own_children: &BTreeSet<NonZeroI32>) {
        if !self.is_fresh {
            self.take_in(own_children);
        }
    }

    /// Performs one scan; returns the number of reaped orphans.
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

    /// Finds the job of an orphan.
    fn find_owner(&mut self, pid: Pid) -> Owner {
        let Some(stat) = Stat::of(pid) else {
            return Owner::OneOf { jobs: self.families.keys().copied().collect(), claimed: None };
        };
        let owner = self.traces(pid, stat).owner();
        match &owner {
            Owner::Job(job) => self.add(*job, pid, stat),
            Owner::OneOf { jobs, claimed } => {
                tracing::debug!(%pid, "cannot determine the job of an orphan");
                if let Some(family) = claimed.and_then(|job| self.families.get_mut(&job)) {
                    family.claimants.add(pid, stat);
                }
                if jobs.is_empty() && self.orphan_origin == OrphanOrigin::Own {
                    self.unowned.add(pid, stat);
                }
            }
        }
        owner
    }

    /// The evidence about an orphan; that of the kernel alone, if it suffices.
    fn traces(&self, pid: Pid, stat: Stat) -> Traces {
        let shown = cgroup::of(pid);
        let of_kernel = Traces {
            descent: self.find(|_, family| family.kin.has(pid, stat)),
            session: self.owner_of_session(stat.session),
            group: self.find(|_, family| shown.as_ref().is_some_and(|at| family.mark.proves(at))),
            ..Traces::default()
        };
        if of_kernel != Traces::default() {
            return of_kernel;
        }
        let named = named_in_environment(pid);
        let named = named.and_then(|name| self.find(|job, _| job.to_string().as_bytes() == name));
        let claimed = named.or_else(|| {
            let pipes = pipes(pid);
            self.find(|_, family| family.pipes.iter().any(|pipe| pipes.contains(pipe)))
        });
        let possible = self.families.iter().filter(|(_, family)| family.begun <= stat.start);
        let possible = possible.map(|(job, _)| *job).collect();
        Traces { possible, has_strangers: self.has_strangers(), claimed, ..of_kernel }
    }

    /// The job of the live process that leads a session.
    fn owner_of_session(&self, session: i32) -> Option<JobId> {
        // A number is that of the command until the command is reaped.
        let is_led = |family: &Family| family.leader.is_some() && family.session == session;
        self.find(|_, family| is_led(family)).or_else(|| {
            let leader = Pid::from_raw(session)?;
            let stat = Stat::of(leader).filter(|stat| !stat.is_dead && stat.session == session)?;
            let shown = cgroup::of(leader)?;
            self.find(|_, family| family.kin.has(leader, stat) || family.mark.proves(&shown))
        })
    }

    /// Whether there are, or may be, processes whose job is unknown.
    pub(crate) fn has_strangers(&self) -> bool {
        let is_unknown = |owner: &Owner| matches!(owner, Owner::OneOf { .. });
        self.orphan_origin == OrphanOrigin::All && !self.orphans.is_empty()
            || !self.unowned.is_empty()
            || self.orphans.values().any(is_unknown)
    }

    /// The newest matching job: an older one may have had the same ids.
    fn find(&self, holds: impl Fn(JobId, &Family) -> bool) -> Option<JobId> {
        self.families.iter().rev().find(|(job, family)| holds(**job, family)).map(|(job, _)| *job)
    }

    /// Updates the kin of a job: descendants of its command, of the processes of its group, and of
    /// known kin. False if some could not be inspected.
    pub(crate) fn follow(&mut self, job: JobId, group: &Group) -> bool {
        let Some(family) = self.families.get_mut(&job) else { return true };
        let members: BTreeSet<NonZeroI32> =
            group.processes().into_iter().map(Pid::as_raw_nonzero).collect();
        let mut is_complete = true;
        if family.mark.was_entered() {
            // A process of another job may be in the group, and its children are not of this one.
            if let Some(leader) = family.leader {
                is_complete &= family.kin.add_below(leader, &members);
            }
        } else {
            let roots = members.iter().filter_map(|raw| Pid::from_raw(raw.get()));
            for root in family.leader.into_iter().chain(roots) {
                is_complete &= family.kin.add_children(root, &members);
            }
        }
        is_complete &= family.kin.refresh();
        family.write_down(self.roll.as_mut());
        is_complete
    }

    /// Whether a process of the job is, or may be, alive outside its group. Exact after orphans
    /// were taken in following the end of its command and group.
    pub(crate) fn has_kin(&mut self, job: JobId) -> bool {
        let Some(family) = self.families.get_mut(&job) else { return false };
        !family.kin.is_empty() && (!family.kin.refresh() || !family.kin.is_empty())
    }

    /// The kin found by the last scan.
    pub(crate) fn kin(&self, job: JobId) -> Vec<Pid> {
        let family = self.families.get(&job);
        family.map_or(Vec::new(), |f| f.kin.all().into_iter().map(|(pid, _)| pid).collect())
    }

    /// Whether a process or an ancestor of it is followed for a job, by whatever evidence. That
    /// gives it no identity (SEC-05).
    pub(crate) fn follows(&self, job: JobId, lineage: &Lineage) -> bool {
        let Some(family) = self.families.get(&job) else { return false };
        lineage.any(|pid, stat| family.kin.has(pid, stat) || family.claimants.has(pid, stat))
    }

    /// Whether a live orphan may belong to this job or another one.
    pub(crate) fn may_have_lost(&self, job: JobId) -> bool {
        let is_alive = |raw: &NonZeroI32| {
            let stat = Pid::from_raw(raw.get()).and_then(Stat::of);
            stat.is_some_and(|stat| !stat.is_dead)
        };
        self.orphans.iter().any(|(raw, owner)| {
            matches!(owner, Owner::OneOf { jobs, .. } if jobs.contains(&job)) && is_alive(raw)
        })
    }

    /// Whether an orphan that names the job is alive, or may be.
    pub(crate) fn has_claimants(&mut self, job: JobId) -> bool {
        let Some(family) = self.families.get_mut(&job) else { return false };
        !family.claimants.is_empty()
            && (!family.claimants.refresh() || !family.claimants.is_empty())
    }

    /// Sends signals to the orphans that name a job. They are not counted as its processes.
    pub(crate) fn signal_claimants(&self, job: JobId, signals: &[Signal]) {
        if let Some(family) = self.families.get(&job) {
            family.claimants.signal(signals, |_| true, |_| {});
        }
    }

    /// Sends signals to the kin of a job except those in `told`; adds the signalled ones to it.
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

    /// Time until [`Families::tick`] is due.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let is_idle = self.families.is_empty() && self.unowned.is_empty();
        (!is_idle).then(|| LOOK_FIRST.saturating_sub(self.looked.elapsed()))
    }

    /// Scans orphans, and returns the jobs due for a scan.
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
                    tracing::warn!(%pid, "killed a process left behind by a job");
                },
            );
        }
        let now = self.looked;
        self.families.iter().filter(|(_, f)| f.look_at <= now).map(|(job, _)| *job).collect()
    }

    /// Whether the scans of this tick have used up its time budget.
    pub(crate) fn is_late(&self) -> bool {
        self.looked.elapsed() > LOOKS_WITHIN
    }

    /// Schedules the next scan of a job after one that took this long.
    pub(crate) fn put_off(&mut self, job: JobId, took: Duration) {
        if let Some(family) = self.families.get_mut(&job) {
            family.pause = (family.pause * 2).min(LOOK_LAST).max(took * LOOK_SHARE);
            family.look_at = Instant::now() + family.pause;
        }
    }
}

impl Family {
    /// Enters new kin into the keeper's roll.
    fn write_down(&mut self, roll: Option<&mut Roll>) {
        let Some(roll) = roll else { return };
        let known = self.kin.all();
        if known.len() < self.lines.len() {
            let gone = |(pid, start): &(NonZeroI32, u64)| {
                !known.iter().any(|(p, s)| p.as_raw_nonzero() == *pid && s == start)
            };
            self.lines.extract_if(.., |key, _| gone(key)).for_each(|(_, line)| roll.clear(line));
        }
        for (pid, start) in known {
            let key = (pid.as_raw_nonzero(), start);
            if self.lines.len() < LINES_MAX
                && !self.lines.contains_key(&key)
                && let Some(line) = roll.add(pid, Some(start))
            {
                self.lines.insert(key, line);
            }
        }
    }
}

/// Inode of a pipe; `None` for any other file.
fn pipe_inode(fd: &OwnedFd) -> Option<u64> {
    let found = fstat(fd).ok()?;
    (FileType::from_raw_mode(found.st_mode) == FileType::Fifo).then_some(found.st_ino)
}

/// The job named in a process's environment.
fn named_in_environment(pid: Pid) -> Option<Vec<u8>> {
    let file = fs::File::open(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let mut bytes = Vec::new();
    file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let mut variables = bytes.split(|byte| *byte == 0);
    variables
        .find_map(|pair| pair.strip_prefix(JOB.as_bytes())?.strip_prefix(b"="))
        .map(<[u8]>::to_vec)
}

/// Inodes of the pipes that a process holds.
fn pipes(pid: Pid) -> BTreeSet<u64> {
    let entries = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()));
    let links = entries.into_iter().flatten().flatten().take(DESCRIPTORS_MAX);
    let named = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    let inode =
        |name: PathBuf| name.to_str()?.strip_prefix("pipe:[")?.strip_suffix(']')?.parse().ok();
    named.filter_map(inode).collect()
}

/// Determines the origin of orphans, if this process adopts them.
pub(crate) fn orphan_origin(adopts: bool) -> OrphanOrigin {
    match (adopts, getpid().as_raw_nonzero().get()) {
        (false, _) => OrphanOrigin::NotAdopted,
        (true, 1) => OrphanOrigin::All,
        (true, _) => OrphanOrigin::Own,
    }
}
