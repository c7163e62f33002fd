//! Main loop of a guard process: waits for a command, runs it, and ends everything it started on
//! request or when the daemon is dead.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::num::NonZeroI32;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::exit;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, read};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, chdir, getpgid, getpgrp, getpid,
    getrlimit, kill_process, kill_process_group, set_child_subreaper, setrlimit, wait,
};

use crate::guard::keep::keep;
use crate::guard::namespace::{self, Failed};
use crate::guard::protocol::{FromGuard, Lease, Status, ToGuard, ToSupervisorSocket};
use crate::isolation::Isolation;
use crate::launch::Prepared;
use crate::null_device;
use crate::proc::table::{self, KILL, Stat, TERMINATE};
use crate::sys::{self, Fault, FaultCell, Twin};

/// Maximum number of scans of a process table for newly started processes.
const ROUNDS_MAX: u32 = 8;
/// Maximum number of exits handled before other events.
const REAPED_MAX: u32 = 1024;
/// Limits without which a guard sees no process, or ends. A command of the same user can lower them.
const LIMITS: [Resource; 3] = [Resource::Nofile, Resource::As, Resource::Data];
/// Pause after a wait that failed.
const PAUSE: Duration = Duration::from_millis(1);
/// Exit code of a guard that failed.
const EXIT_FAILED: i32 = 70;

/// Runs a guard process; returns its exit code.
pub(crate) fn main() -> i32 {
    // Must be first: a process of the same user could trace it.
    sys::forbid_tracing();
    // From here on it is responsible for stopping a command.
    sys::block_signals();
    sys::close_inherited(3);
    match serve() {
        Ok(()) => 0,
        Err(_) => EXIT_FAILED,
    }
}

fn serve() -> io::Result<()> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let null = null_device::open()?;
    rustix::stdio::dup2_stdin(&null)?;
    let mut control = ToSupervisorSocket::new(control);
    enter_service(&control, getpid().as_raw_nonzero().get())?;
    loop {
        match control.receive()? {
            Some(ToGuard::Fork(theirs, isolation)) => {
                let theirs = ToSupervisorSocket::new(theirs);
                let copied = match isolation {
                    // If there is no copy, closing its end of the socket reports that.
                    Isolation::None => match sys::fork_sibling(0) {
                        Ok(Twin::Copy) => Some(getpid().as_raw_nonzero().get()),
                        Ok(Twin::Original) | Err(_) => None,
                    },
                    Isolation::Pid => isolated(&theirs),
                };
                if let Some(pid) = copied {
                    control = theirs;
                    enter_service(&control, pid)?;
                }
            }
            Some(ToGuard::Run(prepared, descriptors)) => {
                // The job number is unknown to a spare guard until now.
                if let Some(job) = prepared.job() {
                    let _ = rustix::thread::set_name(job);
                }
                control.set_nonblocking()?;
                return Guard::start(control, prepared, descriptors)?.run();
            }
            Some(ToGuard::Keep(path, roll)) => return keep(&control, &path, roll),
            // Nothing runs yet.
            Some(ToGuard::Lease(_)) => {}
            Some(ToGuard::Terminate | ToGuard::Kill) | None => return Ok(()),
        }
    }
}

/// Copies this process into namespaces of its own; returns in the copy its process id as seen by
/// the parent. Failures are reported over the socket of the copy.
fn isolated(theirs: &ToSupervisorSocket) -> Option<i32> {
    match namespace::fork() {
        Ok(None) => None,
        Ok(Some(pid)) => Some(pid),
        Err(Failed::Here(fault)) => {
            theirs.send(FromGuard::Failed(fault));
            None
        }
        Err(Failed::InCopy(fault)) => {
            theirs.send(FromGuard::Failed(fault));
            exit(EXIT_FAILED);
        }
    }
}

/// Becomes a subreaper and reports itself ready as process `pid`.
fn enter_service(control: &ToSupervisorSocket, pid: i32) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    control.send(FromGuard::Ready { pid });
    Ok(())
}

/// State of the guard of one command.
struct Guard {
    /// `None` once the daemon is dead.
    control: Option<ToSupervisorSocket>,
    /// Readable when a child has exited.
    exits: OwnedFd,
    /// Announces exits and orders. Unlike `poll`, it works without the right to descriptors.
    events: OwnedFd,
    /// The kernel's list of the children, opened before the command can take the right to descriptors;
    /// `None` on a kernel without such lists.
    children: Option<File>,
    limits: [Rlimit; LIMITS.len()],
    leader: Leader,
    is_killing: bool,
    /// More children may have exited than were reaped at once; signalfd does not announce them
    /// again.
    is_behind: bool,
    /// Consecutive sweeps, for increasing pauses while unkillable processes remain.
    sweeps: u32,
    signalled: BTreeSet<NonZeroI32>,
    /// Deadline of the job while the supervisor says nothing (FLT-04).
    lease: Lease,
}

