//! A running job: its processes, pipes and state.

use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::ids::JobId;
use mio::Registry;
use rustix::fs::{FileType, Uid, fchown, fstat};
use rustix::process::Pid;

use crate::account::Account;
use crate::bounds::{Bounds, Reached};

use crate::cgroup::families::Families;
use crate::cgroup::{self, Cgroup, Group};
use crate::containment::Containment;
use crate::guard::Started;
use crate::guard::protocol::{FromGuard, Status};
use crate::isolation::Isolation;
use crate::launch::{Launch, Prepared, explain, explain_resources};
use crate::output::Captured;
use crate::output::progress::Progress;
use crate::proc::lineage::Lineage;
use crate::proc::processes::Process;
use crate::supervisor::direct::Direct;
use crate::supervisor::guarded::{Guarded, Lost};
use crate::supervisor::part::Part;
use crate::supervisor::pipes::{Flow, Pipe, Pipes};
use crate::supervisor::report::Births;
use crate::supervisor::report::Ending;
use crate::supervisor::report::Evidence;
use crate::supervisor::report::Exit;
use crate::supervisor::report::Report;
use crate::supervisor::report::Stopped;
use crate::supervisor::shared::Shared;
use crate::supervisor::spares::SparePool;
use crate::supervisor::strays::{BirthTicks, Members, Strays};
use crate::supervisor::usage::{Usage, UsageMeter, resident};
use crate::sys::Fault;

/// Error text of an isolated command without a guard program.
const NO_GUARD: &str = "cannot run the command: isolation = \"pid\" needs a guard program, and there \
                        is none that works here; set isolation = \"none\"";

/// A job whose command was started.
pub(crate) struct Job {
    pub(crate) id: JobId,
    /// Without input and environment; for messages.
    launch: Launch,
    started: Instant,
    pipes: Pipes,
    body: Runner,
    /// Control group of an isolated job with bounds, which its guard contains.
    bounded: Option<Group>,
    failed: Option<Failure>,
    exited: Option<(Status, Duration)>,
    stopped: Stopped,
    /// Time of the first order to kill it.
    killed: Option<Instant>,
    told_lingering: bool,
    outlasts: Outlasts,
    /// Orders to end processes by their birth that are being carried out.
    strays: Vec<Strays>,
    usage: UsageMeter,
}

/// Whether a job outlasts its SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outlasts {
    /// No indication.
    No,
    /// It was ordered to be killed again.
    Perhaps,
    /// It does, and that was reported.
    Reported,
}

/// Minimum time after SIGKILL before a second order to kill counts as evidence.
const KILL_TAKES: Duration = Duration::from_millis(100);

/// Changes the owner of the tool's pipe ends, so that another user can open them by name, as
/// `/dev/stderr` does. Using the descriptors works without that.
fn give_pipes(theirs: &[OwnedFd; 4], uid: u32) {
    for fd in theirs {
        let is_pipe =
            fstat(fd).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo);
        if is_pipe {
            let _ = fchown(fd, Some(Uid::from_raw(uid)), None);
        }
    }
}

enum Failure {
    Fault(Fault),
    Text(String),
}

/// The processes of a job.
enum Runner {
    Direct(Direct),
    Guarded(Guarded),
    /// The guard was killed.
    Lost(Lost),
}

impl Job {
    /// Starts a command, with the account of its user if configured; the error text is for a user.
    pub(crate) fn start(
        mut launch: Launch,
        account: Option<&Account>,
        slot: usize,
        world: &mut Shared,
    ) -> Result<Self, String> {
        let prepared = Prepared::new(&launch, account, &world.inherited)?;
        launch.env = Vec::new();
        let input = launch.stdin.take();
        let handed_out = launch.pipes.take();
        let (mut pipes, theirs) = Pipes::new(
            &world.registry,
            |pipe| Part::Pipe(pipe).token(slot),
            input,
            &launch.output,
            &world.null,
            handed_out.as_ref(),
        )
        .map_err(|error| explain_resources("create the command's pipes", &error))?;
        drop(handed_out);
        if let Some(uid) = prepared.owner() {
            give_pipes(&theirs, uid);
        }
        let started = Instant::now();
        match Runner::start(&launch, prepared, &theirs, slot, world) {
            Ok(Begun { body, failed, bounded }) => Ok(Self {
                id: launch.job,
                launch,
                started,
                pipes,
                body,
                bounded,
                failed,
                exited: None,
                stopped: Stopped::No,
                killed: None,
                told_lingering: false,
                outlasts: Outlasts::No,
                strays: Vec::new(),
                usage: UsageMeter::new(started),
            }),
            Err(reason) => {
                pipes.discard(&world.registry);
                Err(reason)
            }
        }
    }

