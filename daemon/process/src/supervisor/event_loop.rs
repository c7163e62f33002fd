//! The supervisor's event loop.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ids::JobId;
use crossbeam_channel::Receiver;
use mio::{Events, Poll, Token};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::account::Account;
use crate::cgroup;
use crate::containment::Containment;
use crate::guard::protocol::Lease;
use crate::launch::{Launch, explain_resources};
use crate::proc::lineage::Lineage;
use crate::ready::ready;
use crate::supervisor::activity::Activity;
use crate::supervisor::child_exits::ChildExits;
use crate::supervisor::job::Job;
use crate::supervisor::keeper::Keeper;
use crate::supervisor::mailbox::{Mailbox, Message};
use crate::supervisor::orphans::Orphans;
use crate::supervisor::part::Part;
use crate::supervisor::pipes::{Flow, Pipe};
use crate::supervisor::report::Births;
use crate::supervisor::report::Ending;
use crate::supervisor::report::Evidence;
use crate::supervisor::report::Located;
use crate::supervisor::report::Membership;
use crate::supervisor::report::Order;
use crate::supervisor::report::Report;
use crate::supervisor::shared::Shared;
use crate::supervisor::uid_lookup::Lookups;

pub(crate) const WAKER: Token = Token(usize::MAX);
const KEEPER: Token = Token(usize::MAX - 1);
pub(crate) const CHILDREN: Token = Token(usize::MAX - 2);
/// Polling interval for events that cannot be watched.
const TICK: Duration = Duration::from_millis(20);
/// Maximum number of orders carried out before pipes are read.
const ORDERS_A_TURN: usize = 64;
/// Maximum number of events per poll.
const EVENTS: usize = 1024;
/// Read buffer size in bytes: the capacity of a pipe.
pub(crate) const SCRATCH_BYTES: usize = 64 * 1024;
/// Error text of launches during the shutdown.
const SHUTTING_DOWN: &str = "cannot run the command: the supervisor is shutting down";
/// Time limit for removing the base group, and for the keeper's exit.
pub(crate) const CLEAN_UP_WITHIN: Duration = Duration::from_secs(2);

/// State of the supervisor's thread.
pub(crate) struct State {
    poll: Poll,
    inbox: Receiver<Message>,
    pub(crate) world: Shared,
    jobs: BTreeMap<usize, Job>,
    slots: BTreeMap<JobId, usize>,
    slot_next: usize,
    /// Pipes with more data than their share of a turn.
    ready: BTreeSet<(usize, Pipe)>,
    /// Jobs with events in this turn.
    touched: BTreeSet<usize>,
    /// Jobs polled every [`TICK`].
    ticking: BTreeSet<usize>,
    ticked: Instant,
    keeper: Keeper,
    /// Exits of children, if this process reaps orphans.
    child_exits: Option<ChildExits>,
    has_child_exited: bool,
    lookups: Lookups,
    activity: Arc<Activity>,
    stopping: Option<Instant>,
}

impl State {
    pub(crate) fn new(
        poll: Poll,
        inbox: Receiver<Message>,
        mailbox: Mailbox,
        world: Shared,
        activity: Arc<Activity>,
        child_exits: Option<ChildExits>,
    ) -> Self {
        Self {
            poll,
            inbox,
            world,
            jobs: BTreeMap::new(),
            slots: BTreeMap::new(),
            slot_next: 0,
            ready: BTreeSet::new(),
            touched: BTreeSet::new(),
            ticking: BTreeSet::new(),
            ticked: Instant::now(),
            keeper: Keeper::default(),
            child_exits,
            has_child_exited: false,
            lookups: Lookups::new(mailbox),
            activity,
            stopping: None,
        }
    }

