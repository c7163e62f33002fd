//! The calls that need `unsafe`: starting a process exactly as we want it, and signal state.
//!
//! Everything else in this package goes through `rustix` or the standard library. The standard
//! `Command` is not used for tools because it cannot start a process inside a control group, hands
//! no pidfd out, blocks until the exec is done, and inherits signal masks and ignored signals.

#![allow(unsafe_code, reason = "the one place for it")]

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_char, c_int};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

/// Descriptors below this number are given away to the tool, so ours are moved above it first.
const OURS_FROM: RawFd = 10;
/// The kernel's highest signal number on every Linux architecture we build for.
const SIGNAL_MAX: c_int = 64;
/// The kernel's flag; the one in `libc` is an `int` and too short for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a child process is to become.
pub(crate) struct Exec<'a> {
    /// Paths of the program, tried in this order until one can be executed.
    pub(crate) programs: &'a [CString],
    /// The arguments, the program's name first.
    pub(crate) argv: &'a [CString],
    /// The whole environment, as `NAME=value`.
    pub(crate) env: &'a [CString],
    /// The working directory; the caller's when `None`.
    pub(crate) cwd: Option<&'a CStr>,
    /// Whose process it becomes; the caller's when `None`.
    pub(crate) credentials: Option<&'a Credentials>,
    /// What the child has as descriptors 0, 1, 2 and 3. It gets no others.
    pub(crate) descriptors: [BorrowedFd<'a>; 4],
    /// The control group it is born in, as an open directory.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    /// Whether the kernel kills it when the calling thread ends.
    pub(crate) dies_with_caller: bool,
}

/// The user and the groups a process has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// The user, real, effective and saved.
    pub(crate) uid: u32,
    /// The primary group, real, effective and saved.
    pub(crate) gid: u32,
    /// All supplementary groups.
    pub(crate) groups: Vec<u32>,
}

/// A child process just started.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// Its process id; also its process group and its session.
    pub(crate) pid: Pid,
    /// Readable once it has exited.
    pub(crate) pidfd: OwnedFd,
    /// Ends without a byte once the program runs; holds one [`Fault`] when it cannot run. Never
    /// blocks a reader.
    pub(crate) fault: OwnedFd,
}

/// Why a child could not become the program it was meant to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What it was doing.
    pub(crate) step: Step,
    /// The error number the kernel gave.
    pub(crate) errno: i32,
}

/// The steps between being born and running the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Entering the control group.
    Cgroup,
    /// Putting descriptors 0 to 3 in place.
    Descriptors,
    /// Starting a session of its own.
    Session,
    /// Becoming another user.
    Credentials,
    /// Entering the working directory.
    Cwd,
    /// Executing the program.
    Exec,
}

impl Step {
    const ALL: [Self; 6] =
        [Self::Cgroup, Self::Descriptors, Self::Session, Self::Credentials, Self::Cwd, Self::Exec];
}

impl Fault {
    /// How many bytes a fault is on a pipe or a socket.
    pub(crate) const BYTES: usize = 5;

    /// The fault as bytes.
    pub(crate) const fn encode(self) -> [u8; Self::BYTES] {
        let [a, b, c, d] = self.errno.to_le_bytes();
        [self.step as u8, a, b, c, d]
    }

    /// Reads what [`Fault::encode`] wrote; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[step], errno) = bytes.split_first_chunk::<1>()?;
        let step = *Step::ALL.get(usize::from(step))?;
        Some(Self { step, errno: i32::from_le_bytes(errno.try_into().ok()?) })
    }
}

