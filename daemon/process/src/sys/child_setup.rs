//! Child-side setup between clone and execve.
//!
//! The child may share its parent's memory while the parent runs. So nothing here allocates, locks,
//! unwinds, uses thread-local state, or writes anything but its own stack, the fault, and the place of
//! the script's name in the arguments of its shell.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use libc::{c_char, c_int};

use super::beneath;
use super::exec_error::{Fault, Step};
use super::image::{Announcement, Credentials, Exec, Image, Limit};
use super::raw;

/// Descriptors below this number are reserved for the tool, so other ones are moved above it first.
const OURS_FROM: RawFd = 10;
/// The kernel's highest signal number on all supported architectures.
const SIGNAL_MAX: c_int = 64;
/// Shell of scripts without an interpreter line, as `execvp` chooses it.
const SHELL: &CStr = c"/bin/sh";
/// Place of the script's name in the arguments of its shell.
const SCRIPT: usize = 1;
/// Bytes of a file that are searched for a NUL, which no script has.
const BLOCK_BYTES: usize = 512;
/// Size of the kernel's signal set.
const MASK_BYTES: usize = size_of::<u64>();

/// Parameters of a child's setup, in the form of the kernel.
#[derive(Debug)]
pub(super) struct ChildSetup {
    image: Image,
    argv: Vec<*const c_char>,
    /// Arguments of the shell of a script, which the child completes.
    shell: Vec<AtomicPtr<c_char>>,
    env: Vec<*const c_char>,
    descriptors: [RawFd; 4],
    cgroup: Option<RawFd>,
    dies_with_caller: bool,
    announced: Option<(RawFd, Announcement)>,
    parent: c_int,
}

// SAFETY: the pointers are to strings that it owns or that are static, and that are not modified.
unsafe impl Send for ChildSetup {}

impl ChildSetup {
    pub(super) fn new(exec: Exec<'_>) -> Self {
        let Exec { image, descriptors, cgroup, dies_with_caller, announced } = exec;
        Self {
            argv: pointers(&image.argv),
            shell: shell_of(&image.argv),
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

    /// Executes the program, or records the fault and exits.
    ///
    /// # Safety
    ///
    /// Only in a child whose parent keeps the descriptors open until it was created.
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

    /// All steps between fork and exec.
    ///
    /// # Safety
    ///
    /// Only in a child.
    unsafe fn prepare(&self, in_cgroup: bool) -> Result<(), Fault> {
        let at = |step| move |errno| Fault { step, errno };
        // SAFETY: plain system calls with integers, or pointers to data that lives as long as the
        // call. The descriptors that are replaced and closed have no other owner in this process.
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
            if self.image.nice > 0 {
                lower_priority(self.image.nice);
            }
            if self.dies_with_caller {
                // Set after the change of user, which resets it.
                let (set, kill) = (libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize);
                let _ = raw::call(libc::SYS_prctl, [set, kill, 0, 0, 0]);
                if number(raw::call(libc::SYS_getppid, [0; 5])) != self.parent {
                    exit();
                }
            }
            reset_signals();
            // After the change of user: access is checked for that user.
            self.enter_directory().map_err(at(Step::Cwd))?;
        }
        Ok(())
    }

    /// Leaves the child with the four given descriptors and no others.
    ///
    /// They are closed here instead of by exec: a hanging file system may block exec, and pipes and
    /// connections of other jobs must not stay open meanwhile.
    ///
    /// # Safety
    ///
    /// Only in a child.
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
            // Without `close_range`, all descriptors are closed on exec except those that an
            // embedding program left inheritable.
            let _ = raw::call(libc::SYS_close_range, [4, u32::MAX as usize, 0, 0, 0]);
        }
        Ok(())
    }

    /// Enters the first existing directory.
    ///
    /// # Safety
    ///
    /// Only in a child.
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

    /// Tries the programs in turn; returns the most informative fault if none can be executed.
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
            // SAFETY: null-terminated arrays of live strings.
            match unsafe { raw::call(libc::SYS_execve, [path, argv, env, 0, 0]) } {
                // The file does not exist here; try the next candidate.
                Ok(_) | Err(libc::ENOTDIR) => {}
                Err(libc::ENOENT) => {
                    // SAFETY: the string lives. The check runs in the child because it may block on
                    // a hanging file system.
                    if unsafe { is_there(path) } {
                        telling = Fault { step: Step::Interpreter, errno: libc::ENOENT };
                    }
                }
                Err(libc::ENOEXEC) => {
                    // SAFETY: the caller's guarantee is passed on.
                    unsafe { self.execute_script(program, env) };
                    return fault(libc::ENOEXEC);
                }
                // Another directory may have an accessible one, as in a shell's search.
                Err(libc::EACCES) => telling = fault(libc::EACCES),
                Err(errno) => return fault(errno),
            }
        }
        telling
    }

    /// Executes a text without an interpreter line in the shell, as `execvp` does. Returns for any
    /// other file.
    ///
    /// # Safety
    ///
    /// Only in a child.
    unsafe fn execute_script(&self, program: &CStr, env: usize) {
        // SAFETY: the strings live. The place belongs to this child, and its parent does not read it.
        unsafe {
            if is_text(program.as_ptr().expose_provenance())
                && let Some(name) = self.shell.get(SCRIPT)
            {
                name.store(program.as_ptr().cast_mut(), Ordering::Relaxed);
                let path = SHELL.as_ptr().expose_provenance();
                let argv = self.shell.as_ptr().expose_provenance();
                let _ = raw::call(libc::SYS_execve, [path, argv, env, 0, 0]);
            }
        }
    }
}