    /// Runs until stopped; true if no process is left.
    pub(crate) fn run(mut self) -> bool {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            match self.poll.poll(&mut events, self.timeout()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    tracing::error!(%error, "the process supervisor cannot poll");
                    return false;
                }
            }
            for event in &events {
                self.on_event(event.token());
            }
            // Carry out orders before reading output, so that a flood of output does not delay a
            // kill.
            self.world.new_turn();
            self.take_orders();
            for (slot, pipe) in mem::take(&mut self.ready) {
                self.on_part(slot, Part::Pipe(pipe));
            }
            self.tick();
            self.kill_due_strays();
            self.replace_keeper();
            self.follow();
            // Handle the exits of this turn before the remaining jobs.
            self.world.new_turn();
            self.settle();
            self.activity.note_strangers(self.world.families.has_strangers());
            match self.stopping {
                Some(_) if self.jobs.is_empty() => return self.clean_up(CLEAN_UP_WITHIN),
                Some(until) if Instant::now() >= until => {
                    tracing::error!(jobs = self.jobs.len(), "killed processes do not end");
                    // The keeper and the guards continue.
                    self.clean_up(Duration::ZERO);
                    return false;
                }
                Some(_) => {}
                None => self.world.refill(),
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() || !self.inbox.is_empty() {
            return Some(Duration::ZERO);
        }
        let is_waiting =
            !self.ticking.is_empty() || !self.world.removals.is_empty() || self.stopping.is_some();
        let tick = is_waiting.then(|| TICK.saturating_sub(self.ticked.elapsed()));
        let kill = self.ticking.iter().filter_map(|slot| self.jobs.get(slot)?.kill_due()).min();
        let kill_in = kill.map(|at| at.saturating_duration_since(Instant::now()));
        let due = [self.keeper.due_in(), self.world.families.due_in(), kill_in];
        tick.into_iter().chain(due.into_iter().flatten()).min()
    }

    fn on_event(&mut self, token: Token) {
        match token {
            WAKER => {}
            KEEPER => {
                let own_children = &mut self.world.own_children;
                self.keeper.has_exited(self.poll.registry(), own_children);
            }
            CHILDREN => self.on_child_exits(),
            token => {
                let (slot, part) = Part::of(token);
                self.on_part(slot, part);
            }
        }
    }

    fn on_part(&mut self, slot: usize, part: Part) {
        // The job may have ended in this turn.
        let Some(job) = self.jobs.get_mut(&slot) else { return };
        let flow = job.on_event(part, &mut self.world);
        if let (Flow::More, Part::Pipe(pipe)) = (flow, part) {
            self.ready.insert((slot, pipe));
        }
        self.touched.insert(slot);
    }

    fn take_orders(&mut self) {
        for _ in 0..ORDERS_A_TURN {
            match self.inbox.try_recv() {
                Ok(Message::Order(Order::Launch(launch))) => self.launch(*launch),
                Ok(Message::Order(Order::Terminate(job))) => self.stop(job, Job::terminate),
                Ok(Message::Order(Order::Kill(job))) => self.stop(job, Job::kill),
                Ok(Message::Order(Order::Lease { until, jobs })) => self.lease(until, &jobs),
                Ok(Message::Order(Order::Abandon(job))) => self.with(job, |j, w| j.abandon(w)),
                Ok(Message::Order(Order::Survey { ticket, jobs })) => self.survey(ticket, &jobs),
                Ok(Message::Order(Order::Examine { ticket, job, births })) => {
                    self.examine(ticket, job, &births);
                }
                Ok(Message::Order(Order::EndBorn { ticket, job, births, grace })) => {
                    self.end_born(ticket, job, &births, grace);
                }
                Ok(Message::Order(Order::Locate { ticket, pid, process })) => {
                    let located = self.locate(pid, process);
                    (self.world.report)(Report::Located { ticket, located });
                }
                Ok(Message::Account(uid, account)) => self.on_account(uid, &account),
                Ok(Message::Probe(answer)) => answer(),
                Ok(Message::Stop(until)) => {
                    self.stopping = Some(until);
                    for job in self.lookups.forget_all() {
                        self.not_started(job, SHUTTING_DOWN.to_owned());
                    }
                    self.jobs.values_mut().for_each(|job| job.kill(&mut self.world));
                    self.touched.extend(self.jobs.keys());
                }
                Err(_) => break,
            }
        }
    }

    fn with(&mut self, job: JobId, act: impl FnOnce(&mut Job, &mut Shared)) {
        let Some(slot) = self.slots.get(&job) else { return };
        if let Some(job) = self.jobs.get_mut(slot) {
            act(job, &mut self.world);
            self.touched.insert(*slot);
        }
    }

    /// Passes a deadline to the keeper and to the guards of these jobs.
    fn lease(&mut self, until: Option<Duration>, jobs: &[JobId]) {
        let until = until.filter(|_| !jobs.is_empty());
        let mut groups = Vec::new();
        for job in jobs.iter().filter_map(|id| self.jobs.get(self.slots.get(id)?)) {
            groups.extend(job.lease(until));
        }
        let until = until.filter(|_| !groups.is_empty());
        self.keeper.lease(Lease { until, groups });
    }

