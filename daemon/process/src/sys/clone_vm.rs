//! A child that shares this process's memory until it has become a program.
//!
//! Making one costs half of what a copy of our memory does, before and after. The C library has no
//! such call that also takes a control group, and none that comes back before the child is a
//! program: `vfork` suspends its caller for as long as the file system of a program, or of a working
//! directory, does not answer. So the child gets a stack of its own, and the system call is written
//! out for the processors that we know.

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

/// Bytes of the child's stack. It calls a dozen small functions, none of them far down.
const STACK_BYTES: usize = 64 * 1024;
/// How long a child is waited for. Most are programs within a third of a millisecond, and then what
/// they needed is free again. A slow one loses nothing by our going on.
const WAITED_FOR: Duration = Duration::from_millis(20);
/// What a cradle's `occupant` is as long as the child may use it.
const OCCUPIED: u32 = 1;

/// What a child uses of our memory until it is a program; kept for as long as that takes.
#[derive(Debug)]
pub(crate) struct SharedVmChild(NonNull<Contents>);

// SAFETY: it owns its contents, which a child of this process only reads, but for atomic numbers
// and the stack, which nobody else looks at.
unsafe impl Send for SharedVmChild {}

#[derive(Debug)]
struct Contents {
    birth: Box<ChildSetup>,
    fault: AtomicU64,
    /// The kernel writes 0, and wakes who waits, when the child no longer shares our memory.
    occupant: AtomicU32,
    stack: Vec<u128>,
}

impl SharedVmChild {
    fn new(birth: Box<ChildSetup>) -> Self {
        let contents = Contents {
            birth,
            fault: AtomicU64::new(0),
            occupant: AtomicU32::new(OCCUPIED),
            stack: Vec::with_capacity(STACK_BYTES / size_of::<u128>()),
        };
        Self(NonNull::from(Box::leak(Box::new(contents))))
    }

    const fn contents(&self) -> &Contents {
        // SAFETY: they live as long as this does, and are only changed while nobody else has this.
        unsafe { self.0.as_ref() }
    }

    /// The child of an unused cradle.
    fn into_birth(self) -> Box<ChildSetup> {
        let cradle = ManuallyDrop::new(self);
        // SAFETY: it was leaked as a box of this type by `new`, and is not used any more.
        unsafe { Box::from_raw(cradle.0.as_ptr()) }.birth
    }

    /// Why the child could not become a program, as far as it has said.
    pub(crate) fn fault(&self) -> Option<Fault> {
        Fault::unpack(self.contents().fault.load(Ordering::Acquire))
    }

    /// Whether the child may still use it.
    fn is_occupied(&self) -> bool {
        self.contents().occupant.load(Ordering::Acquire) == OCCUPIED
    }

    /// Waits until the child has become a program or exited; false when it takes too long.
    pub(super) fn wait(&self) -> bool {
        let until = Instant::now() + WAITED_FOR;
        while self.is_occupied() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else { return false };
            if left == Timespec::default() {
                return false;
            }
            // The kernel wakes us as a process that shares memory with others.
            let (occupant, flags) = (&self.contents().occupant, futex::Flags::empty());
            let _ = futex::wait(occupant, flags, OCCUPIED, Some(&left));
        }
        true
    }
}

impl Drop for SharedVmChild {
    /// Leaves alone what a child may still use.
    fn drop(&mut self) {
        if !self.is_occupied() {
            // SAFETY: it was leaked as a box of this type by `new`, and nobody uses it any more.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// What a child does.
type Life = unsafe extern "C" fn(*mut c_void) -> !;

/// The life of a child that shares our memory and was born in its control group.
///
/// # Safety
///
/// Only as such a child, with [`Contents`] that live.
unsafe extern "C" fn be_born(contents: *mut c_void) -> ! {
    // SAFETY: the caller's guarantees are passed on.
    unsafe {
        let contents = &*contents.cast::<Contents>();
        contents.birth.exec(&contents.fault, true)
    }
}

/// What came of it to make a child that shares our memory.
pub(super) enum Shared {
    /// There is one, and this is what it lies in.
    Born(Pid, OwnedFd, SharedVmChild),
    /// It cannot be had here: another processor, or a sandbox that refuses what it cannot look
    /// into.
    Refused(Box<ChildSetup>),
}

/// Makes a child that shares our memory until it has become the program, in the control group it is
/// to have. All signals have to be blocked: none of our handlers must run in it.
///
/// # Errors
///
/// When no process can be made.
pub(super) fn share(birth: Box<ChildSetup>) -> io::Result<Shared> {
    let cgroup = birth.cgroup();
    let cradle = SharedVmChild::new(birth);
    // SAFETY: the contents live until the kernel says that the child shares our memory no longer.
    match unsafe { clone(cgroup, &cradle) } {
        Ok((pid, pidfd)) => Ok(Shared::Born(pid, pidfd, cradle)),
        Err(error) => {
            let birth = cradle.into_birth();
            match error.raw_os_error() {
                Some(libc::ENOSYS | libc::EPERM) => Ok(Shared::Refused(birth)),
                _ => Err(error),
            }
        }
    }
}

/// # Safety
///
/// The cradle must be kept until the child has left it.
unsafe fn clone(cgroup: Option<RawFd>, cradle: &SharedVmChild) -> io::Result<(Pid, OwnedFd)> {
    let contents = cradle.contents();
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
    let contents = cradle.0.as_ptr().cast();
    // SAFETY: the block has its exact size; what it points to is ours and alive. `be_born` gets
    // what it wants, and makes plain system calls only.
    let result = unsafe { clone3(&raw mut args, be_born, contents) };
    match c_int::try_from(result) {
        Ok(pid) if pid > 0 => {
            let pid = Pid::from_raw(pid).expect("it is positive");
            // SAFETY: the kernel has just made it, and nobody else owns it.
            Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
        }
        Ok(error) => Err(io::Error::from_raw_os_error(-error)),
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The system call; in the child, `life(argument)` on the stack in `args`. What the kernel returns.
///
/// # Safety
///
/// `args` must be a whole block with a live stack. `life` must not return nor unwind, and use nothing
/// of the calling thread, which goes on meanwhile.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(args: *mut libc::clone_args, life: Life, argument: *mut c_void) -> i64 {
    let result;
    // SAFETY: the kernel changes rax, rcx and r11 in the parent, which comes out at `2`. The child
    // has a stack that is aligned as a call wants it, and never comes back.
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
unsafe fn clone3(args: *mut libc::clone_args, life: Life, argument: *mut c_void) -> i64 {
    let result;
    // SAFETY: the kernel changes x0 alone in the parent, which comes out at `2`. The child has a
    // stack that is aligned as a call wants it, and never comes back.
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

/// Elsewhere nobody has written it out.
///
/// # Safety
///
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3(_: *mut libc::clone_args, _: Life, _: *mut c_void) -> i64 {
    (-libc::ENOSYS).into()
}
