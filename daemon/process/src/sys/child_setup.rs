//! The life of a child between its birth and the program it becomes.
//!
//! It may share its parent's memory, and its parent may run meanwhile. So nothing here allocates,
//! locks, unwinds, uses anything of a thread, or writes anything but its own stack and the fault.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_char, c_int};

use super::beneath;
use super::exec_error::{Fault, Step};
use super::image::{Credentials, Exec, Image, Limit, Words};
use super::raw;

/// Descriptors below this number are given away to the tool, so ours are moved above it first.
const OURS_FROM: RawFd = 10;
/// The kernel's highest signal number on every Linux architecture we build for.
const SIGNAL_MAX: c_int = 64;
/// The size of the kernel's set of signals.
const MASK_BYTES: usize = size_of::<u64>();

/// What a child needs to become a program, in the form the kernel takes it.
#[derive(Debug)]
pub(super) struct ChildSetup {
    image: Image,
    argv: Vec<*const c_char>,
    env: Vec<*const c_char>,
    descriptors: [RawFd; 4],
    cgroup: Option<RawFd>,
    dies_with_caller: bool,
    announced: Option<(RawFd, Words)>,
    parent: c_int,
}

// SAFETY: the pointers are to strings that it owns and nobody changes.
unsafe impl Send for ChildSetup {}

impl ChildSetup {
    pub(super) fn new(exec: Exec<'_>) -> Self {
        let Exec { image, descriptors, cgroup, dies_with_caller, announced } = exec;
        Self {
            argv: pointers(&image.argv),
            env: pointers(&image.env),
            image,
            descriptors: descriptors.map(|fd| fd.as_raw_fd()),
            cgroup: cgroup.map(|fd| fd.as_raw_fd()),
            dies_with_caller,
            announced: announced.map(|(to, words)| (to.as_raw_fd(), words)),
            parent: rustix::process::getpid().as_raw_nonzero().get(),
        }
    }

    pub(super) const fn credentials(&self) -> Option<&Credentials> {
        self.image.credentials.as_ref()
    }

    pub(super) const fn cgroup(&self) -> Option<RawFd> {
        self.cgroup
    }

    /// Becomes the program, or says why not and exits.
    ///
    /// # Safety
    ///
    /// Only in a child, whose parent has not closed the descriptors before it was born.
    pub(super) unsafe fn exec(&self, fault: &AtomicU64, in_cgroup: bool) -> ! {
        // SAFETY: the caller's guarantees are passed on. The lists end with null pointers.
        unsafe {
            let why = match self.prepare(in_cgroup) {
                Ok(()) => self.execute(),
                Err(why) => why,
            };
            fault.store(why.pack(), Ordering::Release);
            exit()
        }
    }

    /// Everything between the fork and the exec.
    ///
    /// # Safety
    ///
    /// Only in a child.
    unsafe fn prepare(&self, in_cgroup: bool) -> Result<(), Fault> {
        let at = |step| move |errno| Fault { step, errno };
        // SAFETY: plain system calls with integers, or pointers to what lives as long as the call.
        // In this process nobody else owns the descriptors that are replaced and closed.
        unsafe {
            if let Some((to, words)) = self.announced {
                let words = words(number(raw::call(libc::SYS_getpid, [0; 5])));
                let (start, bytes) = (words.as_ptr().expose_provenance(), words.len());
                let silent = libc::MSG_NOSIGNAL as usize;
                let _ = raw::call(libc::SYS_sendto, [of(to), start, bytes, silent, 0]);
            }
            if let (Some(cgroup), false) = (self.cgroup, in_cgroup) {
                enter(cgroup).map_err(at(Step::Cgroup))?;
            }
            self.place_descriptors().map_err(at(Step::Descriptors))?;
            raw::call(libc::SYS_setsid, [0; 5]).map_err(at(Step::Session))?;
            for limit in &self.image.limits {
                set_limit(limit).map_err(at(Step::Limits))?;
            }
            if let Some(credentials) = self.credentials() {
                give_up_priority();
                assume(credentials).map_err(at(Step::Credentials))?;
            }
            if self.dies_with_caller {
                // Becoming another user would have taken it back.
                let (set, kill) = (libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize);
                let _ = raw::call(libc::SYS_prctl, [set, kill, 0, 0, 0]);
                if number(raw::call(libc::SYS_getppid, [0; 5])) != self.parent {
                    exit();
                }
            }
            reset_signals();
            // As the user it is by now: what that one cannot enter is none's to give.
            self.enter_directory().map_err(at(Step::Cwd))?;
        }
        Ok(())
    }

