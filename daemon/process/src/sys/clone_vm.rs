//! A child that shares this process's memory until exec.
//!
//! Creating one costs half of a copy of the memory. No function of the C library combines this with
//! a control group and returns before exec: `vfork` suspends its caller for as long as the file
//! system of the program or of the working directory hangs. So the child gets a stack of its own,
//! and the system call is written in assembly for the supported processors. The benchmark `spawn`
//! compares it with a fork, here and in a small helper process.

use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::event::Timespec;
use rustix::process::Pid;
use rustix::thread::futex;

use super::child_setup::ChildSetup;
use super::exec_error::Fault;
use super::image::CLONE_INTO_CGROUP;

/// Bytes of the child's stack. The setup calls a dozen small functions, none nested deeply.
const STACK_BYTES: usize = 64 * 1024;
/// Time to wait for a child's exec. Most need less than a third of a millisecond, after which their
/// resources are free. A slow child continues while the parent goes on.
const WAITED_FOR: Duration = Duration::from_millis(20);
/// Value of `occupant` while the child may use the memory.
const OCCUPIED: u32 = 1;

/// Memory that a child uses until exec; kept for as long as that takes.
#[derive(Debug)]
pub(crate) struct SharedVmChild(NonNull<Contents>);

// SAFETY: it owns its contents, which a child of this process only reads, except atomic numbers and
// the stack, which only the child uses.
unsafe impl Send for SharedVmChild {}

#[derive(Debug)]
struct Contents {
    setup: Box<ChildSetup>,
    fault: AtomicU64,
    /// The kernel writes 0 and wakes waiters when the child no longer shares the memory.
    occupant: AtomicU32,
    stack: Vec<u128>,
}

impl SharedVmChild {
    fn new(setup: Box<ChildSetup>) -> Self {
        let contents = Contents {
            setup,
            fault: AtomicU64::new(0),
            occupant: AtomicU32::new(OCCUPIED),
            stack: Vec::with_capacity(STACK_BYTES / size_of::<u128>()),
        };
        Self(NonNull::from(Box::leak(Box::new(contents))))
    }

    const fn contents(&self) -> &Contents {
        // SAFETY: they live as long as this value, and are changed only under exclusive ownership.
        unsafe { self.0.as_ref() }
    }

    /// The setup of an unused child.
    fn into_setup(self) -> Box<ChildSetup> {
        let shared_vm = ManuallyDrop::new(self);
        // SAFETY: it was leaked as a box of this type by `new`, and is not used any more.
        unsafe { Box::from_raw(shared_vm.0.as_ptr()) }.setup
    }

    /// The reported fault of the child, if any so far.
    pub(crate) fn fault(&self) -> Option<Fault> {
        Fault::unpack(self.contents().fault.load(Ordering::Acquire))
    }

    /// Whether the child may still use the memory.
    fn is_occupied(&self) -> bool {
        self.contents().occupant.load(Ordering::Acquire) == OCCUPIED
    }

    /// Waits until the child has called exec or exited; false on timeout.
    pub(super) fn wait(&self) -> bool {
        let until = Instant::now() + WAITED_FOR;
        while self.is_occupied() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else { return false };
            if left == Timespec::default() {
                return false;
            }
            // The kernel wakes the futex as one of a process that shares memory.
            let (occupant, flags) = (&self.contents().occupant, futex::Flags::empty());
            let _ = futex::wait(occupant, flags, OCCUPIED, Some(&left));
        }
        true
    }
}