/// Whether a file is readable and its first block has no NUL.
///
/// # Safety
///
/// Only in a child. The path is the address of a C string.
unsafe fn is_text(path: usize) -> bool {
    let mut block = [0_u8; BLOCK_BYTES];
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOCTTY) as usize;
    // SAFETY: plain system calls with a live string and a buffer of its size.
    unsafe {
        let open = [of(libc::AT_FDCWD), path, flags, 0, 0];
        let Ok(file) = raw::call(libc::SYS_openat, open) else { return false };
        let start = block.as_mut_ptr().expose_provenance();
        let read = raw::call(libc::SYS_read, [file, start, BLOCK_BYTES, 0, 0]);
        let _ = raw::call(libc::SYS_close, [file, 0, 0, 0, 0]);
        let bytes = read.ok().and_then(|bytes| block.get(..bytes));
        bytes.is_some_and(|bytes| !bytes.contains(&0))
    }
}

/// Whether a file exists.
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

/// The arguments of the shell of a script, whose name is missing.
fn shell_of(argv: &[CString]) -> Vec<AtomicPtr<c_char>> {
    let own = argv.iter().skip(1).map(|argument| argument.as_ptr());
    let all = [SHELL.as_ptr(), ptr::null()].into_iter().chain(own).chain([ptr::null()]);
    all.map(|pointer| AtomicPtr::new(pointer.cast_mut())).collect()
}

/// A descriptor as a system call argument.
const fn of(fd: RawFd) -> usize {
    fd.cast_unsigned() as usize
}

/// A result that is a process id.
fn number(result: Result<usize, c_int>) -> c_int {
    result.ok().and_then(|pid| c_int::try_from(pid).ok()).unwrap_or(0)
}

/// Ends a child that could not execute a program.
///
/// # Safety
///
/// Only in a child.
unsafe fn exit() -> ! {
    loop {
        // SAFETY: this child has one thread, and its parent waits for its exit.
        let _ = unsafe { raw::call(libc::SYS_exit_group, [127, 0, 0, 0, 0]) };
    }
}

/// Moves the calling process into a control group, on kernels and in sandboxes without
/// `CLONE_INTO_CGROUP`. Callable in the child of a fork.
pub(super) fn enter(cgroup: RawFd) -> Result<(), c_int> {
    let (name, zero) = (c"cgroup.procs".as_ptr(), c"0".as_ptr());
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: plain system calls with pointers to static strings. The descriptor is closed with all
    // others.
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
    // SAFETY: two live numbers are read, in the layout of the kernel on every architecture, and
    // nothing is written.
    unsafe { raw::call(libc::SYS_prlimit64, [0, limit.resource as usize, start, 0, 0]).map(drop) }
}