    /// Leaves the child the four descriptors it is given, and no others.
    ///
    /// They are closed here and not by the exec: a file system that does not answer may keep the
    /// child from it for as long as it likes, and nobody else's pipe or connection must stay open
    /// so long.
    ///
    /// # Safety
    ///
    /// Only in a child.
    unsafe fn place_descriptors(&self) -> Result<(), c_int> {
        let mut moved = [0; 4];
        // SAFETY: as for `prepare`.
        unsafe {
            for (to, from) in moved.iter_mut().zip(self.descriptors) {
                let command = libc::F_DUPFD_CLOEXEC as usize;
                let arguments = [of(from), command, of(OURS_FROM), 0, 0];
                *to = raw::call(libc::SYS_fcntl, arguments)?;
            }
            for (place, from) in (0..).zip(moved) {
                raw::call(libc::SYS_dup3, [from, place, 0, 0, 0])?;
            }
            // Where that is unknown, they are all closed on exec but what an embedding program
            // left inheritable.
            let _ = raw::call(libc::SYS_close_range, [4, u32::MAX as usize, 0, 0, 0]);
        }
        Ok(())
    }

    /// Enters the first of the directories that is there.
    ///
    /// # Safety
    ///
    /// Only in a child.
    unsafe fn enter_directory(&self) -> Result<(), c_int> {
        if let (Some(base), Some(below)) = (self.image.cwds.first(), &self.image.below) {
            // SAFETY: the caller's guarantee is passed on.
            return unsafe { beneath::enter(base, below) };
        }
        let mut result = Ok(());
        for directory in &self.image.cwds {
            // SAFETY: the string lives.
            let entered = unsafe {
                raw::call(libc::SYS_chdir, [directory.as_ptr().expose_provenance(), 0, 0, 0, 0])
            };
            result = entered.map(drop);
            if !matches!(result, Err(libc::ENOENT | libc::ENOTDIR)) {
                break;
            }
        }
        result
    }

    /// Tries the programs in turn; returns the most telling fault when none can be executed.
    ///
    /// # Safety
    ///
    /// Only in a child.
    unsafe fn execute(&self) -> Fault {
        let fault = |errno| Fault { step: Step::Exec, errno };
        let mut telling = fault(libc::ENOENT);
        let argv = self.argv.as_ptr().expose_provenance();
        let env = self.env.as_ptr().expose_provenance();
        for program in &self.image.programs {
            let path = program.as_ptr().expose_provenance();
            // SAFETY: null-terminated arrays of strings that live.
            match unsafe { raw::call(libc::SYS_execve, [path, argv, env, 0, 0]) } {
                // No other process looks: the file system need not answer a second time.
                Ok(_) | Err(libc::ENOTDIR) => {}
                Err(libc::ENOENT) => {
                    // SAFETY: the string lives. Only this child looks: any other process would
                    // wait where the file system does not answer.
                    if unsafe { is_there(path) } {
                        telling = Fault { step: Step::Interpreter, errno: libc::ENOENT };
                    }
                }
                // Another directory may hold one we may execute, as every shell searches.
                Err(libc::EACCES) => telling = fault(libc::EACCES),
                Err(errno) => return fault(errno),
            }
        }
        telling
    }
}

/// Whether there is a file at a path.
///
/// # Safety
///
/// The path is the address of a C string.
unsafe fn is_there(path: usize) -> bool {
    let here = libc::AT_FDCWD.cast_unsigned() as usize;
    // SAFETY: the string lives.
    unsafe { raw::call(libc::SYS_faccessat, [here, path, libc::F_OK as usize, 0, 0]).is_ok() }
}

/// Null-terminated pointers to strings that stay alive.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
}

/// A descriptor as an argument.
const fn of(fd: RawFd) -> usize {
    fd.cast_unsigned() as usize
}

/// A result that is a process id.
fn number(result: Result<usize, c_int>) -> c_int {
    result.ok().and_then(|pid| c_int::try_from(pid).ok()).unwrap_or(0)
}

/// Ends a child that did not become a program.
///
/// # Safety
///
/// Only in a child.
unsafe fn exit() -> ! {
    loop {
        // SAFETY: this child has one thread, and nobody waits for it in another way.
        let _ = unsafe { raw::call(libc::SYS_exit_group, [127, 0, 0, 0, 0]) };
    }
}

/// Moves the calling process into a control group; for kernels and sandboxes where a process
/// cannot be born there. The child of a fork may call it.
pub(super) fn enter(cgroup: RawFd) -> Result<(), c_int> {
    let (name, zero) = (c"cgroup.procs".as_ptr(), c"0".as_ptr());
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: plain system calls with pointers to static strings. The descriptor is closed with
    // all the others.
    unsafe {
        let open = [of(cgroup), name.expose_provenance(), flags, 0, 0];
        let procs = raw::call(libc::SYS_openat, open)?;
        raw::call(libc::SYS_write, [procs, zero.expose_provenance(), 1, 0, 0])?;
    }
    Ok(())
}