/// Starts a process as leader of its own session, with default signal handling, an empty signal
/// mask and no descriptor but the four it is given. Returns without waiting for the exec.
///
/// # Errors
///
/// When no process can be made: `EAGAIN` at a process limit, `EMFILE`, `ENOMEM`; `EACCES`,
/// `EBUSY` or `EOPNOTSUPP` when the control group takes no process.
pub(crate) fn spawn(exec: &Exec<'_>) -> io::Result<Spawned> {
    let argv = pointers(exec.argv);
    let env = pointers(exec.env);
    let parent = rustix::process::getpid();
    let (fault, report) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    match fork_into(exec.cgroup)? {
        Forked::Parent { pid, pidfd } => Ok(Spawned { pid, pidfd, fault }),
        Forked::Child { in_cgroup } => {
            // SAFETY: we are the child of a fork and only call async-signal-safe functions:
            // `become_program` neither allocates nor locks nor unwinds, and never returns.
            unsafe { become_program(exec, &argv, &env, report.as_raw_fd(), parent, in_cgroup) }
        }
    }
}

/// Starts a process that does nothing but wait to be killed, inside a control group. It is there
/// to try the group out.
///
/// # Errors
///
/// As [`spawn`].
pub(crate) fn spawn_idle(cgroup: BorrowedFd<'_>) -> io::Result<(Pid, OwnedFd)> {
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    match fork_into(Some(cgroup))? {
        Forked::Parent { pid, pidfd } => Ok((pid, pidfd)),
        Forked::Child { in_cgroup } => {
            let entered = in_cgroup || enter(cgroup).is_ok();
            // SAFETY: prctl, getppid, pause and _exit are async-signal-safe. The death signal
            // keeps the idle process from outliving a caller that is killed while it looks; one
            // that was killed before is not its parent any more.
            unsafe {
                if !entered {
                    libc::_exit(127);
                }
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != parent {
                    libc::_exit(127);
                }
                loop {
                    libc::pause();
                }
            }
        }
    }
}

/// Blocks every signal that can be blocked for the calling thread, for good.
pub(crate) fn block_signals() {
    // SAFETY: both functions only write to the set they are given, which outlives the calls.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// A non-blocking descriptor that is readable when a child has exited. `SIGCHLD` has to be blocked.
///
/// # Errors
///
/// When the descriptor cannot be made.
pub(crate) fn child_exits() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before it is read; the result is checked
    // before it is taken as a descriptor nobody else owns. Setting SIGCHLD to its default undoes
    // an inherited "ignore", under which the kernel would throw exit statuses away.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Closes every descriptor from `first` on: the ones a guard inherited by somebody's accident.
///
/// Call it only where nothing of this process has opened a descriptor yet.
pub(crate) fn close_inherited(first: u32) {
    // SAFETY: the caller guarantees that no object of this process owns one of these descriptors.
    unsafe {
        libc::syscall(libc::SYS_close_range, first, u32::MAX, 0u32);
    }
}

/// More descriptors than any service manager hands over; what is announced beyond is not believed.
const INHERITED_MAX: usize = 1024;

/// The `count` descriptors from 3 on, which whoever started this process left open for us. Once
/// only: a second call gives none, and neither do numbers that are not open.
///
/// Call it only when `$LISTEN_PID` says that they are ours.
pub(crate) fn inherited_descriptors(count: usize) -> Vec<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let numbers = (3..).take(count.min(INHERITED_MAX));
    // SAFETY: asking for the flags of a number that is no descriptor fails and does nothing else.
    let is_open = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    // SAFETY: the descriptors are open, were given to this process as a whole before it opened
    // any, and are taken once, so nobody else owns them.
    numbers.filter(is_open).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect()
}

enum Forked {
    Child { in_cgroup: bool },
    Parent { pid: Pid, pidfd: OwnedFd },
}

