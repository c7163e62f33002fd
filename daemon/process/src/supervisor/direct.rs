//! A command that is a child of the supervisor, contained by a control group or by its session.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroI32;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use crate::ids::JobId;
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_send_signal, waitid,
};

use crate::bounds::{Bounds, Reached};
use crate::cgroup::families::Families;
use crate::cgroup::{self, Group};
use crate::guard::protocol::Status;
use crate::launch::Prepared;
use crate::proc::lineage::Lineage;
use crate::proc::processes::Process;
use crate::proc::table::{self, KILL, Stat, TERMINATE, Table};
use crate::supervisor::part::{Part, reap, watch};
use crate::supervisor::pipes::Watched;
use crate::supervisor::report::Stopped;
use crate::supervisor::shared::Shared;
use crate::supervisor::strays::Members;
use crate::supervisor::usage::resident;
use crate::sys::{self, Fault, FaultCell, Spawned};

/// Longest pause between two SIGKILLs to processes that did not end.
const SWEEP_LAST: Duration = Duration::from_secs(1);
/// Time after SIGKILL for which a job waits for orphans that name it: they may be of another one.
const CLAIMANTS_WITHIN: Duration = Duration::from_secs(2);

/// A command that is a child of the supervisor.
pub(crate) struct Direct {
    job: JobId,
    pid: Pid,
    exit: Watched,
    fault: FaultCell,
    /// `None` if only process groups and sessions contain the job.
    group: Option<Group>,
    signalled: BTreeSet<NonZeroI32>,
    /// Whether the exit cannot be watched with epoll and must be polled.
    is_unwatched: bool,
    /// Time of the next SIGKILL to remaining processes, and the pause after it.
    sweep_at: Option<(Instant, Duration)>,
    /// When the job no longer waits for orphans that name it; `None` before SIGKILL.
    claimants_until: Option<Instant>,
    /// Whether command and group were gone before orphans were looked for.
    was_empty: bool,
}

impl Direct {
    /// Starts the command, in its group if there is one.
    pub(crate) fn start(
        job: JobId,
        prepared: Prepared,
        theirs: &[OwnedFd; 4],
        group: Option<Group>,
        slot: usize,
        world: &mut Shared,
    ) -> io::Result<Self> {
        let registry = &world.registry;
        let begun = world.boot_clock.tick_now();
        let spawned = Self::spawn(prepared, theirs, group.as_ref(), slot, registry);
        if let (Err(_), Some(group)) = (&spawned, &group) {
            let _ = cgroup::remove(group.path());
        }
        let Spawned { pid, pidfd, fault } = spawned?;
        let (exit, is_watched) = watch(pidfd, registry, Part::Exit.token(slot));
        if let Some(group) = &group {
            world.families.begin(job, (pid, begun), group, theirs);
        }
        let (signalled, is_unwatched) = (BTreeSet::new(), !is_watched);
        Ok(Self {
            job,
            pid,
            exit,
            fault,
            group,
            signalled,
            is_unwatched,
            sweep_at: None,
            claimants_until: None,
            was_empty: false,
        })
    }