/// Lowers a raised priority, which may be root's, to the ordinary one: niceness, real-time
/// scheduling, and OOM score. A lower priority is kept.
///
/// # Safety
///
/// Only in the child of a fork.
unsafe fn give_up_priority() {
    /// The kernel's value of the ordinary niceness; larger is a higher priority.
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

/// Raises the niceness of the calling process to at least this value, and that of its session where
/// the scheduler shares the CPU among sessions first. Lowering a priority is always permitted.
///
/// # Safety
///
/// Only in the child of a fork.
unsafe fn lower_priority(nice: u8) {
    const PROCESS: usize = libc::PRIO_PROCESS as usize;
    // The kernel's value: larger is a higher priority.
    let most = 20_usize.saturating_sub(nice as usize);
    let digits = [b'0' + nice / 10, b'0' + nice % 10];
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    let file = c"/proc/self/autogroup".as_ptr();
    // SAFETY: plain system calls on integers, a live string and live bytes.
    unsafe {
        if raw::call(libc::SYS_getpriority, [PROCESS, 0, 0, 0, 0]).is_ok_and(|it| it > most) {
            let _ = raw::call(libc::SYS_setpriority, [PROCESS, 0, nice as usize, 0, 0]);
        }
        let open = [of(libc::AT_FDCWD), file.expose_provenance(), flags, 0, 0];
        if let Ok(fd) = raw::call(libc::SYS_openat, open) {
            let start = digits.as_ptr().expose_provenance();
            let _ = raw::call(libc::SYS_write, [fd, start, digits.len(), 0, 0]);
            let _ = raw::call(libc::SYS_close, [fd, 0, 0, 0, 0]);
        }
    }
}

/// Switches to the credentials of another user permanently: supplementary groups first, while that
/// is allowed, then the primary group, then the user.
///
/// # Safety
///
/// Only in the child of a fork.
unsafe fn assume(credentials: &Credentials) -> Result<(), c_int> {
    let Credentials { uid, gid, groups } = credentials;
    let (uid, gid, unchanged) = (*uid as usize, *gid as usize, usize::MAX);
    // SAFETY: plain system calls on integers and a live slice. The functions of the C library would
    // signal all threads that it believes the process to have, the parent's.
    unsafe {
        let list = groups.as_ptr().expose_provenance();
        raw::call(libc::SYS_setgroups, [groups.len(), list, 0, 0, 0])?;
        raw::call(libc::SYS_setresgid, [gid, gid, gid, 0, 0])?;
        raw::call(libc::SYS_setresuid, [uid, uid, uid, 0, 0])?;
        // Verify that the dropped privilege cannot be regained.
        let back = [unchanged, 0, unchanged, 0, 0];
        if uid != 0 && raw::call(libc::SYS_setresuid, back).is_ok() {
            return Err(libc::EPERM);
        }
    }
    Ok(())
}

/// Resets all signals to their default action and unblocks them.
///
/// # Safety
///
/// Only in a child: handlers of the parent are lost.
unsafe fn reset_signals() {
    // A zeroed action is the default one in the kernel's layout, and a zeroed set the empty one, on
    // every architecture.
    let zeros = [0u64; 8];
    let start = zeros.as_ptr().expose_provenance();
    // SAFETY: plain system calls that read live zeros and write nothing. The C library rejects its
    // two reserved signals, which may be inherited as ignored. Invalid numbers are rejected without
    // an effect.
    unsafe {
        for signal in 1..=SIGNAL_MAX {
            let action = [signal.cast_unsigned() as usize, start, 0, MASK_BYTES, 0];
            let _ = raw::call(libc::SYS_rt_sigaction, action);
        }
        let mask = [libc::SIG_SETMASK as usize, start, 0, MASK_BYTES, 0];
        let _ = raw::call(libc::SYS_rt_sigprocmask, mask);
    }
}