    fn survey(&mut self, ticket: u64, jobs: &[JobId]) {
        let (mut processes, mut usage) = (Vec::new(), Vec::new());
        for id in jobs {
            if let Some(job) = self.slots.get(id).and_then(|slot| self.jobs.get_mut(slot)) {
                let listed = job.processes(&mut self.world);
                usage.push((*id, job.usage(&listed, &self.world)));
                processes.push((*id, listed));
            }
        }
        (self.world.report)(Report::Surveyed { ticket, processes, usage });
    }

    fn examine(&mut self, ticket: u64, job: JobId, births: &Births) {
        let evidence = match self.slots.get(&job).and_then(|slot| self.jobs.get(slot)) {
            Some(job) => job.examine(births, &mut self.world),
            None => Evidence { born: Some(0), cpu: None, waited: None },
        };
        (self.world.report)(Report::Examined { ticket, evidence });
    }

    fn end_born(&mut self, ticket: u64, job: JobId, births: &Births, grace: Duration) {
        match self.slots.get(&job).and_then(|slot| Some((*slot, self.jobs.get_mut(slot)?))) {
            Some((slot, job)) => {
                job.end_born(ticket, births, grace, &mut self.world);
                self.touched.insert(slot);
            }
            None => {
                let (ended, left, is_complete) = (0, 0, true);
                (self.world.report)(Report::BornEnded { ticket, ended, left, is_complete });
            }
        }
    }

    /// Finds evidence of the job of a process (SEC-05).
    fn locate(&self, pid: Pid, process: Option<OwnedFd>) -> Located {
        let process = process.map_or_else(|| pidfd_open(pid, PidfdFlags::empty()), Ok);
        let (Ok(process), Some(lineage)) = (process, Lineage::of(pid)) else {
            return Located::Gone;
        };
        // The data was read while the process was alive, so it is that process's.
        if ready(process.as_fd(), Duration::ZERO).unwrap_or(true) {
            return Located::Gone;
        }
        let find =
            |is: &dyn Fn(&Job) -> bool| self.jobs.values().find(|job| is(job)).map(|job| job.id);
        let group = find(&|job| job.proves(&lineage));
        let descent = find(&|job| job.is_above(&lineage));
        let is_other = |job: &Job| ![group, descent].contains(&Some(job.id));
        let families = &self.world.families;
        let is_lost = group.or(descent).is_none()
            && self.world.orphans == Orphans::Adopt
            && lineage.is_below_us();
        let is_doubtful = is_lost
            || self.jobs.values().any(|job| is_other(job) && job.may_hold(&lineage, families));
        Located::Alive(Membership { group, descent, is_doubtful })
    }

    /// Stops a job, also one that has not started.
    fn stop(&mut self, job: JobId, how: impl FnOnce(&mut Job, &mut Shared)) {
        if self.lookups.forget(job) {
            let reason = "it was stopped while the account of its user was looked up".to_owned();
            return self.not_started(job, reason);
        }
        self.with(job, how);
    }

    fn launch(&mut self, launch: Launch) {
        let id = launch.job;
        if self.slots.contains_key(&id) || self.lookups.has(id) {
            tracing::error!(job = %id, "a job was launched twice; the second launch is dropped");
            return self.activity.note_end();
        }
        match (self.stopping, launch.user) {
            (Some(_), _) => self.not_started(id, SHUTTING_DOWN.to_owned()),
            (None, None) => self.begin(launch, None),
            (None, Some(uid)) => {
                if let Err(error) = self.lookups.wait(launch, uid) {
                    let reason = explain_resources("look up the account of its user", &error);
                    self.not_started(id, reason);
                }
            }
        }
    }

    fn on_account(&mut self, uid: u32, account: &Result<Account, String>) {
        for launch in self.lookups.answered(uid) {
            match account {
                Ok(account) => self.begin(launch, Some(account)),
                Err(reason) => self.not_started(launch.job, reason.clone()),
            }
        }
    }

    fn begin(&mut self, launch: Launch, account: Option<&Account>) {
        let id = launch.job;
        let slot = self.slot_next;
        self.slot_next += 1;
        match Job::start(launch, account, slot, &mut self.world) {
            Ok(job) => {
                self.jobs.insert(slot, job);
                self.slots.insert(id, slot);
                self.touched.insert(slot);
            }
            Err(reason) => self.not_started(id, reason),
        }
    }

    fn not_started(&mut self, job: JobId, reason: String) {
        self.report_end(job, Ending::NotStarted(reason));
    }

    fn report_end(&mut self, job: JobId, ending: Ending) {
        self.activity.note_strangers(self.world.families.has_strangers());
        self.activity.note_end();
        (self.world.report)(Report::Ended { job, ending });
    }

