//! The guard: a process between the daemon and one command, that outlives the daemon just long
//! enough to end the command and everything it started.
//!
//! It is a child subreaper: a descendant that loses its parent, whatever session or group it moved
//! to, becomes the guard's own child and cannot get out of its sight. It holds the other end of a
//! socket of the daemon's; when that ends, the daemon is dead and the guard kills what it guards.
//! It runs in one thread, decides nothing, and blocks all signals, so that only SIGKILL ends it.

use std::collections::BTreeSet;
use std::env;
use std::io;
use std::num::NonZeroI32;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, chdir, getpgrp,
    getpid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal, set_child_subreaper,
    setpgid, wait, waitid, waitpid,
};

use super::keeper;
use super::launch::Prepared;
use super::limits;
use super::tree::{self, KILL, Stat, TERMINATE};
use super::wire::{self, FromGuard, Status, ToGuard, ToGuardSocket, ToSupervisorSocket};
use crate::service;
use crate::sys::{self, Fault, FaultCell, Slice, Twin};

/// The environment variable that, together with [`NAME`], marks a process as a guard.
pub(super) const MARK: &str = "CEASED_GUARD";
/// What a guard is called in a process listing.
const NAME: &str = "ceased-guard";
/// How long a program may take to prove that it can be a guard.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// How long a guard may take to make a copy of itself, which takes a fifth of a millisecond.
const FORKED_WITHIN: Duration = Duration::from_millis(500);
/// How often a process table is looked through for processes that were born meanwhile.
const ROUNDS_MAX: u32 = 8;
/// How many exits are taken in before anything else is looked at again.
const REAPED_MAX: u32 = 1024;
/// Exit code of a guard that could not do its duty.
const EXIT_FAILED: i32 = 70;

/// Whether [`init`] was called, so that executing ourselves again makes a guard.
static HOOKED: AtomicBool = AtomicBool::new(false);

/// Lets this program be its own guard. Call it as the first thing in `main`.
///
/// In an ordinary process it returns at once. In a process that was started as a guard it never
/// returns: it guards, and exits. A program that does not call it can still contain its tools with
/// control groups, or name another guard program ([`Program::named`]).
///
/// ```no_run
/// // The first statement of `main`:
/// ceased::process::guard::init();
/// ```
pub fn init() {
    limits::note_original();
    let is_named = env::args_os().next().is_some_and(|name| name == NAME);
    if is_named && env::var_os(MARK).is_some() {
        exit(main());
    }
    HOOKED.store(true, Ordering::Relaxed);
}

/// A program that can be a guard.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    lease: Option<Arc<OwnedFd>>,
}

/// What its guards hold does not make it another program.
impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Program {}

impl Program {
    /// The running program itself, if it called [`init`]. Also works after its file was replaced.
    #[must_use]
    pub fn this() -> Option<Self> {
        HOOKED.load(Ordering::Relaxed).then(|| Self::at("/proc/self/exe".into()))
    }

    /// Another program that calls [`init`], such as an installed `ceased`.
    ///
    /// # Errors
    ///
    /// When a relative path cannot be made absolute.
    pub fn named(path: impl AsRef<Path>) -> io::Result<Self> {
        std::path::absolute(path).map(Self::at)
    }

    const fn at(path: PathBuf) -> Self {
        Self { path, lease: None }
    }

    /// Has every guard hold this descriptor as long as it lives, so that whoever looks at what is
    /// behind it can tell when the last one is gone.
    #[must_use]
    pub(super) fn leased(self, lease: Arc<OwnedFd>) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Where the program is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tries whether it really is a guard.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or does not answer as a guard within five seconds.
    pub fn check(&self) -> io::Result<()> {
        let mut guard = self.start("check")?;
        let answer = match ready(guard.socket.as_fd(), READY_WITHIN)? {
            true => guard.socket.receive()?,
            false => None,
        };
        let path = self.path.display();
        guard.end();
        if matches!(answer, Some(FromGuard::Ready { .. })) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{path} is no guard: it does not call ceased::process::guard::init() first"
        )))
    }

    /// Starts a guard; `label` is for a process listing.
    pub(super) fn start(&self, label: &str) -> io::Result<Started> {
        let (socket, theirs) = wire::pair()?;
        // A guard prints nothing, so this is where it can hold what it only has to hold.
        let held = match &self.lease {
            Some(lease) => Stdio::from(lease.try_clone()?),
            None => Stdio::null(),
        };
        let mut command = Command::new(&self.path);
        for name in service::private_variables() {
            command.env_remove(name);
        }
        command
            .arg0(NAME)
            .arg(label)
            .env(MARK, "1")
            .stdin(Stdio::from(theirs))
            .stdout(held)
            .stderr(Stdio::null())
            // Out of reach of a terminal's Ctrl-C and of a kill of our group.
            .process_group(0);
        // It takes longer to become a guard than most commands take in all, and nobody is to wait
        // for their turn until it has.
        let child = sys::while_in(Slice::Long, || command.spawn())?;
        let pid = Pid::from_child(&child);
        watched(pid, socket)
    }
}