    /// Handles an event of one of the job's descriptors.
    pub(crate) fn on_event(&mut self, part: Part, world: &mut Shared) -> Flow {
        match part {
            Part::Pipe(pipe) => return self.turn(pipe, world),
            Part::Control => self.hear_guard(&world.registry),
            Part::Exit => self.look_for_exit(world),
            // `settle` reads it.
            Part::Population => {}
        }
        Flow::Waiting
    }

    fn turn(&mut self, pipe: Pipe, world: &mut Shared) -> Flow {
        let (job, report) = (self.id, &mut world.report);
        let mut told = |progress| report(told(job, progress));
        let flow = self.pipes.turn(pipe, &world.registry, &mut world.scratch, &mut told);
        self.report_line(world);
        flow
    }

    fn report_line(&mut self, world: &mut Shared) {
        if let Some(line) = self.pipes.take_line() {
            (world.report)(Report::Line { job: self.id, line });
        }
    }

    /// Whether the job must be polled.
    pub(crate) fn needs_tick(&self) -> bool {
        let body = match &self.body {
            Runner::Direct(direct) => {
                let is_killed = self.stopped == Stopped::Killed;
                direct.is_unwatched() || self.exited.is_some() || is_killed
            }
            Runner::Guarded(guarded) => guarded.needs_tick(),
            Runner::Lost(_) => true,
        };
        body || self.pipes.holds_reports() || !self.strays.is_empty()
    }

    /// Polls the job.
    pub(crate) fn tick(&mut self, world: &mut Shared) {
        let (job, report) = (self.id, &mut world.report);
        self.pipes.tick(&mut |progress| report(told(job, progress)));
        self.report_line(world);
        let is_unwatched = match &mut self.body {
            Runner::Direct(direct) => direct.is_unwatched(),
            Runner::Guarded(guarded) => {
                guarded.tick(world);
                guarded.needs_tick()
            }
            Runner::Lost(_) => false,
        };
        if is_unwatched {
            self.look_for_exit(world);
        }
        if let Runner::Direct(direct) = &mut self.body {
            direct.sweep(self.exited.is_some(), world);
        }
        self.look_for_strays(world);
    }

    fn members(&self, world: &mut Shared) -> Members {
        match &self.body {
            Runner::Direct(direct) => direct.members(world),
            Runner::Guarded(guarded) => guarded.members(),
            // They are killed as they are found.
            Runner::Lost(_) => Members::default(),
        }
    }

    /// Evidence about the live processes, according to the containment.
    pub(crate) fn examine(&self, births: &Births, world: &mut Shared) -> Evidence {
        let members = self.members(world);
        let born = BirthTicks::of(births, &world.boot_clock);
        let born = born.and_then(|births| members.born(&births));
        let cpu = match &self.body {
            Runner::Direct(direct) => Some(direct.cpu(&members, world)),
            Runner::Guarded(guarded) => Some(guarded.cpu(&members, world)),
            Runner::Lost(_) => None,
        };
        Evidence { born, cpu, waited: members.waited() }
    }

    /// Begins to end the processes of these births.
    pub(crate) fn end_born(
        &mut self,
        ticket: u64,
        births: &Births,
        grace: Duration,
        world: &mut Shared,
    ) {
        let Some(births) = BirthTicks::of(births, &world.boot_clock) else {
            let (ended, left, is_complete) = (0, 0, false);
            return (world.report)(Report::BornEnded { ticket, ended, left, is_complete });
        };
        self.strays.push(Strays::new(ticket, births, world.boot_clock.tick_now(), grace));
        self.look_for_strays(world);
    }