    fn replace_keeper(&mut self) {
        if self.stopping.is_none() {
            let Shared { containment, families, own_children, .. } = &mut self.world;
            let registry = self.poll.registry();
            self.keeper.tick(containment, families.roll(), registry, KEEPER, own_children);
        }
    }

    fn tick(&mut self) {
        if self.ticked.elapsed() < TICK {
            return;
        }
        self.ticked = Instant::now();
        self.world.removals.retain(|group| cgroup::remove(group).is_err());
        for slot in &self.ticking {
            if let Some(job) = self.jobs.get_mut(slot) {
                job.tick(&mut self.world);
            }
        }
        self.touched.extend(&self.ticking);
    }

    /// Sends SIGKILL to strays whose grace is over: the next tick may be [`TICK`] away.
    fn kill_due_strays(&mut self) {
        for slot in &self.ticking {
            if let Some(job) = self.jobs.get_mut(slot)
                && job.kill_due_strays(&mut self.world)
            {
                self.touched.insert(*slot);
            }
        }
    }

    /// Finds processes that have left the control groups of their jobs.
    fn follow(&mut self) {
        for id in self.world.families.tick(&self.world.own_children) {
            let begun = Instant::now();
            if let Some(job) = self.slots.get(&id).and_then(|slot| self.jobs.get(slot)) {
                job.follow(&mut self.world);
            }
            self.world.families.put_off(id, begun.elapsed());
            if self.world.families.is_late() {
                break;
            }
        }
    }

    /// Ends the finished jobs among those with events.
    fn settle(&mut self) {
        let mut has_ended = false;
        let touched = mem::take(&mut self.touched);
        // One scan for all of them, after the last process of each group has exited.
        let awaits = |slot: &&usize| self.jobs.get_mut(*slot).is_some_and(Job::awaits_look);
        if touched.iter().filter(awaits).count() > 0 {
            self.world.families.take_in(&self.world.own_children);
        }
        for slot in touched {
            let Some(job) = self.jobs.get_mut(&slot) else { continue };
            if job.is_over(&mut self.world) {
                has_ended = true;
                self.ticking.remove(&slot);
                self.end(slot);
                continue;
            }
            if let Some(exit) = job.outlasting(&mut self.world) {
                let (job, exit) = (job.id, Box::new(exit));
                (self.world.report)(Report::Outlasting { job, exit });
            }
            if job.needs_tick() {
                self.ticking.insert(slot);
            } else {
                self.ticking.remove(&slot);
            }
        }
        // Reap orphans only after the jobs have checked their own children.
        if mem::take(&mut self.has_child_exited) || has_ended {
            self.world.reap_exited_orphans();
        }
    }

    fn end(&mut self, slot: usize) {
        let Some(job) = self.jobs.remove(&slot) else { return };
        let id = job.id;
        self.slots.remove(&id);
        self.ready.retain(|(of, _)| *of != slot);
        let ending = job.end(&mut self.world);
        self.report_end(id, ending);
    }

    /// Starts the keeper if control groups are used.
    pub(crate) fn start_keeper(&mut self) -> io::Result<()> {
        let Shared { containment, families, own_children, .. } = &mut self.world;
        let registry = self.poll.registry();
        self.keeper.start(containment, families.roll(), registry, KEEPER, own_children)
    }

    /// Reaps orphans as they exit, even without running jobs: the first process of a container also
    /// inherits orphans of other origin.
    fn on_child_exits(&mut self) {
        if let Some(child_exits) = &mut self.child_exits {
            child_exits.take();
            self.has_child_exited = true;
        }
    }

    /// Removes the resources shared by all jobs; false if that failed.
    fn clean_up(&mut self, within: Duration) -> bool {
        let mut is_clean = true;
        self.world.spare.end(&mut self.world.own_children);
        if let Containment::Cgroup { group, .. } = &self.world.containment
            && let Err(error) = group.remove(within)
        {
            tracing::warn!(%error, "cannot remove the base control group");
            is_clean = false;
        }
        is_clean &= self.keeper.end(within, &mut self.world.own_children);
        is_clean
    }
}

impl Drop for State {
    /// Handles a panic of the thread.
    fn drop(&mut self) {
        self.jobs.values_mut().for_each(|job| job.kill(&mut self.world));
        self.world.spare.end(&mut self.world.own_children);
        if let Containment::Cgroup { group, .. } = &self.world.containment {
            group.kill_all();
        }
    }
}
