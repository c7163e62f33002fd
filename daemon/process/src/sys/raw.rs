//! System calls without the C library, whose `errno` belongs to a thread.
//!
//! A child that shares our memory has no thread of its own in it: where it would write an error
//! number, the thread that made it reads its own.

use libc::{c_int, c_long};

/// The kernel's highest error number.
const ERRNO_MAX: isize = 4095;

/// Makes a system call; the error is its error number.
///
/// # Safety
///
/// As for the call in question.
pub(super) unsafe fn call(number: c_long, arguments: [usize; 5]) -> Result<usize, c_int> {
    // SAFETY: the caller's guarantees are passed on.
    let result = unsafe { enter_kernel(number, arguments) };
    match c_int::try_from(-result) {
        Ok(errno) if (1..=ERRNO_MAX).contains(&-result) => Err(errno),
        _ => Ok(result.cast_unsigned()),
    }
}

/// The instruction itself; what the kernel returns.
///
/// # Safety
///
/// As for [`call`].
#[cfg(target_arch = "x86_64")]
unsafe fn enter_kernel(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
    let result;
    // SAFETY: the kernel changes rax, rcx and r11, and what the call is about.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            in("r8") e,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// As above.
///
/// # Safety
///
/// As for [`call`].
#[cfg(target_arch = "aarch64")]
unsafe fn enter_kernel(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
    let result;
    // SAFETY: the kernel changes x0, and what the call is about.
    unsafe {
        std::arch::asm!(
            "svc #0",
            inlateout("x0") a.cast_signed() => result,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            in("x4") e,
            in("x8") number,
            options(nostack),
        );
    }
    result
}

/// Elsewhere no child shares our memory, and a forked one has an `errno` of its own.
///
/// # Safety
///
/// As for [`call`].
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn enter_kernel(number: c_long, [a, b, c, d, e]: [usize; 5]) -> isize {
    // SAFETY: the caller's guarantees are passed on.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    if result < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return -(errno as isize);
    }
    result as isize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_come_as_they_are() {
        // SAFETY: asking for a number, and closing what is no descriptor.
        unsafe {
            let pid = call(libc::SYS_getpid, [0; 5]);
            assert_eq!(pid, Ok(std::process::id() as usize));
            let bad = [usize::MAX, 0, 0, 0, 0];
            assert_eq!(call(libc::SYS_close, bad), Err(libc::EBADF));
        }
    }
}