/// Forks, into the control group where the kernel can do that in one step.
///
/// The child has every signal blocked, so that none of the parent's handlers runs in it.
fn fork_into(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    // SAFETY: the sets are written before they are read. clone3 gets a zeroed argument block of
    // its exact size whose pointer is to a live `c_int`; without CLONE_VM it is a fork, so the
    // child has its own copy of the stack. The pidfd is a new descriptor that nobody else owns.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        let mut before: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);

        let mut pidfd: c_int = -1;
        let mut args: libc::clone_args = mem::zeroed();
        args.flags = libc::CLONE_PIDFD as u64;
        args.pidfd = (&raw mut pidfd).addr() as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        if let Some(dir) = cgroup {
            args.flags |= CLONE_INTO_CGROUP;
            args.cgroup = dir.as_raw_fd() as u64;
        }
        let size = size_of::<libc::clone_args>();
        let pid = libc::syscall(libc::SYS_clone3, &raw mut args, size);
        if pid == 0 {
            return Ok(Forked::Child { in_cgroup: true });
        }
        let result = if pid > 0 {
            #[expect(clippy::cast_possible_truncation, reason = "a pid is an int")]
            parent_of(pid as c_int, Ok(OwnedFd::from_raw_fd(pidfd)))
        } else {
            match io::Error::last_os_error() {
                // Sandboxes that cannot look into clone3's arguments refuse it altogether.
                error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    match libc::fork() {
                        0 => return Ok(Forked::Child { in_cgroup: cgroup.is_none() }),
                        pid if pid > 0 => parent_of(pid, open_pidfd(pid)),
                        _ => Err(io::Error::last_os_error()),
                    }
                }
                error => Err(error),
            }
        };
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        result
    }
}

fn open_pidfd(pid: c_int) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).expect("fork gave a positive pid");
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// The parent's side of a fork; a child that cannot be watched is ended, not leaked.
fn parent_of(pid: c_int, pidfd: io::Result<OwnedFd>) -> io::Result<Forked> {
    let pid = Pid::from_raw(pid).expect("fork gave a positive pid");
    match pidfd {
        Ok(pidfd) => Ok(Forked::Parent { pid, pidfd }),
        Err(error) => {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(error)
        }
    }
}

/// Null-terminated pointers to strings that the caller keeps alive.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

/// Moves the calling process into a control group; for kernels and sandboxes where a process
/// cannot be born there.
fn enter(cgroup: BorrowedFd<'_>) -> Result<(), c_int> {
    // SAFETY: openat and write are async-signal-safe and get pointers to static strings. The
    // descriptor is close-on-exec, so that leaving it open costs nothing.
    unsafe {
        let flags = libc::O_WRONLY | libc::O_CLOEXEC;
        let procs = libc::openat(cgroup.as_raw_fd(), c"cgroup.procs".as_ptr(), flags);
        if procs < 0 || libc::write(procs, c"0".as_ptr().cast(), 1) < 0 {
            return Err(last_errno());
        }
    }
    Ok(())
}

fn last_errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The child's side: becomes the program, or says why not and exits.
///
/// # Safety
///
/// Only in the child of a fork. `argv` and `env` are null-terminated arrays of C strings.
unsafe fn become_program(
    exec: &Exec<'_>,
    argv: &[*const c_char],
    env: &[*const c_char],
    report: RawFd,
    parent: Pid,
    in_cgroup: bool,
) -> ! {
    // SAFETY: the caller's guarantees are passed on. fcntl, write and _exit are
    // async-signal-safe.
    unsafe {
        // The report leaves the range that the tool's descriptors will occupy.
        let report = libc::fcntl(report, libc::F_DUPFD_CLOEXEC, OURS_FROM);
        let fault = match prepare(exec, parent, in_cgroup) {
            Ok(()) => Fault { step: Step::Exec, errno: execute(exec.programs, argv, env) },
            Err(fault) => fault,
        };
        let bytes = fault.encode();
        libc::write(report, bytes.as_ptr().cast(), bytes.len());
        libc::_exit(127)
    }
}