    fn spawn(
        prepared: Prepared,
        theirs: &[OwnedFd; 4],
        group: Option<&Group>,
        slot: usize,
        registry: &Registry,
    ) -> io::Result<Spawned> {
        if let Some(group) = group {
            let fd = group.events().as_raw_fd();
            let token = Part::Population.token(slot);
            registry.register(&mut SourceFd(&fd), token, Interest::PRIORITY)?;
        }
        let [stdin, stdout, stderr, progress] = theirs;
        let descriptors = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), progress.as_fd()];
        sys::spawn(prepared.exec(descriptors, group.map(Group::as_fd), false))
    }

    /// The command's process.
    pub(crate) const fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether its exit must be polled.
    pub(crate) const fn is_unwatched(&self) -> bool {
        self.is_unwatched
    }

    /// Why the command, which has exited, could not be started, if so.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.fault.fault()
    }

    /// Exit status of the command, once it has exited.
    ///
    /// If only its process group contains the job, the command stays a zombie until the job is
    /// over, so that its process id is not reused.
    pub(crate) fn exit_status(&mut self, world: &mut Shared) -> Option<Status> {
        let fd = self.exit.fd()?;
        let keep =
            if self.group.is_some() { WaitIdOptions::empty() } else { WaitIdOptions::NOWAIT };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | keep;
        let status = match retry_on_intr(|| waitid(WaitId::PidFd(fd), options)) {
            Ok(None) => return None,
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Status::Code(code),
                (None, Some(signal)) => Status::Signal(signal),
                (None, None) => Status::Unknown,
            },
            // Another part of the program reaps all children.
            Err(_) => Status::Unknown,
        };
        if self.group.is_some() {
            self.exit.close(&world.registry);
            world.own_children.remove(&self.pid.as_raw_nonzero());
            world.families.forget_leader(self.job);
        }
        Some(status)
    }

    /// Name of the control group of the job.
    pub(crate) fn group_name(&self) -> Option<String> {
        let name = self.group.as_ref()?.path().file_name()?;
        Some(name.to_string_lossy().into_owned())
    }

    /// Finds processes that have left the job's group, while their parents are alive.
    pub(crate) fn follow(&self, world: &mut Shared) {
        if let Some(group) = &self.group {
            world.families.follow(self.job, group);
        }
    }

    /// Whether processes of the job outlive its command.
    pub(crate) fn has_survivors(&mut self, stopped: Stopped, world: &mut Shared) -> bool {
        let Some(group) = &self.group else {
            let survivors = world.table().members(self.pid);
            if stopped == Stopped::Killed {
                self.signal_members(&survivors, KILL);
            }
            return !survivors.is_empty() || world.table().is_blind();
        };
        // A group that becomes empty after this check announces that.
        if is_populated(group) || !self.was_empty {
            return true;
        }
        let has_kin = world.families.has_kin(self.job);
        let has_claimants = stopped != Stopped::No
            && self.claimants_until.is_none_or(|until| Instant::now() < until)
            && world.families.has_claimants(self.job);
        if (has_kin || has_claimants) && stopped == Stopped::Killed {
            self.signalled.extend(self.kill_family(world));
        }
        has_kin || has_claimants
    }

    /// Sends SIGKILL to the processes of the job outside of its group; returns those that count.
    fn kill_family(&self, world: &Shared) -> Vec<NonZeroI32> {
        world.families.signal_claimants(self.job, KILL);
        world.families.signal(self.job, KILL, None)
    }

    /// Whether only orphans can be left of the job, whose command has exited.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.was_empty = self.group.as_ref().is_some_and(|group| !is_populated(group));
        self.was_empty
    }

    /// Repeats SIGKILL to remaining processes, with increasing pauses.
    pub(crate) fn sweep(&mut self, has_exited: bool, world: &mut Shared) {
        let now = Instant::now();
        let Some((_, pause)) = self.sweep_at.filter(|(at, _)| *at <= now) else { return };
        self.sweep_at = Some((now + pause, (pause * 2).min(SWEEP_LAST)));
        if let Some(group) = &self.group {
            self.follow(world);
            group.kill_each();
            self.signalled.extend(self.kill_family(world));
        }
        if let (false, Some(fd)) = (has_exited, self.exit.fd()) {
            let _ = pidfd_send_signal(fd, Signal::KILL);
        }
    }

    /// Sends SIGTERM and SIGCONT to every process of the job.
    pub(crate) fn terminate(&mut self, has_exited: bool, world: &mut Shared) {
        world.families.take_in_once(&world.own_children);
        self.follow(world);
        match &self.group {
            Some(group) => {
                group.terminate(&mut self.signalled);
                let told = Some(&self.signalled);
                let more = world.families.signal(self.job, TERMINATE, told);
                self.signalled.extend(more);
                world.families.signal_claimants(self.job, TERMINATE);
            }
            None => self.signal_members(&world.table().members(self.pid), TERMINATE),
        }
        // The command may have left its group.
        let raw = self.pid.as_raw_nonzero();
        let is_told = has_exited || self.signalled.contains(&raw);
        if let (false, Some(fd)) = (is_told, self.exit.fd())
            && table::send(TERMINATE, |signal| pidfd_send_signal(fd, signal))
        {
            self.signalled.insert(raw);
        }
    }

    /// Sends SIGKILL to every process of the job.
    pub(crate) fn kill(&mut self, has_exited: bool, world: &mut Shared) {
        let pause = Duration::from_millis(20);
        let now = Instant::now();
        self.sweep_at.get_or_insert((now + pause, pause));
        self.claimants_until.get_or_insert(now + CLAIMANTS_WITHIN);
        world.families.take_in_once(&world.own_children);
        self.follow(world);
        match &self.group {
            Some(group) => {
                self.signalled.extend(group.processes().into_iter().map(Pid::as_raw_nonzero));
                self.signalled.extend(self.kill_family(world));
                if let Err(error) = group.kill() {
                    tracing::warn!(group = %group.path().display(), %error, "cannot kill a group");
                }
            }
            None => {
                let members = world.table().members(self.pid);
                // Also reaches processes started since the scan. The id is the command's until it
                // is reaped.
                let _ = kill_process_group(self.pid, Signal::KILL);
                self.signalled.extend(members.iter().map(|pid| pid.as_raw_nonzero()));
                self.signal_members(&members, KILL);
            }
        }
        if let (false, Some(fd)) = (has_exited, self.exit.fd()) {
            let _ = pidfd_send_signal(fd, Signal::KILL);
        }
    }

    fn signal_members(&mut self, members: &[Pid], signals: &[Signal]) {
        for pid in members.iter().copied() {
            let belongs = || Stat::of(pid).is_some_and(|stat| stat.belongs_to(self.pid));
            if table::signal_if(pid, signals, belongs) {
                self.signalled.insert(pid.as_raw_nonzero());
            }
        }
    }

    /// Every visible process of the job.
    pub(crate) fn members(&self, world: &mut Shared) -> Members {
        let leader = self.exit.fd().is_some().then_some(self.pid);
        let Some(group) = &self.group else {
            // A descendant in a session of its own is found only while its parents live.
            let mut found = Table::read().members(self.pid);
            table::walk(self.pid, |pid, _| found.push(pid));
            return Members::new(found, leader, false);
        };
        world.families.take_in_once(&world.own_children);
        let is_followed = world.families.follow(self.job, group);
        let found = group.processes().into_iter().chain(world.families.kin(self.job));
        Members::new(found, leader, is_followed && !world.families.may_have_lost(self.job))
    }

    /// CPU time of all processes of the job so far.
    pub(crate) fn cpu(&self, members: &Members, world: &Shared) -> Duration {
        let counted = self.group.as_ref().and_then(|group| Some((group, group.cpu()?)));
        let Some((group, total)) = counted else {
            return world.boot_clock.to_duration(members.cpu());
        };
        // The group counts all processes that are or were in it.
        let inside = group.processes();
        let kin = world.families.kin(self.job).into_iter().filter(|pid| !inside.contains(pid));
        let outside = Members::new(kin, None, true);
        total + world.boot_clock.to_duration(outside.cpu())
    }

    /// Memory of the processes of the job, which are listed.
    pub(crate) fn memory(&self, listed: &[Process]) -> u64 {
        let group = self.group.as_ref().and_then(Group::memory);
        group.unwrap_or_else(|| resident(listed))
    }

    /// The live processes of the job.
    pub(crate) fn processes(&self, world: &mut Shared) -> Vec<Process> {
        match &self.group {
            Some(group) => {
                let (members, kin) = (group.processes(), world.families.kin(self.job));
                let all = members.into_iter().chain(kin).map(Pid::as_raw_nonzero);
                let all: BTreeSet<NonZeroI32> = all.collect();
                Process::of(all.into_iter().filter_map(|raw| Pid::from_raw(raw.get())))
            }
            None => Process::of(world.table().members(self.pid)),
        }
    }

    /// Whether a process was started in the group of the job.
    pub(crate) fn proves(&self, lineage: &Lineage) -> bool {
        let shown = cgroup::unified(lineage.cgroup());
        self.group.as_ref().zip(shown).is_some_and(|(group, shown)| group.mark().proves(shown))
    }

    /// Whether a process descends from the command, whose id is unique until it is reaped.
    pub(crate) fn is_above(&self, lineage: &Lineage) -> bool {
        self.exit.fd().is_some() && lineage.is_below(self.pid)
    }

    /// Whether a process may belong to the job, by whatever evidence.
    pub(crate) fn may_hold(&self, lineage: &Lineage, families: &Families) -> bool {
        match &self.group {
            Some(group) => group.has(lineage.cgroup()) || families.follows(self.job, lineage),
            None => lineage.is_with(self.pid),
        }
    }

    /// Number of live processes of the job; `None` if it cannot be determined.
    pub(crate) fn survivors(&self, world: &mut Shared) -> Option<u32> {
        let alive = match &self.group {
            // Common case: one read.
            Some(group)
                if matches!(group.is_populated(), Ok(false))
                    && world.families.kin(self.job).is_empty() =>
            {
                0
            }
            Some(_) | None => self.processes(world).len(),
        };
        let is_known = match &self.group {
            Some(_) => !world.families.may_have_lost(self.job),
            // A descendant in a session of its own cannot be found.
            None => false,
        };
        (is_known || alive > 0).then(|| u32::try_from(alive).unwrap_or(u32::MAX))
    }

    /// The bounds that the job has reached.
    pub(crate) fn reached(&self, bounds: &Bounds) -> Reached {
        self.group.as_ref().map(|group| group.reached(bounds)).unwrap_or_default()
    }

    /// Releases the kernel resources of the job; returns the number of signalled processes.
    pub(crate) fn release(&mut self, world: &mut Shared) -> u32 {
        if let Some(group) = &self.group {
            let fd = group.events().as_raw_fd();
            let _ = world.registry.deregister(&mut SourceFd(&fd));
            world.emptied.push(group.path().to_owned());
            world.families.end(self.job);
        } else {
            reap(&mut self.exit, self.pid, world);
        }
        self.exit.close(&world.registry);
        self.signalled()
    }

    /// Number of signalled processes.
    pub(crate) fn signalled(&self) -> u32 {
        u32::try_from(self.signalled.len()).unwrap_or(u32::MAX)
    }
}

/// Whether a group has a live process; a removed group had none.
fn is_populated(group: &Group) -> bool {
    group.is_populated().unwrap_or_else(|_| group.path().exists())
}
