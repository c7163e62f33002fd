//! Starting a process exactly as we want it.
//!
//! The standard `Command` is not used for tools because it cannot start a process inside a control
//! group, hands no pidfd out, and inherits signal masks and ignored signals.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_char, c_int, c_void};
use rustix::process::Pid;

use super::fault::{Fault, FaultCell, SharedFault, Step};
use super::vfork;

/// Descriptors below this number are given away to the tool, so ours are moved above it first.
const OURS_FROM: RawFd = 10;
/// The kernel's highest signal number on every Linux architecture we build for.
const SIGNAL_MAX: c_int = 64;
/// The kernel's flag; the one in `libc` is an `int` and too short for it.
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What a process with this number says of itself.
pub(crate) type Words = fn(c_int) -> [u8; 8];

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
    /// Where the child itself says its number, and in what words, before it is the program: its
    /// caller may be killed before it could.
    pub(crate) announced: Option<(BorrowedFd<'a>, Words)>,
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
    /// Why it could not become the program.
    pub(crate) fault: FaultCell,
}

/// Starts a process as leader of its own session, with default signal handling, an empty signal
/// mask and no descriptor but the four it is given.
///
/// It shares our memory until it has become the program, and the calling thread waits for that: it
/// costs half of what a copy of our memory does, before and after. One that becomes another user is
/// forked instead, and nobody waits: that user could stop it on its way.
///
/// # Errors
///
/// When no process can be made: `EAGAIN` at a process limit, `EMFILE`, `ENOMEM`; `EACCES`,
/// `EBUSY` or `EOPNOTSUPP` when the control group takes no process.
pub(crate) fn spawn(exec: &Exec<'_>) -> io::Result<Spawned> {
    let argv = pointers(exec.argv);
    let env = pointers(exec.env);
    let parent = rustix::process::getpid();
    let (argv, env) = (&*argv, &*env);
    if exec.credentials.is_none() {
        let fault = AtomicU64::new(0);
        let birth = Birth { exec, argv, env, fault: &fault, parent };
        let unblocked = Unblocked::block();
        // SAFETY: `be_born` gets what it wants, alive until the child has another memory.
        let born =
            unsafe { vfork::vfork(exec.cgroup, be_born, (&raw const birth).cast_mut().cast()) };
        unblocked.restore();
        if let Some((pid, pidfd)) = born? {
            let fault = FaultCell::Known(Fault::unpack(fault.load(Ordering::Acquire)));
            return Ok(Spawned { pid, pidfd, fault });
        }
    }
    let shared = SharedFault::new()?;
    match fork_into(exec.cgroup)? {
        Forked::Parent { pid, pidfd } => {
            Ok(Spawned { pid, pidfd, fault: FaultCell::Shared(shared) })
        }
        Forked::Child { in_cgroup } => {
            let fault = shared.cell();
            // SAFETY: we are the child of a fork and only call async-signal-safe functions:
            // `become_program` neither allocates nor locks nor unwinds, and never returns.
            unsafe { become_program(&Birth { exec, argv, env, fault, parent }, in_cgroup) }
        }
    }
}

/// What a child needs to become a program.
struct Birth<'a> {
    exec: &'a Exec<'a>,
    /// Null-terminated, like `env`.
    argv: &'a [*const c_char],
    env: &'a [*const c_char],
    fault: &'a AtomicU64,
    parent: Pid,
}

/// The life of a child that shares our memory and was born in its control group.
///
/// # Safety
///
/// Only as such a child, with a [`Birth`] that lives.
unsafe extern "C" fn be_born(birth: *mut c_void) -> ! {
    // SAFETY: the caller's guarantees are passed on.
    unsafe { become_program(&*birth.cast::<Birth<'_>>(), true) }
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

enum Forked {
    Child { in_cgroup: bool },
    Parent { pid: Pid, pidfd: OwnedFd },
}

/// Forks, into the control group where the kernel can do that in one step.
///
/// The child has every signal blocked, so that none of the parent's handlers runs in it.
fn fork_into(cgroup: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    let unblocked = Unblocked::block();
    // SAFETY: clone3 gets a zeroed argument block of its exact size whose pointer is to a live
    // `c_int`; without CLONE_VM it is a fork, so the child has its own copy of the stack. The pidfd
    // is a new descriptor that nobody else owns.
    let result = unsafe {
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
        if pid > 0 {
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
        }
    };
    unblocked.restore();
    result
}

/// Which of two processes this is that were one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Twin {
    /// The one that was copied.
    Original,
    /// The copy.
    Copy,
}

/// Copies this process; the copy is a child of our parent, like us.
///
/// # Errors
///
/// When this process has more than one thread, or that cannot be seen; `EAGAIN` at a process limit,
/// `ENOMEM`.
pub(crate) fn fork_sibling() -> io::Result<Twin> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("only a process with one thread can be copied whole"));
    }
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    let zero: libc::c_long = 0;
    // SAFETY: without CLONE_VM it is a fork, on a copy of our stack. There is no other thread whose
    // locks the copy would find taken for ever. The zeros are no stack, no places for thread ids and
    // no thread storage, in whatever order the architecture has them.
    match unsafe { libc::syscall(libc::SYS_clone, flags, zero, zero, zero, zero) } {
        0 => Ok(Twin::Copy),
        1.. => Ok(Twin::Original),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The signals a thread had blocked before it blocked them all.
struct Unblocked(libc::sigset_t);

impl Unblocked {
    /// Blocks every signal for the calling thread.
    fn block() -> Self {
        // SAFETY: the sets are written before they are read.
        unsafe {
            let mut all: libc::sigset_t = mem::zeroed();
            let mut before: libc::sigset_t = mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }

    /// Blocks what was blocked before.
    fn restore(self) {
        // SAFETY: the set is a live one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut());
        }
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
/// Only in a child, with a [`Birth`] whose lists are null-terminated arrays of C strings.
unsafe fn become_program(birth: &Birth<'_>, in_cgroup: bool) -> ! {
    let Birth { exec, argv, env, fault, parent } = birth;
    // SAFETY: the caller's guarantees are passed on. _exit is async-signal-safe.
    unsafe {
        let why = match prepare(exec, *parent, in_cgroup) {
            Ok(()) => Fault { step: Step::Exec, errno: execute(exec.programs, argv, env) },
            Err(why) => why,
        };
        fault.store(why.pack(), Ordering::Release);
        libc::_exit(127)
    }
}

/// Everything between the fork and the exec.
///
/// # Safety
///
/// Only in a child.
unsafe fn prepare(exec: &Exec<'_>, parent: Pid, in_cgroup: bool) -> Result<(), Fault> {
    let at = |step| move |errno| Fault { step, errno };
    if let Some((to, words)) = exec.announced {
        // SAFETY: getpid and send are async-signal-safe, and the bytes live as long as the call.
        unsafe {
            let words = words(libc::getpid());
            libc::send(to.as_raw_fd(), words.as_ptr().cast(), words.len(), libc::MSG_NOSIGNAL);
        }
    }
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
