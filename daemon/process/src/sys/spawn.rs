//! Process creation with full control over its attributes.
//!
//! The standard `Command` is not used for tools because it cannot start a process inside a control
//! group, does not return a pidfd, and inherits signal masks and ignored signals.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

use libc::c_int;
use rustix::process::Pid;

use super::child_setup::{self, ChildSetup};
use super::clone_vm::{self, Shared};
use super::fault_cell::{FaultCell, SharedFault};
use super::image::{CLONE_INTO_CGROUP, Exec};

/// A started child process.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// Process id; also its process group and session.
    pub(crate) pid: Pid,
    /// Readable once it has exited.
    pub(crate) pidfd: OwnedFd,
    /// Fault of its setup, if any.
    pub(crate) fault: FaultCell,
}

/// Starts a process as leader of its own session, with default signal handling, an empty signal
/// mask and no descriptors but the four given ones.
///
/// It shares memory with this process until exec. The wait for exec is bounded: a hanging file
/// system can block it forever. A process of another user is forked instead: that user could stop
/// it before exec, and write to the shared memory.
///
/// # Errors
///
/// If no process can be created: `EAGAIN` at a process limit, `EMFILE`, `ENOMEM`; `EACCES`, `EBUSY`
/// or `EOPNOTSUPP` if the control group rejects processes.
pub(crate) fn spawn(exec: Exec<'_>) -> io::Result<Spawned> {
    spawn_sharing(exec, true)
}

/// As [`spawn`], always by a fork; for the benchmark that compares both.
#[cfg(feature = "bench")]
pub(crate) fn spawn_forked(exec: Exec<'_>) -> io::Result<Spawned> {
    spawn_sharing(exec, false)
}

fn spawn_sharing(exec: Exec<'_>, shares: bool) -> io::Result<Spawned> {
    let mut setup = Box::new(ChildSetup::new(exec));
    if shares && setup.credentials().is_none() {
        let unblocked = Unblocked::block();
        let shared = clone_vm::share(setup);
        unblocked.restore();
        setup = match shared? {
            Shared::Created(pid, pidfd, shared_vm) => {
                let is_left = shared_vm.wait();
                let fault = if is_left {
                    FaultCell::Known(shared_vm.fault())
                } else {
                    FaultCell::Late(shared_vm)
                };
                return Ok(Spawned { pid, pidfd, fault });
            }
            Shared::Refused(setup) => setup,
        };
    }
    let shared = SharedFault::new()?;
    match fork_into(setup.cgroup())? {
        Forked::Parent { pid, pidfd } => {
            Ok(Spawned { pid, pidfd, fault: FaultCell::Shared(shared) })
        }
        // SAFETY: this is the child of a fork, with a copy of everything that the setup needs.
        Forked::Child { in_cgroup } => unsafe { setup.exec(shared.cell(), in_cgroup) },
    }
}

/// Starts an idle process inside a control group, to test the group.
///
/// # Errors
///
/// As [`spawn`].
pub(crate) fn spawn_idle(cgroup: BorrowedFd<'_>) -> io::Result<(Pid, OwnedFd)> {
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    match fork_into(Some(cgroup.as_raw_fd()))? {
        Forked::Parent { pid, pidfd } => Ok((pid, pidfd)),
        Forked::Child { in_cgroup } => {
            let entered = in_cgroup || child_setup::enter(cgroup.as_raw_fd()).is_ok();
            // SAFETY: prctl, getppid, pause and _exit are async-signal-safe. The death signal keeps
            // the idle process from outliving a caller that is killed meanwhile; if the caller is
            // already dead, the parent differs.
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

/// Forks, into the control group if the kernel supports that in one step.
///
/// The child has every signal blocked, so that no handler of the parent runs in it.
fn fork_into(cgroup: Option<RawFd>) -> io::Result<Forked> {
    let unblocked = Unblocked::block();
    // SAFETY: clone3 gets a zeroed argument block of its exact size whose pointer is to a live
    // `c_int`; without CLONE_VM it is a fork, so the child has its own copy of the stack. The pidfd
    // is a new descriptor without another owner.
    let result = unsafe {
        let mut pidfd: c_int = -1;
        let mut args: libc::clone_args = mem::zeroed();
        args.flags = libc::CLONE_PIDFD as u64;
        args.pidfd = (&raw mut pidfd).addr() as u64;
        args.exit_signal = libc::SIGCHLD as u64;
        if let Some(dir) = cgroup {
            args.flags |= CLONE_INTO_CGROUP;
            args.cgroup = u64::from(dir.cast_unsigned());
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
                // Sandboxes that cannot inspect clone3's arguments deny it.
                error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                    match clone_with_pidfd() {
                        Ok(None) => return Ok(Forked::Child { in_cgroup: cgroup.is_none() }),
                        Ok(Some((pid, pidfd))) => parent_of(pid, pidfd),
                        Err(error) => Err(error),
                    }
                }
                error => Err(error),
            }
        }
    };
    unblocked.restore();
    result
}

/// Forks with the older `clone` call, which also returns a pidfd: a kernel or sandbox without
/// `clone3` may lack `pidfd_open` too. An emulator of another processor may have that one alone.
/// `None` in the child.
///
/// # Safety
///
/// The child may call only async-signal-safe functions.
unsafe fn clone_with_pidfd() -> io::Result<Option<(c_int, io::Result<OwnedFd>)>> {
    let mut pidfd: c_int = -1;
    let flags = libc::c_long::from(libc::CLONE_PIDFD | libc::SIGCHLD);
    let zero: libc::c_long = 0;
    // SAFETY: without CLONE_VM it is a fork, on a copy of the stack. The third argument is the
    // address of the pidfd on every architecture; the other two are ignored with these flags.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, zero, &raw mut pidfd, zero, zero) };
    match c_int::try_from(pid) {
        Ok(0) => Ok(None),
        // SAFETY: the kernel has just created it, and it has no other owner.
        Ok(pid) if pid > 0 => Ok(Some((pid, Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })))),
        Ok(_) | Err(_) => match io::Error::last_os_error() {
            // SAFETY: as for this function.
            error if error.raw_os_error() == Some(libc::EINVAL) => unsafe { plain_clone() },
            error => Err(error),
        },
    }
}