    /// When SIGKILL of strays is due.
    pub(crate) fn kill_due(&self) -> Option<Instant> {
        self.strays.iter().filter_map(Strays::kill_due).min()
    }

    /// Looks for strays, and signals them.
    fn look_for_strays(&mut self, world: &mut Shared) {
        self.look_for_strays_of(world, Instant::now(), |_| true);
    }

    /// Sends SIGKILL to strays whose grace is over; returns whether there was such an order. Other
    /// orders do not look: one look may miss a process that is just being started, so the looks of
    /// an order are a tick apart.
    pub(crate) fn kill_due_strays(&mut self, world: &mut Shared) -> bool {
        let now = Instant::now();
        self.look_for_strays_of(world, now, |strays| strays.kill_due().is_some_and(|at| at <= now))
    }

    /// Lets the wanted orders look; returns whether there was one.
    fn look_for_strays_of(
        &mut self,
        world: &mut Shared,
        now: Instant,
        is_wanted: impl Fn(&Strays) -> bool,
    ) -> bool {
        let mut wanted = Vec::new();
        for strays in self.strays.iter_mut().filter(|strays| is_wanted(strays)) {
            wanted.push(strays.ticket);
            strays.kill_known(now);
        }
        if wanted.is_empty() {
            return false;
        }
        let members = self.members(world);
        self.strays.retain_mut(|strays| {
            let is_over = wanted.contains(&strays.ticket) && strays.look(&members, now);
            if is_over {
                let ((ended, left), ticket) = (strays.counts(), strays.ticket);
                let is_complete = members.is_complete;
                (world.report)(Report::BornEnded { ticket, ended, left, is_complete });
            }
            !is_over
        });
        true
    }

    /// Finds processes of the job that have left its control group.
    pub(crate) fn follow(&self, world: &mut Shared) {
        if let Runner::Direct(direct) = &self.body {
            direct.follow(world);
        }
    }

    /// Sets a deadline for the job; returns the name of its control group, which the keeper ends.
    pub(crate) fn lease(&self, until: Option<Duration>) -> Option<String> {
        match &self.body {
            Runner::Direct(direct) => direct.group_name(),
            Runner::Guarded(guarded) => {
                guarded.lease(until);
                None
            }
            Runner::Lost(_) => None,
        }
    }

    /// Sends SIGTERM and SIGCONT to every process of the job.
    pub(crate) fn terminate(&mut self, world: &mut Shared) {
        self.stopped = self.stopped.max(Stopped::Terminated);
        match &mut self.body {
            Runner::Direct(direct) => direct.terminate(self.exited.is_some(), world),
            Runner::Guarded(guarded) => guarded.terminate(),
            Runner::Lost(_) => {}
        }
    }

    /// Sends SIGKILL to every process of the job until none is left.
    pub(crate) fn kill(&mut self, world: &mut Shared) {
        self.stopped = Stopped::Killed;
        match self.killed {
            None => self.killed = Some(Instant::now()),
            Some(at) if at.elapsed() >= KILL_TAKES && self.outlasts == Outlasts::No => {
                self.outlasts = Outlasts::Perhaps;
            }
            Some(_) => {}
        }
        match &mut self.body {
            Runner::Direct(direct) => direct.kill(self.exited.is_some(), world),
            Runner::Guarded(guarded) => guarded.kill(),
            Runner::Lost(_) => {}
        }
    }

    /// The live processes of the job, according to its containment.
    pub(crate) fn processes(&self, world: &mut Shared) -> Vec<Process> {
        match &self.body {
            Runner::Direct(direct) => direct.processes(world),
            Runner::Guarded(guarded) => guarded.processes(),
            // They are killed as they are found.
            Runner::Lost(_) => Vec::new(),
        }
    }

