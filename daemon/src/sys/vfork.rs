//! A child that shares this process's memory until it has become a program.
//!
//! The C library has no such call that also takes a control group, and a child on its caller's
//! stack would destroy the frames the caller returns to. So the child gets a stack of its own, and
//! the system call is written out for the processors that we know.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use libc::c_int;
use rustix::process::Pid;

use super::spawn::CLONE_INTO_CGROUP;

/// Bytes of the child's stack. It calls a dozen small functions, none of them far down.
const STACK_BYTES: usize = 64 * 1024;

/// What a child does.
pub(super) type Life = unsafe extern "C" fn(*mut c_void) -> !;

/// Has a new process do `life` with `argument`, in a control group if one is given, while the
/// calling thread waits until that process has executed a program or exited. `None` where this
/// cannot be had: another processor, or a sandbox that refuses what it cannot look into.
///
/// # Safety
///
/// `life` must not return nor unwind, and must do nothing but what a signal handler may.
pub(super) unsafe fn vfork(
    cgroup: Option<BorrowedFd<'_>>,
    life: Life,
    argument: *mut c_void,
) -> io::Result<Option<(Pid, OwnedFd)>> {
    let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>());
    let mut pidfd: c_int = -1;
    // SAFETY: zeros are a valid block of arguments.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD) as u64;
    args.pidfd = (&raw mut pidfd).addr() as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // As long as the child uses them, this thread waits and leaves them alone.
    args.stack = stack.as_mut_ptr().expose_provenance() as u64;
    args.stack_size = (stack.capacity() * size_of::<u128>()) as u64;
    if let Some(dir) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = dir.as_raw_fd() as u64;
    }
    // SAFETY: the block has its exact size; the pidfd's place and the stack are ours and alive. The
    // caller answers for `life`.
    let result = unsafe { clone3(&raw mut args, life, argument) };
    match c_int::try_from(result) {
        Ok(pid) if pid > 0 => {
            let pid = Pid::from_raw(pid).expect("it is positive");
            // SAFETY: the kernel has just made it, and nobody else owns it.
            Ok(Some((pid, unsafe { OwnedFd::from_raw_fd(pidfd) })))
        }
        Ok(refused) if [-libc::ENOSYS, -libc::EPERM].contains(&refused) => Ok(None),
        Ok(error) => Err(io::Error::from_raw_os_error(-error)),
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The system call; in the child, `life(argument)` on the stack in `args`. What the kernel returns.
///
/// # Safety
///
/// `args` must be a whole block with a live stack, `life` as for [`vfork`].
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