/// Forks, and opens the pidfd of the child afterwards. `None` in the child.
///
/// # Safety
///
/// The child may call only async-signal-safe functions.
unsafe fn plain_clone() -> io::Result<Option<(c_int, io::Result<OwnedFd>)>> {
    let zero: libc::c_long = 0;
    let flags = libc::c_long::from(libc::SIGCHLD);
    // SAFETY: without CLONE_VM it is a fork, on a copy of the stack.
    match c_int::try_from(unsafe { libc::syscall(libc::SYS_clone, flags, zero, zero, zero, zero) })
    {
        Ok(0) => Ok(None),
        // The id is the child's until it is waited for.
        Ok(pid) if pid > 0 => Ok(Some((pid, pidfd_of(pid)))),
        Ok(_) | Err(_) => Err(io::Error::last_os_error()),
    }
}

fn pidfd_of(pid: c_int) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// The two processes after a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Twin {
    /// The original.
    Original,
    /// The copy.
    Copy,
}

/// Copies this process; the copy is a sibling, a child of the same parent. `namespaces` are the
/// `CLONE_NEW…` flags of new namespaces for it.
///
/// # Errors
///
/// If this process has more than one thread, or that cannot be determined; `EAGAIN` at a process
/// limit, `ENOMEM`; `EPERM` or `ENOSPC` if the namespaces cannot be created.
pub(crate) fn fork_sibling(namespaces: c_int) -> io::Result<Twin> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("only a single-threaded process can be copied"));
    }
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD | namespaces);
    let zero: libc::c_long = 0;
    // SAFETY: without CLONE_VM it is a fork, on a copy of the stack. There is no other thread whose
    // locks would stay taken in the copy. The zeros are no stack, no places for thread ids and no
    // thread storage, in any order of the architecture.
    match unsafe { libc::syscall(libc::SYS_clone, flags, zero, zero, zero, zero) } {
        0 => Ok(Twin::Copy),
        1.. => Ok(Twin::Original),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signal mask of a thread before all signals were blocked.
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

    /// Restores the signal mask.
    fn restore(self) {
        // SAFETY: the set is a live one.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut());
        }
    }
}

/// The parent's side of a fork; a child without a pidfd is ended.
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;
    use std::sync::atomic::{AtomicI32, Ordering};

    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::*;
    use crate::sys::{Fault, Image, Step, raw};

    /// Descriptor that a child reads before it continues.
    static GATE: AtomicI32 = AtomicI32::new(-1);

    fn wait_at_the_gate(_: c_int) -> [u8; 8] {
        let mut word = [0; 8];
        let gate = GATE.load(Ordering::Relaxed).cast_unsigned() as usize;
        // SAFETY: the read is limited to the size of the buffer.
        let _ = unsafe {
            raw::call(libc::SYS_read, [gate, word.as_mut_ptr().expose_provenance(), 1, 0, 0])
        };
        word
    }

    #[test]
    fn wait_for_a_slow_child_is_bounded() {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let (gate, open) = rustix::pipe::pipe().unwrap();
        GATE.store(gate.as_raw_fd(), Ordering::Relaxed);
        let missing = Fault { step: Step::Exec, errno: libc::ENOENT };
        for (program, fault, code) in [(c"/bin/true", None, 0), (c"/no", Some(missing), 127)] {
            let image = Image {
                programs: vec![program.into()],
                argv: vec![program.into()],
                env: Vec::new(),
                cwds: Vec::new(),
                below: None,
                credentials: None,
                limits: Vec::new(),
                nice: 0,
            };
            let exec = Exec {
                image,
                descriptors: [null.as_fd(); 4],
                cgroup: None,
                dies_with_caller: false,
                announced: Some((null.as_fd(), wait_at_the_gate)),
            };
            let born = spawn(exec).unwrap();
            let may_share = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
            assert_eq!(matches!(born.fault, FaultCell::Late(_)), may_share);
            assert_eq!(born.fault.fault(), None);
            rustix::io::write(&open, b"1").unwrap();
            let status = waitid(WaitId::PidFd(born.pidfd.as_fd()), WaitIdOptions::EXITED);
            assert_eq!(status.unwrap().unwrap().exit_status(), Some(code));
            assert_eq!(born.fault.fault(), fault);
        }
    }
}