    /// CPU time and memory of the job, of which these are the processes.
    pub(crate) fn usage(&mut self, listed: &[Process], world: &Shared) -> Usage {
        let body = &self.body;
        self.usage.read(Instant::now(), || {
            let pids = listed.iter().filter_map(|process| Pid::from_raw(process.pid));
            let members = Members::new(pids, None, true);
            match body {
                Runner::Direct(direct) => {
                    (Some(direct.cpu(&members, world)), Some(direct.memory(listed)))
                }
                Runner::Guarded(guarded) => {
                    (Some(guarded.cpu(&members, world)), Some(resident(listed)))
                }
                Runner::Lost(_) => (None, None),
            }
        })
    }

    /// Whether a process was started in the control group of the job.
    pub(crate) fn proves(&self, lineage: &Lineage) -> bool {
        match &self.body {
            Runner::Direct(direct) => direct.proves(lineage),
            Runner::Guarded(_) | Runner::Lost(_) => false,
        }
    }

    /// Whether a process descends from the living command or guard of the job.
    pub(crate) fn is_above(&self, lineage: &Lineage) -> bool {
        match &self.body {
            Runner::Direct(direct) => direct.is_above(lineage),
            Runner::Guarded(guarded) => guarded.is_above(lineage),
            Runner::Lost(_) => false,
        }
    }

    /// Whether a process may belong to the job, by whatever evidence (SEC-05).
    pub(crate) fn may_hold(&self, lineage: &Lineage, families: &Families) -> bool {
        match &self.body {
            Runner::Direct(direct) => direct.may_hold(lineage, families),
            // All its processes descend from the guard.
            Runner::Guarded(_) => false,
            Runner::Lost(lost) => lost.may_hold(lineage),
        }
    }

    /// Drops the output of the tool.
    pub(crate) fn abandon(&mut self, world: &Shared) {
        self.pipes.discard(&world.registry);
    }

    /// Whether orphans must be scanned before the job can be over.
    pub(crate) fn awaits_look(&mut self) -> bool {
        match &mut self.body {
            Runner::Direct(direct) => self.exited.is_some() && direct.is_empty(),
            Runner::Guarded(_) | Runner::Lost(_) => false,
        }
    }

    /// Whether no process of the job is left (STOP-01).
    pub(crate) fn is_over(&mut self, world: &mut Shared) -> bool {
        if let Runner::Guarded(guarded) = &self.body
            && guarded.was_killed()
        {
            self.stopped = Stopped::Killed;
        }
        if let Runner::Guarded(guarded) = &mut self.body
            && guarded.is_lost()
        {
            tracing::warn!(job = %self.id, "the guard of a job was killed; ending the processes of the job");
            // The process id of a reaped leader may be reused.
            let leader = guarded.leader().filter(|_| self.exited.is_none());
            self.body = Runner::Lost(guarded.lose(leader));
        }
        let others = match &mut self.body {
            Runner::Direct(direct) => {
                self.exited.is_some() && direct.has_survivors(self.stopped, world)
            }
            Runner::Guarded(guarded) => guarded.has_survivors(),
            Runner::Lost(lost) => lost.end(world),
        };
        let is_over = !others
            && match &self.body {
                Runner::Direct(_) => self.exited.is_some(),
                Runner::Guarded(guarded) => guarded.is_over(),
                Runner::Lost(_) => true,
            };
        if others && self.stopped == Stopped::No && !self.told_lingering {
            self.told_lingering = true;
            (world.report)(Report::Lingering { job: self.id });
        }
        is_over
    }

    /// State of a job that outlasts SIGKILL, if so. Returned once; the job is still watched, and
    /// its output is dropped from now on.
    pub(crate) fn outlasting(&mut self, world: &mut Shared) -> Option<Exit> {
        if self.outlasts != Outlasts::Perhaps || self.failed.is_some() {
            return None;
        }
        self.outlasts = Outlasts::Reported;
        let gone = Instant::now();
        let (stdout, stderr) = self.finish_output(world);
        let (alive, signalled) = match &self.body {
            Runner::Direct(direct) => (direct.survivors(world), direct.signalled()),
            Runner::Guarded(guarded) => {
                (u32::try_from(guarded.processes().len()).ok(), guarded.signalled())
            }
            Runner::Lost(lost) => (None, lost.signalled()),
        };
        // At least one: otherwise the job would be over.
        let survivors = Some(alive.unwrap_or_default().max(1));
        Some(self.exit(stdout, stderr, signalled, survivors, gone))
    }