/// The command.
enum Leader {
    /// Started; whether exec failed is known when it has exited.
    Started(Pid, FaultCell),
    /// Exited or never started, and reported.
    Over,
}

impl Guard {
    fn start(
        control: ToSupervisorSocket,
        prepared: Prepared,
        descriptors: [OwnedFd; 4],
    ) -> io::Result<Self> {
        let exits = sys::child_exits()?;
        let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let any = epoll::EventData::new_u64(0);
        epoll::add(&events, &exits, any, epoll::EventFlags::IN)?;
        epoll::add(&events, &control, any, epoll::EventFlags::IN)?;
        let me = getpid().as_raw_nonzero();
        let children = File::open(format!("/proc/{me}/task/{me}/children")).ok();
        let limits = LIMITS.map(getrlimit);
        let [stdin, stdout, stderr, progress] = &descriptors;
        let descriptors = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), progress.as_fd()];
        let mut exec = prepared.exec(descriptors, None, true);
        exec.announced = Some((control.as_fd(), |leader| FromGuard::Started { leader }.encode()));
        let leader = match sys::spawn(exec) {
            Ok(child) => Leader::Started(child.pid, child.fault),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                control.send(FromGuard::Failed(Fault { step: sys::Step::Session, errno }));
                Leader::Over
            }
        };
        // Do not keep the daemon's working directory busy.
        let _ = chdir("/");
        Ok(Self {
            control: Some(control),
            exits,
            events,
            children,
            limits,
            leader,
            is_killing: false,
            is_behind: false,
            sweeps: 0,
            signalled: BTreeSet::new(),
            lease: Lease::default(),
        })
    }

    /// Guards until no process of the job is left (STOP-01).
    fn run(&mut self) -> io::Result<()> {
        loop {
            if !self.reap() {
                let signalled = u32::try_from(self.signalled.len()).unwrap_or(u32::MAX);
                self.tell(FromGuard::Gone { signalled });
                return Ok(());
            }
            if self.is_killing {
                self.sweep();
            }
            self.wait();
            self.hear();
        }
    }

    fn tell(&self, message: FromGuard) {
        if let Some(control) = &self.control {
            control.send(message);
        }
    }

    /// Reaps exited children; false if no process of the job is left.
    fn reap(&mut self) -> bool {
        let mut exited = None;
        let mut is_left = true;
        self.is_behind = true;
        for _ in 0..REAPED_MAX {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if let Leader::Started(leader, fault) = &self.leader
                        && *leader == pid
                    {
                        exited = Some((outcome(status), fault.fault()));
                        self.leader = Leader::Over;
                    }
                }
                Ok(None) => {
                    self.is_behind = false;
                    break;
                }
                Err(Errno::CHILD) => {
                    is_left = false;
                    break;
                }
                Err(Errno::INTR) => {}
                // No reason to leave the job alone.
                Err(_) => {
                    self.is_killing = true;
                    break;
                }
            }
        }
        match exited {
            Some((_, Some(fault))) => self.tell(FromGuard::Failed(fault)),
            Some((status, None)) => self.tell(FromGuard::Exited { status, others: is_left }),
            None => {}
        }
        is_left
    }

    /// Waits for the next event. A wait that fails is a reason to end the job, not to leave it alone.
    fn wait(&mut self) {
        let mut events: [epoll::Event; 2] = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 2];
        let pause = match (self.is_behind, self.is_killing) {
            (true, _) => Some(Duration::ZERO),
            (false, true) => Some(Duration::from_millis(u64::from(self.sweeps.clamp(1, 100)))),
            (false, false) => self.lease.look_in(),
        };
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        match epoll::wait(&self.events, &mut events, pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => {
                self.is_killing = true;
                std::thread::sleep(PAUSE);
            }
        }
        // FLT-04: the job ends before others may call it lost, also while the daemon is stopped.
        self.is_killing |= self.lease.is_over();
        self.restore_limits();
    }

    /// Takes back limits that the command has lowered by `prlimit`, as far as that is allowed.
    fn restore_limits(&self) {
        for (resource, limit) in LIMITS.into_iter().zip(&self.limits) {
            let now = getrlimit(resource);
            if now != *limit && setrlimit(resource, *limit).is_err() {
                let raised = Rlimit { current: now.maximum, maximum: now.maximum };
                let _ = setrlimit(resource, raised);
            }
        }
    }

    /// The children, orphans of the job included, by a descriptor that is open already: for a time in
    /// which nothing else can be read.
    fn known_children(&mut self) -> Vec<Pid> {
        let Some(list) = &mut self.children else { return Vec::new() };
        let mut text = String::new();
        let read = list.rewind().and_then(|()| list.read_to_string(&mut text));
        let pids = text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
        let pids = pids.filter_map(Pid::from_raw);
        if read.is_ok() { pids.collect() } else { Vec::new() }
    }

    /// Handles events.
    fn hear(&mut self) {
        // `reap` determines which children have exited.
        let mut signals = [0; 4096];
        while read(&self.exits, &mut signals).is_ok_and(|n| n == signals.len()) {}
        while let Some(control) = &self.control {
            match control.receive() {
                Ok(Some(ToGuard::Terminate)) => self.terminate(),
                Ok(Some(ToGuard::Kill)) => {
                    self.is_killing = true;
                    self.sweeps = 0;
                }
                Ok(Some(ToGuard::Lease(lease))) => self.lease = lease,
                Ok(Some(ToGuard::Run(..) | ToGuard::Keep(..) | ToGuard::Fork(..))) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The daemon is dead, or sent an invalid message.
                Ok(None) | Err(_) => {
                    self.control = None;
                    self.is_killing = true;
                }
            }
        }
    }

    /// Sends SIGTERM and SIGCONT once to every process of the job, including new ones.
    fn terminate(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let before = self.signalled.len();
            let is_complete = table::walk(getpid(), |pid, parent| {
                let raw = pid.as_raw_nonzero();
                if !self.signalled.contains(&raw)
                    && table::signal_if(pid, TERMINATE, || is_ours(pid, parent))
                {
                    self.signalled.insert(raw);
                }
            });
            if !is_complete {
                // The ids are valid until they are reaped here.
                for pid in self.known_children() {
                    if self.signalled.insert(pid.as_raw_nonzero()) {
                        table::send(TERMINATE, |signal| kill_process(pid, signal));
                    }
                }
            }
            if self.signalled.len() == before {
                break;
            }
        }
    }

    /// Sends SIGKILL to every visible process of the job.
    fn sweep(&mut self) {
        let me = getpid();
        let own_group = getpgrp().as_raw_nonzero().get();
        let is_complete = table::walk(me, |pid, parent| {
            if parent == me
                && let Some(stat) = Stat::of(pid)
                && stat.group != own_group
                && let Some(group) = Pid::from_raw(stat.group)
            {
                // Kills a chain of forks at once. The group id cannot be reused: the child in it is
                // not reaped yet.
                let _ = kill_process_group(group, Signal::KILL);
            }
            if table::signal_if(pid, KILL, || is_ours(pid, parent)) {
                self.signalled.insert(pid.as_raw_nonzero());
            } else if parent == me && Stat::of(pid).is_none() {
                // `/proc` may hide untraceable processes (`hidepid=invisible`). The process id is
                // valid until it is reaped.
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        if !is_complete {
            // Grandchildren become children of this subreaper once their parents are dead.
            for pid in self.known_children() {
                match getpgid(Some(pid)) {
                    Ok(group) if group.as_raw_nonzero().get() != own_group => {
                        let _ = kill_process_group(group, Signal::KILL);
                    }
                    Ok(_) | Err(_) => {}
                }
                if kill_process(pid, Signal::KILL).is_ok() {
                    self.signalled.insert(pid.as_raw_nonzero());
                }
            }
        }
        self.sweeps = self.sweeps.saturating_add(1);
    }
}

/// Whether a process found as a child of `parent` still is that, or was reparented to the guard.
fn is_ours(pid: Pid, parent: Pid) -> bool {
    let [parent, me] = [parent, getpid()].map(|pid| pid.as_raw_nonzero().get());
    Stat::of(pid).is_some_and(|stat| !stat.is_dead && (stat.parent == parent || stat.parent == me))
}

fn outcome(status: WaitStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Code(code),
        (None, Some(signal)) => Status::Signal(signal),
        (None, None) => Status::Unknown,
    }
}