/// Everything between the fork and the exec.
///
/// # Safety
///
/// Only in the child of a fork.
unsafe fn prepare(exec: &Exec<'_>, parent: Pid, in_cgroup: bool) -> Result<(), Fault> {
    let at = |step| move |errno| Fault { step, errno };
    if let (Some(cgroup), false) = (exec.cgroup, in_cgroup) {
        enter(cgroup).map_err(at(Step::Cgroup))?;
    }
    // SAFETY: all of these are async-signal-safe, get integers or pointers to live C strings and
    // locals, and in this process nobody else owns the descriptors they replace.
    unsafe {
        let mut moved = [-1; 4];
        for (to, from) in moved.iter_mut().zip(exec.descriptors) {
            *to = libc::fcntl(from.as_raw_fd(), libc::F_DUPFD_CLOEXEC, OURS_FROM);
            if *to < 0 {
                return Err(at(Step::Descriptors)(last_errno()));
            }
        }
        for (number, from) in (0..).zip(moved) {
            if libc::dup2(from, number) < 0 {
                return Err(at(Step::Descriptors)(last_errno()));
            }
        }
        // What an embedding program left inheritable stays out of the tool too.
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        libc::syscall(libc::SYS_close_range, 4u32, u32::MAX, flags);
        if libc::setsid() < 0 {
            return Err(at(Step::Session)(last_errno()));
        }
        if let Some(credentials) = exec.credentials {
            assume(credentials).map_err(at(Step::Credentials))?;
        }
        // As the user it is by now: what that one cannot enter is none's to give.
        if let Some(cwd) = exec.cwd
            && libc::chdir(cwd.as_ptr()) < 0
        {
            return Err(at(Step::Cwd)(last_errno()));
        }
        if exec.dies_with_caller {
            // Becoming another user would have taken it back.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != parent.as_raw_nonzero().get() {
                libc::_exit(127);
            }
        }
        reset_signals();
    }
    Ok(())
}

/// Gives up what the process may do for what another user may do, for good: groups first, while
/// that is still allowed, then the primary group, then the user.
///
/// # Safety
///
/// Only in the child of a fork.
unsafe fn assume(credentials: &Credentials) -> Result<(), c_int> {
    let Credentials { uid, gid, groups } = credentials;
    // SAFETY: plain system calls on integers and a live slice. The C library's functions would
    // signal all threads of a process that it believes to have the parent's.
    unsafe {
        if libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) < 0
            || libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid) < 0
            || libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid) < 0
        {
            return Err(last_errno());
        }
        // What was given up must not come back.
        if *uid != 0 && libc::syscall(libc::SYS_setresuid, -1, 0, -1) == 0 {
            return Err(libc::EPERM);
        }
    }
    Ok(())
}

/// Default handling for every signal, none blocked.
///
/// # Safety
///
/// Only in the child of a fork: handlers of the parent are lost.
unsafe fn reset_signals() {
    // SAFETY: both are plain system calls on live locals. A zeroed action is the default one in the
    // kernel's layout, on every architecture. The C library's own function refuses the two signals
    // it keeps for itself, which may well be inherited as ignored. Numbers that cannot be set are
    // refused without effect.
    unsafe {
        let default = [0u64; 8];
        let mask_bytes = size_of::<u64>();
        for signal in 1..=SIGNAL_MAX {
            let nothing = ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), nothing, mask_bytes);
        }
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Tries the programs in turn; returns the most telling error number when none can be executed.
///
/// # Safety
///
/// `argv` and `env` are null-terminated arrays of C strings.
unsafe fn execute(programs: &[CString], argv: &[*const c_char], env: &[*const c_char]) -> c_int {
    let mut telling = libc::ENOENT;
    for program in programs {
        // SAFETY: execve is async-signal-safe; the arrays are as the caller guarantees.
        unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
        match last_errno() {
            libc::ENOENT | libc::ENOTDIR => {}
            // Another directory may hold one we may execute, as every shell searches.
            libc::EACCES => telling = libc::EACCES,
            errno => return errno,
        }
    }
    telling
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_survive_the_pipe() {
        for step in Step::ALL {
            let fault = Fault { step, errno: -7 };
            assert_eq!(Fault::decode(&fault.encode()), Some(fault));
        }
        assert_eq!(Fault::decode(&[]), None);
        assert_eq!(Fault::decode(&[6, 0, 0, 0, 0]), None);
        assert_eq!(Fault::decode(&[4, 0, 0, 0]), None);
    }
}
