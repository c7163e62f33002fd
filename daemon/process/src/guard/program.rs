//! A program that can be a guard, and guards that run, from the side of the supervisor.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, kill_process_group,
    pidfd_open, pidfd_send_signal, setpgid, waitid, waitpid,
};

use crate::guard::protocol::{self, FromGuard, Status, ToGuardSocket};
use crate::guard::roster::{Entry, Roster};
use crate::isolation::Isolation;
use crate::launch::environment::{GUARD_MARK, variables_of_the_service_manager};
use crate::launch::{Prepared, unavailable};
use crate::null_device;
use crate::ready::ready;

/// Name of a guard in a process listing.
pub(crate) const NAME: &str = "ceased-guard";
/// Time limit for a program to prove that it can be a guard.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for a guard to copy itself, which takes 0.2 ms.
const FORKED_WITHIN: Duration = Duration::from_millis(500);
/// Time limit for a copy with namespaces of its own.
const ISOLATED_WITHIN: Duration = Duration::from_secs(2);
/// Time limit for the end of a killed guard.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// Polling interval of that.
const GONE_PAUSE: Duration = Duration::from_micros(200);
/// Argument of a guard that acts as the command of a trial.
pub(crate) const TRIAL: &str = "trial";

/// Whether [`init`](crate::guard::init) was called, so that executing ourselves again makes a
/// guard.
pub(crate) static HOOKED: AtomicBool = AtomicBool::new(false);

/// A program that can act as a guard.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    lease: Option<Arc<OwnedFd>>,
    roster: Option<Arc<Roster>>,
}

/// Programs are equal by path, whatever their guards hold.
impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Program {}

impl Program {
    /// The running program itself, if it called [`init`](crate::guard::init). Also works after its
    /// file was replaced.
    #[must_use]
    pub fn this() -> Option<Self> {
        HOOKED.load(Ordering::Relaxed).then(|| Self::at("/proc/self/exe".into()))
    }

    /// Another program that calls [`init`](crate::guard::init), such as an installed `ceased`.
    ///
    /// # Errors
    ///
    /// When a relative path cannot be made absolute.
    pub fn named(path: impl AsRef<Path>) -> io::Result<Self> {
        std::path::absolute(path).map(Self::at)
    }

    const fn at(path: PathBuf) -> Self {
        Self { path, lease: None, roster: None }
    }

    /// Passes this descriptor to every guard, which holds it for life: the other end can detect the
    /// exit of the last one.
    #[must_use]
    pub(crate) fn leased(self, lease: Arc<OwnedFd>) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Records every guard in the roster while it lives, for the next start.
    #[must_use]
    pub(crate) fn recorded(self, roster: Arc<Roster>) -> Self {
        Self { roster: Some(roster), ..self }
    }

    /// Path of the program.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tests that it is a guard, by having it run a command that ends at once.
    ///
    /// # Errors
    ///
    /// If it cannot be started, or does not complete that within five seconds; the text names the
    /// missing feature of the system.
    pub fn check(&self) -> io::Result<()> {
        let mut guard = self.ready_guard()?;
        let tried = guard.try_out(&self.path);
        guard.end();
        tried
    }

    /// Tests whether commands can have a pid namespace ([`Isolation::Pid`]).
    ///
    /// # Errors
    ///
    /// If they cannot; the text gives the cause and the remedy.
    pub fn check_isolation(&self) -> io::Result<()> {
        let mut original = self.ready_guard()?;
        let tried = original.fork(Isolation::Pid).and_then(|mut guard| {
            let tried = guard.try_out(&self.path);
            guard.end();
            tried
        });
        original.end();
        tried
    }

    /// Starts a guard and waits for its ready message.
    fn ready_guard(&self) -> io::Result<Started> {
        let mut guard = self.start("check")?;
        let answer = match ready(guard.socket.as_fd(), READY_WITHIN)? {
            true => guard.socket.receive()?,
            false => None,
        };
        if matches!(answer, Some(FromGuard::Ready { .. })) {
            return Ok(guard);
        }
        guard.end();
        let path = self.path.display();
        Err(io::Error::other(format!(
            "{path} is no guard: it does not call ceased_process::guard::init() first"
        )))
    }

    /// Starts a guard; `label` is shown in process listings.
    pub(crate) fn start(&self, label: &str) -> io::Result<Started> {
        let (socket, theirs) = protocol::pair()?;
        // A guard prints nothing, so its standard output is free to hold the lease.
        let held = match &self.lease {
            Some(lease) => Stdio::from(lease.try_clone()?),
            None => Stdio::null(),
        };
        let mut command = Command::new(&self.path);
        for name in variables_of_the_service_manager() {
            command.env_remove(name);
        }
        command
            .arg0(NAME)
            .arg(label)
            .env(GUARD_MARK, "1")
            .stdin(Stdio::from(theirs))
            .stdout(held)
            .stderr(Stdio::null())
            // Unaffected by a Ctrl-C of the terminal and by signals to this process group.
            .process_group(0);
        // Do not wait for the ready message: initializing a guard takes longer than most commands,
        // and would delay other jobs.
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        watched(pid, socket, Isolation::None, self.roster.as_ref())
    }
}