impl Drop for SharedVmChild {
    /// Leaks the memory while a child may still use it.
    fn drop(&mut self) {
        if !self.is_occupied() {
            // SAFETY: it was leaked as a box of this type by `new`, and has no other user.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// Main function of a child.
type ChildMain = unsafe extern "C" fn(*mut c_void) -> !;

/// Main function of a child that shares memory and was created in its control group.
///
/// # Safety
///
/// Only as such a child, with [`Contents`] that live.
unsafe extern "C" fn child_main(contents: *mut c_void) -> ! {
    // SAFETY: the caller's guarantees are passed on.
    unsafe {
        let contents = &*contents.cast::<Contents>();
        contents.setup.exec(&contents.fault, true)
    }
}

/// Result of creating a child that shares memory.
pub(super) enum Shared {
    /// The child, and the memory it uses.
    Created(Pid, OwnedFd, SharedVmChild),
    /// Not available: another processor, or a sandbox that denies `clone3`.
    Refused(Box<ChildSetup>),
}

/// Creates a child that shares memory until exec, in its control group. All signals must be
/// blocked: no handler of the parent may run in it.
///
/// # Errors
///
/// If no process can be created.
pub(super) fn share(setup: Box<ChildSetup>) -> io::Result<Shared> {
    let cgroup = setup.cgroup();
    let shared_vm = SharedVmChild::new(setup);
    // SAFETY: the contents live until the kernel reports that the child no longer shares the
    // memory.
    match unsafe { clone(cgroup, &shared_vm) } {
        Ok((pid, pidfd)) => Ok(Shared::Created(pid, pidfd, shared_vm)),
        Err(error) => {
            let setup = shared_vm.into_setup();
            match error.raw_os_error() {
                Some(libc::ENOSYS | libc::EPERM) => Ok(Shared::Refused(setup)),
                _ => Err(error),
            }
        }
    }
}

/// # Safety
///
/// The memory must be kept until the child has left it.
unsafe fn clone(cgroup: Option<RawFd>, shared_vm: &SharedVmChild) -> io::Result<(Pid, OwnedFd)> {
    let contents = shared_vm.contents();
    let mut pidfd: c_int = -1;
    // SAFETY: zeros are a valid block of arguments.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_VM | libc::CLONE_PIDFD | libc::CLONE_CHILD_CLEARTID) as u64;
    args.pidfd = (&raw mut pidfd).expose_provenance() as u64;
    args.child_tid = contents.occupant.as_ptr().expose_provenance() as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    args.stack = contents.stack.as_ptr().expose_provenance() as u64;
    args.stack_size = (contents.stack.capacity() * size_of::<u128>()) as u64;
    if let Some(dir) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::from(dir.cast_unsigned());
    }
    let contents = shared_vm.0.as_ptr().cast();
    // SAFETY: the block has its exact size and points to live memory. `child_main` gets its
    // expected argument, and makes plain system calls only.
    let result = unsafe { clone3(&raw mut args, child_main, contents) };
    match c_int::try_from(result) {
        Ok(pid) if pid > 0 => {
            let pid = Pid::from_raw(pid).expect("it is positive");
            // SAFETY: the kernel has just created it, and it has no other owner.
            Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
        }
        Ok(error) => Err(io::Error::from_raw_os_error(-error)),
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The `clone3` call; the child runs `life(argument)` on the stack in `args`. Returns the kernel's
/// result.
///
/// # Safety
///
/// `args` must be a whole block with a live stack. `life` must not return nor unwind, nor use state
/// of the calling thread, which continues meanwhile.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(args: *mut libc::clone_args, life: ChildMain, argument: *mut c_void) -> i64 {
    let result;
    // SAFETY: the kernel changes rax, rcx and r11 in the parent, which continues at `2`. The child
    // has a stack aligned for a call, and never returns.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") args,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") argument,
            in("r13") life,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// As above.
///
/// # Safety
///
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(args: *mut libc::clone_args, life: ChildMain, argument: *mut c_void) -> i64 {
    let result;
    // SAFETY: the kernel changes only x0 in the parent, which continues at `2`. The child has a
    // stack aligned for a call, and never returns.
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x20",
            "blr x21",
            "brk #1",
            "2:",
            inlateout("x0") args => result,
            in("x1") size_of::<libc::clone_args>(),
            in("x8") libc::SYS_clone3,
            in("x20") argument,
            in("x21") life,
        );
    }
    result
}

/// Not implemented for other processors.
///
/// # Safety
///
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3(_: *mut libc::clone_args, _: ChildMain, _: *mut c_void) -> i64 {
    (-libc::ENOSYS).into()
}