/// A guard that is our child; one that cannot be watched is ended, not leaked.
fn watched(pid: Pid, socket: ToGuardSocket) -> io::Result<Started> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(Started { pid, pidfd, socket }),
        Err(error) => {
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
            Err(error.into())
        }
    }
}

/// A guard process, from the daemon's side.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    pub(super) socket: ToGuardSocket,
}

impl Started {
    /// Whether it has not exited.
    pub(super) fn is_alive(&self) -> bool {
        ready(self.pidfd.as_fd(), Duration::ZERO).is_ok_and(|has_exited| !has_exited)
    }

    /// Has a guard that guards nothing make another, which is our child as well.
    ///
    /// Until we know its number it is in the group of what it is a copy of. So when this fails,
    /// [`Started::end`] of that ends whatever was made of it, and leaves nobody unburied.
    pub(super) fn fork(&self) -> io::Result<Self> {
        let (socket, theirs) = wire::pair()?;
        // Somebody may have stopped it.
        let _ = pidfd_send_signal(&self.pidfd, Signal::CONT);
        self.socket.fork(&theirs)?;
        drop(theirs);
        if !ready(socket.as_fd(), FORKED_WITHIN)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let pid = match socket.receive()? {
            Some(FromGuard::Ready { pid }) => Pid::from_raw(pid),
            Some(_) | None => None,
        };
        let pid = pid.ok_or_else(|| io::Error::other("a guard makes no copy of itself"))?;
        // It must not be ended with what it is a copy of.
        setpgid(Some(pid), None)?;
        watched(pid, socket)
    }

    /// Ends a guard that guards nothing, with copies of it that never came to be one, and waits
    /// until they are gone.
    pub(super) fn end(&mut self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let has_exited = retry_on_intr(|| waitid(WaitId::PidFd(self.pidfd.as_fd()), exited));
        if has_exited.is_err() {
            // Somebody else has buried it, and its number may be another's.
            return;
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        let group = WaitId::Pgid(Some(self.pid));
        while retry_on_intr(|| waitid(group.clone(), WaitIdOptions::EXITED)).is_ok() {}
    }
}

/// Waits until a descriptor is readable; false when it is not within the time.
pub(super) fn ready(fd: std::os::fd::BorrowedFd<'_>, within: Duration) -> io::Result<bool> {
    let within = Timespec::try_from(within).ok();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    Ok(retry_on_intr(|| poll(&mut fds, within.as_ref()))? > 0)
}

/// A guard process's whole life; returns its exit code.
fn main() -> i32 {
    // From here on it is what stops a command.
    sys::run_in(Slice::Ordinary);
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
    enter_service(&control)?;
    loop {
        match control.receive()? {
            Some(ToGuard::Fork(theirs)) => {
                // Where there is no copy, its end of the socket is closed now, and says so.
                if let Ok(Twin::Copy) = sys::fork_sibling() {
                    control = ToSupervisorSocket::new(theirs);
                    enter_service(&control)?;
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
            Some(ToGuard::Keep(path)) => return keeper::keep(&control, &path),
            Some(ToGuard::Terminate | ToGuard::Kill) | None => return Ok(()),
        }
    }
}

/// Becomes who gets the orphans, and says that it is there.
fn enter_service(control: &ToSupervisorSocket) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    control.send(FromGuard::Ready { pid: getpid().as_raw_nonzero().get() });
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
                Ok(Some(ToGuard::Run(..) | ToGuard::Keep(_) | ToGuard::Fork(_))) => {}
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
            tree::walk(getpid(), |pid, parent| {
                let raw = pid.as_raw_nonzero();
                if !self.signalled.contains(&raw)
                    && tree::signal_if(pid, TERMINATE, || is_ours(pid, parent))
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
        tree::walk(me, |pid, parent| {
            if parent == me
                && let Some(stat) = Stat::of(pid)
                && stat.group != own_group
                && let Some(group) = Pid::from_raw(stat.group)
            {
                // Hits a chain of forks in one blow. The number cannot be another's group: it is
                // taken as long as our child is in it, and that stays until we reap it.
                let _ = kill_process_group(group, Signal::KILL);
            }
            if tree::signal_if(pid, KILL, || is_ours(pid, parent)) {
                self.signalled.insert(pid.as_raw_nonzero());
            }
        });
        self.sweeps = self.sweeps.saturating_add(1);
    }
}

/// Whether a process that was found as a child of `parent` still is that, or has become ours.
fn is_ours(pid: Pid, parent: Pid) -> bool {
    let [parent, me] = [parent, getpid()].map(|pid| pid.as_raw_nonzero().get());
    Stat::of(pid)
        .is_some_and(|stat| !stat.is_zombie && (stat.parent == parent || stat.parent == me))
}

fn outcome(status: WaitStatus) -> Status {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Status::Code(code),
        (None, Some(signal)) => Status::Signal(signal),
        (None, None) => Status::Unknown,
    }
}