    fn finish_output(&mut self, world: &mut Shared) -> (Captured, Captured) {
        let (id, report) = (self.id, &mut world.report);
        let mut told = |progress| report(told(id, progress));
        self.pipes.finish(&world.registry, &mut world.scratch, &mut told)
    }

    fn exit(
        &self,
        stdout: Captured,
        stderr: Captured,
        signalled: u32,
        survivors: Option<u32>,
        gone: Instant,
    ) -> Exit {
        let (status, duration) =
            self.exited.unwrap_or_else(|| (Status::Unknown, self.started.elapsed()));
        let (code, signal) = match status {
            Status::Code(code) => (Some(code), None),
            Status::Signal(signal) => (None, Some(signal)),
            Status::Unknown => (None, None),
        };
        let (stopped, reached) = (self.stopped, self.reached());
        Exit {
            code,
            signal,
            stdout,
            stderr,
            duration,
            stopped,
            signalled,
            survivors,
            reached,
            gone,
        }
    }

    fn reached(&self) -> Reached {
        let bounds = &self.launch.bounds;
        match (&self.body, &self.bounded) {
            (Runner::Direct(direct), _) => direct.reached(bounds),
            (Runner::Guarded(_) | Runner::Lost(_), Some(group)) => group.reached(bounds),
            (Runner::Guarded(_) | Runner::Lost(_), None) => Reached::default(),
        }
    }

    /// Releases all resources of the job and returns its ending.
    pub(crate) fn end(mut self, world: &mut Shared) -> Ending {
        let gone = Instant::now();
        for strays in mem::take(&mut self.strays) {
            let (ticket, ended) = (strays.ticket, strays.signalled());
            let (left, is_complete) = (0, true);
            (world.report)(Report::BornEnded { ticket, ended, left, is_complete });
        }
        let (stdout, stderr) = self.finish_output(world);
        let survivors = match &self.body {
            Runner::Direct(direct) => direct.survivors(world),
            // The kernel reported to the guard that it has no children left.
            Runner::Guarded(_) | Runner::Lost(_) => Some(0),
        };
        let failed = self.failed.take();
        match failed {
            Some(Failure::Fault(fault)) => {
                self.release(world);
                Ending::NotStarted(explain(&self.launch, fault))
            }
            Some(Failure::Text(reason)) => {
                self.release(world);
                Ending::NotStarted(reason)
            }
            None => {
                let signalled = self.release(world);
                Ending::Exited(Box::new(self.exit(stdout, stderr, signalled, survivors, gone)))
            }
        }
    }

    /// Releases the kernel resources of the job; returns the number of signalled processes.
    fn release(&mut self, world: &mut Shared) -> u32 {
        world.emptied.extend(self.bounded.iter().map(|group| group.path().to_owned()));
        match &mut self.body {
            Runner::Direct(direct) => direct.release(world),
            Runner::Guarded(guarded) => guarded.release(&world.registry),
            Runner::Lost(lost) => lost.signalled(),
        }
    }

    /// Checks whether the child, the command or its guard, has exited.
    fn look_for_exit(&mut self, world: &mut Shared) {
        match &mut self.body {
            Runner::Direct(direct) => {
                if self.exited.is_none()
                    && let Some(status) = direct.exit_status(world)
                {
                    self.exited = Some((status, self.started.elapsed()));
                    self.failed = direct.fault().map(Failure::Fault);
                }
            }
            Runner::Guarded(guarded) => {
                if guarded.look_for_exit(world) {
                    self.hear_guard(&world.registry);
                }
            }
            Runner::Lost(_) => {}
        }
    }

    /// Handles messages of the guard.
    fn hear_guard(&mut self, registry: &Registry) {
        let Runner::Guarded(guarded) = &mut self.body else { return };
        while let Some(message) = guarded.hear(registry) {
            match message {
                FromGuard::Failed(fault) => self.failed = Some(Failure::Fault(fault)),
                FromGuard::Exited { status, .. } => {
                    self.exited = Some((status, self.started.elapsed()));
                }
                FromGuard::Ready { .. } | FromGuard::Started { .. } | FromGuard::Gone { .. } => {}
            }
        }
    }
}