/// Watches a guard that is a child of this process; ends it if it cannot be watched.
fn watched(
    pid: Pid,
    socket: ToGuardSocket,
    isolation: Isolation,
    roster: Option<&Arc<Roster>>,
) -> io::Result<Started> {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            let entry = roster.and_then(|roster| roster.add(pid));
            Ok(Started { pid, pidfd, socket, isolation, entry })
        }
        Err(error) => {
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
            Err(io::Error::new(io::Error::from(error).kind(), format!("pidfd_open: {error}")))
        }
    }
}

/// A guard process, as seen by the daemon.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) socket: ToGuardSocket,
    pub(crate) isolation: Isolation,
    /// Its line in the roster, if any.
    pub(crate) entry: Option<Entry>,
}

impl Started {
    /// Whether it is still running.
    pub(crate) fn is_alive(&self) -> bool {
        ready(self.pidfd.as_fd(), Duration::ZERO).is_ok_and(|has_exited| !has_exited)
    }

    /// Has an idle guard copy itself; the copy is a child of this process as well.
    ///
    /// Until its process id is known, the copy is in the group of the original. So if this fails,
    /// [`Started::end`] of the original also ends the copy, and leaves no zombie.
    pub(crate) fn fork(&self, isolation: Isolation) -> io::Result<Self> {
        let (socket, theirs) = protocol::pair()?;
        // It may be stopped.
        let _ = pidfd_send_signal(&self.pidfd, Signal::CONT);
        self.socket.fork(&theirs, isolation)?;
        drop(theirs);
        let within = match isolation {
            Isolation::None => FORKED_WITHIN,
            Isolation::Pid => ISOLATED_WITHIN,
        };
        if !ready(socket.as_fd(), within)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let pid = match socket.receive()? {
            Some(FromGuard::Ready { pid }) => Pid::from_raw(pid),
            Some(FromGuard::Failed(fault)) => {
                return Err(io::Error::new(io::ErrorKind::Unsupported, unavailable(fault)));
            }
            Some(_) | None => None,
        };
        let pid = pid.ok_or_else(|| io::Error::other("a guard did not copy itself"))?;
        // Give the copy its own group, so that it is not ended with the original.
        setpgid(Some(pid), None)?;
        watched(pid, socket, isolation, self.entry.as_ref().map(Entry::roster))
    }

    /// Has an idle guard run a command that ends at once: `program` itself.
    fn try_out(&self, program: &Path) -> io::Result<()> {
        let env = CString::new(format!("{GUARD_MARK}=1"))?;
        let argv = [CString::new(NAME)?, CString::new(TRIAL)?];
        let argv = argv.each_ref().map(CString::as_c_str);
        let prepared = Prepared::trial(program, &argv, &[env.as_c_str()])
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let null = null_device::open()?;
        let null = || null.as_fd().try_clone_to_owned();
        self.socket.run(&prepared, &[null()?, null()?, null()?, null()?])?;
        let until = Instant::now() + READY_WITHIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !ready(self.socket.as_fd(), left)? {
                return Err(io::Error::other("a guard did not run a command in time"));
            }
            match self.socket.receive()? {
                Some(FromGuard::Started { .. } | FromGuard::Ready { .. }) => {}
                Some(FromGuard::Exited { status: Status::Code(0), .. }) => return Ok(()),
                Some(FromGuard::Exited { status, .. }) => {
                    return Err(io::Error::other(format!(
                        "a guarded command ended with {status:?}"
                    )));
                }
                Some(FromGuard::Failed(fault)) => {
                    let error = io::Error::from_raw_os_error(fault.errno);
                    let what =
                        format!("a guard cannot start a command ({:?}): {error}", fault.step);
                    return Err(io::Error::new(error.kind(), what));
                }
                Some(FromGuard::Gone { .. }) | None => {
                    return Err(io::Error::other("a guard did not report the end of a command"));
                }
            }
        }
    }

    /// Ends an idle guard and its unconfirmed copies, and waits for their exit, except if a tracer
    /// prevents reaping.
    pub(crate) fn end(&mut self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let _ = ready(self.pidfd.as_fd(), GONE_WITHIN);
        let exited = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let has_exited = retry_on_intr(|| waitid(WaitId::PidFd(self.pidfd.as_fd()), exited));
        if !matches!(has_exited, Ok(Some(_))) {
            // It was reaped elsewhere, so that its process id may be reused; or it is traced.
            return;
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        let (group, options) =
            (WaitId::Pgid(Some(self.pid)), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        let until = Instant::now() + GONE_WITHIN;
        loop {
            match retry_on_intr(|| waitid(group.clone(), options)) {
                Ok(Some(_)) => {}
                Ok(None) if Instant::now() < until => sleep(GONE_PAUSE),
                Ok(None) | Err(_) => return,
            }
        }
    }
}
