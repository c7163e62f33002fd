//! The life of a guard process: it waits for a command, runs it, and ends everything the command
//! started when it is told to, or when its daemon is dead.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroI32;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::exit;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, chdir, getpgrp, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait,
};

use crate::guard::keep::keep;
use crate::guard::namespace::{self, Failed};
use crate::guard::protocol::{FromGuard, Status, ToGuard, ToSupervisorSocket};
use crate::isolation::Isolation;
use crate::launch::Prepared;
use crate::proc::table::{self, KILL, Stat, TERMINATE};
use crate::sys::{self, Fault, FaultCell, Twin};

/// How often a process table is looked through for processes that were born meanwhile.
const ROUNDS_MAX: u32 = 8;
/// How many exits are taken in before anything else is looked at again.
const REAPED_MAX: u32 = 1024;
/// Exit code of a guard that could not do its duty.
const EXIT_FAILED: i32 = 70;

/// A guard process's whole life; returns its exit code.
pub(crate) fn main() -> i32 {
    // Before anything else: a process of the same user could trace it.
    sys::forbid_tracing();
    // From here on it is what stops a command.
    sys::block_signals();
    sys::close_inherited(3);
    match serve() {
        Ok(()) => 0,
        Err(_) => EXIT_FAILED,
    }
}

fn serve() -> io::Result<()> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    let mut control = ToSupervisorSocket::new(control);
    enter_service(&control, getpid().as_raw_nonzero().get())?;
    loop {
        match control.receive()? {
            Some(ToGuard::Fork(theirs, isolation)) => {
                let theirs = ToSupervisorSocket::new(theirs);
                let copied = match isolation {
                    // Where there is no copy, its end of the socket is closed now, and says so.
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
                // A spare one does not know yet for what job it was started.
                if let Some(job) = prepared.job() {
                    let _ = rustix::thread::set_name(job);
                }
                control.set_nonblocking()?;
                return Guard::start(control, prepared, descriptors)?.run();
            }
            Some(ToGuard::Keep(path, roll)) => return keep(&control, &path, roll),
            Some(ToGuard::Terminate | ToGuard::Kill) | None => return Ok(()),
        }
    }
}

/// Makes a copy in namespaces of its own; in the copy, its number as our parent knows it. An obstacle
/// is reported over the socket of the copy.
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

/// Becomes the subreaper of a job to come, and says that it is there, as process `pid`.
fn enter_service(control: &ToSupervisorSocket, pid: i32) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    control.send(FromGuard::Ready { pid });
    Ok(())
}

/// What the guard of one command knows.
struct Guard {
    /// `None` once the daemon is dead.
    control: Option<ToSupervisorSocket>,
    /// Readable when a child has exited.
    exits: OwnedFd,
    leader: Leader,
    is_killing: bool,
    /// More children may have exited than were taken in at once. All of them were announced
    /// together, and nobody will announce them again.
    is_behind: bool,
    /// Sweeps in a row, so that waiting for what cannot be killed costs less and less.
    sweeps: u32,
    signalled: BTreeSet<NonZeroI32>,
}

/// The command itself.
enum Leader {
    /// Whether it could be started is known when it has exited.
    Started(Pid, FaultCell),
    /// Exited or never started, and the daemon was told.
    Over,
}

impl Guard {
    fn start(
        control: ToSupervisorSocket,
        prepared: Prepared,
        descriptors: [OwnedFd; 4],
    ) -> io::Result<Self> {
        let exits = sys::child_exits()?;
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
        // A guard must not keep the directory busy that its daemon was started in.
        let _ = chdir("/");
        Ok(Self {
            control: Some(control),
            exits,
            leader,
            is_killing: false,
            is_behind: false,
            sweeps: 0,
            signalled: BTreeSet::new(),
        })
    }

    /// Guards until no process of the job is left (STOP-01).
    fn run(&mut self) -> io::Result<()> {
        loop {
            if !self.reap()? {
                let signalled = u32::try_from(self.signalled.len()).unwrap_or(u32::MAX);
                self.tell(FromGuard::Gone { signalled });
                return Ok(());
            }
            if self.is_killing {
                self.sweep();
            }
            self.wait()?;
            self.hear();
        }
    }

    fn tell(&self, message: FromGuard) {
        if let Some(control) = &self.control {
            control.send(message);
        }
    }

    /// Takes in what has exited; false when nothing of the job is left.
    fn reap(&mut self) -> io::Result<bool> {
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
                Err(error) => return Err(error.into()),
            }
        }
        match exited {
            Some((_, Some(fault))) => self.tell(FromGuard::Failed(fault)),
            Some((status, None)) => self.tell(FromGuard::Exited { status, others: is_left }),
            None => {}
        }
        Ok(is_left)
    }

    /// Sleeps until there is something to do.
    fn wait(&self) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.exits, PollFlags::IN)];
        if let Some(control) = &self.control {
            fds.push(PollFd::new(control, PollFlags::IN));
        }
        let pause = match (self.is_behind, self.is_killing) {
            (true, _) => Some(Duration::ZERO),
            (false, true) => Some(Duration::from_millis(u64::from(self.sweeps.clamp(1, 100)))),
            (false, false) => None,
        };
        let pause = pause.and_then(|pause| Timespec::try_from(pause).ok());
        match poll(&mut fds, pause.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes in what happened meanwhile.
    fn hear(&mut self) {
        // Which children have exited is for `reap` to find out.
        let mut signals = [0; 4096];
        while read(&self.exits, &mut signals).is_ok_and(|n| n == signals.len()) {}
        while let Some(control) = &self.control {
            match control.receive() {
                Ok(Some(ToGuard::Terminate)) => self.terminate(),
                Ok(Some(ToGuard::Kill)) => {
                    self.is_killing = true;
                    self.sweeps = 0;
                }
                Ok(Some(ToGuard::Run(..) | ToGuard::Keep(..) | ToGuard::Fork(..))) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The daemon is dead, or talks nonsense and might as well be.
                Ok(None) | Err(_) => {
                    self.control = None;
                    self.is_killing = true;
                }
            }
        }
    }

    /// SIGTERM and SIGCONT to every process of the job, once each, those born meanwhile included.
    fn terminate(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let before = self.signalled.len();
            table::walk(getpid(), |pid, parent| {
                let raw = pid.as_raw_nonzero();
                if !self.signalled.contains(&raw)
                    && table::signal_if(pid, TERMINATE, || is_ours(pid, parent))
                {
                    self.signalled.insert(raw);
                }
            });
            if self.signalled.len() == before {
                break;
            }
        }
    }

    /// SIGKILL to every process of the job that can be seen right now.
    fn sweep(&mut self) {
        let me = getpid();
        let own_group = getpgrp().as_raw_nonzero().get();
        table::walk(me, |pid, parent| {
            if parent == me
                && let Some(stat) = Stat::of(pid)
                && stat.group != own_group
                && let Some(group) = Pid::from_raw(stat.group)
            {
                // Hits a chain of forks in one blow. The number cannot be another's group: it is
                // taken as long as our child is in it, and that stays until we reap it.
                let _ = kill_process_group(group, Signal::KILL);
            }
            if table::signal_if(pid, KILL, || is_ours(pid, parent)) {
                self.signalled.insert(pid.as_raw_nonzero());
            } else if parent == me && Stat::of(pid).is_none() {
                // Where /proc hides what may not be traced (`hidepid=invisible`), a child can hide.
                // Its number is its own until we reap it.
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        self.sweeps = self.sweeps.saturating_add(1);
    }
}

/// Whether a process that was found as a child of `parent` still is that, or has become ours.
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