/// Takes a control group and writes the bounds of its job.
fn bounded_group(spare: &mut SparePool, base: &Cgroup, bounds: &Bounds) -> Result<Group, String> {
    let group = spare
        .take_group(base)
        .map_err(|error| explain_resources("create a control group for the command", &error))?;
    match base.bound(&group, bounds) {
        Ok(()) => Ok(group),
        Err(error) => Err(discard(group, "set the bounds of", &error)),
    }
}

/// Removes a group that a command cannot use; returns the reason for a user.
fn discard(group: Group, what: &str, error: &io::Error) -> String {
    let _ = cgroup::remove(group.path());
    explain_resources(&format!("{what} the control group of the command"), error)
}

/// The bounds of a job whose guard is in its group.
fn with_guard(bounds: Bounds) -> Bounds {
    Bounds { pids_max: bounds.pids_max.map(|max| max.saturating_add(1)), ..bounds }
}

fn told(job: JobId, progress: Progress) -> Report {
    let Progress { progress, total, message } = progress;
    Report::Progress { job, progress, total, message }
}

/// A command on its way.
struct Begun {
    body: Runner,
    failed: Option<Failure>,
    /// See [`Job::bounded`].
    bounded: Option<Group>,
}

impl Runner {
    fn start(
        launch: &Launch,
        prepared: Prepared,
        theirs: &[OwnedFd; 4],
        slot: usize,
        world: &mut Shared,
    ) -> Result<Begun, String> {
        let no_process = |error| explain_resources("start a process for the command", &error);
        let mut bounded = None;
        let (pid, body, failed) = match &world.containment {
            containment if launch.isolation == Isolation::Pid => {
                let program = containment.guard().ok_or(NO_GUARD)?;
                let guard = world.spare.take_isolated(program, &mut world.own_children);
                let mut guard = guard.map_err(|error| {
                    if error.kind() == ErrorKind::Unsupported {
                        format!("cannot run the command: {error}")
                    } else {
                        no_process(error)
                    }
                })?;
                if let Containment::Cgroup { group, .. } = containment
                    && group.enforces(&launch.bounds)
                {
                    let taken = bounded_group(&mut world.spare, group, &with_guard(launch.bounds));
                    let taken = taken.and_then(|group| match group.take_in(guard.pid) {
                        Ok(()) => Ok(group),
                        Err(error) => Err(discard(group, "enter", &error)),
                    });
                    bounded = Some(taken.inspect_err(|_| guard.end())?);
                }
                Self::behind(guard, &prepared, theirs, slot, &world.registry)
            }
            Containment::Cgroup { group, .. } => {
                let group = bounded_group(&mut world.spare, group, &launch.bounds)?;
                let direct = Direct::start(launch.job, prepared, theirs, Some(group), slot, world)
                    .map_err(no_process)?;
                (direct.pid(), Self::Direct(direct), None)
            }
            Containment::Groups => {
                let direct = Direct::start(launch.job, prepared, theirs, None, slot, world)
                    .map_err(no_process)?;
                (direct.pid(), Self::Direct(direct), None)
            }
            Containment::Guard(program) => {
                let guard = world.spare.take_guard(program, &mut world.own_children);
                Self::behind(guard.map_err(no_process)?, &prepared, theirs, slot, &world.registry)
            }
        };
        world.own_children.insert(pid.as_raw_nonzero());
        Ok(Begun { body, failed, bounded })
    }

    /// Hands a command to its guard.
    fn behind(
        guard: Started,
        prepared: &Prepared,
        theirs: &[OwnedFd; 4],
        slot: usize,
        registry: &Registry,
    ) -> (Pid, Self, Option<Failure>) {
        let mut guarded = Guarded::new(guard, slot, registry);
        let failed = guarded.run(prepared, theirs).err().map(|error| {
            let reason = explain_resources("hand the command to its guard", &error);
            Failure::Text(reason)
        });
        (guarded.pid(), Self::Guarded(guarded), failed)
    }
}