/// Sets a resource limit of the calling process.
///
/// # Safety
///
/// Only in a child.
unsafe fn set_limit(limit: &Limit) -> Result<(), c_int> {
    let values = [limit.soft, limit.hard];
    let start = values.as_ptr().expose_provenance();
    // SAFETY: two live numbers are read, in the layout that the kernel has on every architecture,
    // and nothing is written.
    unsafe { raw::call(libc::SYS_prlimit64, [0, limit.resource as usize, start, 0, 0]).map(drop) }
}

/// Gives up a priority above the ordinary one, which may be root's and is not for another user: of
/// the niceness, of real-time scheduling, and where memory runs out. A lower one stays.
///
/// # Safety
///
/// Only in the child of a fork.
unsafe fn give_up_priority() {
    /// What the kernel gives for the ordinary niceness; more is a higher priority.
    const ORDINARY: usize = 20;
    const PROCESS: usize = libc::PRIO_PROCESS as usize;
    let zero: c_int = 0;
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
    let here = of(libc::AT_FDCWD);
    let (file, digit) = (c"/proc/self/oom_score_adj".as_ptr(), c"0".as_ptr());
    let mut score = [0_u8; 1];
    // SAFETY: plain system calls on integers, live strings and a live byte.
    unsafe {
        let policy = raw::call(libc::SYS_sched_getscheduler, [0; 5]);
        let real_time = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE];
        if real_time.iter().any(|known| policy == Ok(known.cast_unsigned() as usize)) {
            let parameters = (&raw const zero).expose_provenance();
            let ordinary = libc::SCHED_OTHER.cast_unsigned() as usize;
            let _ = raw::call(libc::SYS_sched_setscheduler, [0, ordinary, parameters, 0, 0]);
        }
        if raw::call(libc::SYS_getpriority, [PROCESS, 0, 0, 0, 0]).is_ok_and(|it| it > ORDINARY) {
            let _ = raw::call(libc::SYS_setpriority, [PROCESS, 0, 0, 0, 0]);
        }
        let open = [here, file.expose_provenance(), flags, 0, 0];
        if let Ok(fd) = raw::call(libc::SYS_openat, open) {
            let start = score.as_mut_ptr().expose_provenance();
            let read = raw::call(libc::SYS_read, [fd, start, score.len(), 0, 0]);
            if read.is_ok() && score == *b"-" {
                let _ = raw::call(libc::SYS_write, [fd, digit.expose_provenance(), 1, 0, 0]);
            }
            let _ = raw::call(libc::SYS_close, [fd, 0, 0, 0, 0]);
        }
    }
}

/// Gives up what the process may do for what another user may do, for good: groups first, while
/// that is still allowed, then the primary group, then the user.
///
/// # Safety
///
/// Only in the child of a fork.
unsafe fn assume(credentials: &Credentials) -> Result<(), c_int> {
    let Credentials { uid, gid, groups } = credentials;
    let (uid, gid, unchanged) = (*uid as usize, *gid as usize, usize::MAX);
    // SAFETY: plain system calls on integers and a live slice. The C library's functions would
    // signal all threads of a process that it believes to have the parent's.
    unsafe {
        let list = groups.as_ptr().expose_provenance();
        raw::call(libc::SYS_setgroups, [groups.len(), list, 0, 0, 0])?;
        raw::call(libc::SYS_setresgid, [gid, gid, gid, 0, 0])?;
        raw::call(libc::SYS_setresuid, [uid, uid, uid, 0, 0])?;
        // A right that was given up must not come back.
        let back = [unchanged, 0, unchanged, 0, 0];
        if uid != 0 && raw::call(libc::SYS_setresuid, back).is_ok() {
            return Err(libc::EPERM);
        }
    }
    Ok(())
}

/// Default handling for every signal, none blocked.
///
/// # Safety
///
/// Only in a child: handlers of the parent are lost.
unsafe fn reset_signals() {
    // A zeroed action is the default one in the kernel's layout, and a zeroed set the empty one,
    // on every architecture.
    let zeros = [0u64; 8];
    let start = zeros.as_ptr().expose_provenance();
    // SAFETY: plain system calls that read live zeros and write nothing. The C library's function
    // refuses the two signals it keeps for itself, which may well be inherited as ignored. Numbers
    // that cannot be set are refused without effect.
    unsafe {
        for signal in 1..=SIGNAL_MAX {
            let action = [signal.cast_unsigned() as usize, start, 0, MASK_BYTES, 0];
            let _ = raw::call(libc::SYS_rt_sigaction, action);
        }
        let mask = [libc::SIG_SETMASK as usize, start, 0, MASK_BYTES, 0];
        let _ = raw::call(libc::SYS_rt_sigprocmask, mask);
    }
}
