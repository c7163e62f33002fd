//! The calls that need `unsafe`: starting a process, signal state, and memory to give back.
//!
//! Everything else in the workspace goes through `rustix` or the standard library.

#![allow(unsafe_code, reason = "the one place for it")]

mod beneath;
pub(crate) mod child_setup;
pub(crate) mod clone_vm;
pub(crate) mod exec_error;
mod fault_cell;
mod image;
mod memory;
mod raw;
mod spawn;

use std::io;
use std::mem;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::c_int;

pub(crate) use exec_error::{Fault, Step};
pub(crate) use fault_cell::FaultCell;
pub(crate) use image::{Credentials, Exec, Image, Limit};
pub use memory::{keep_heap, trim_heap};
#[cfg(feature = "bench")]
pub(crate) use spawn::spawn_forked;
pub(crate) use spawn::{Spawned, Twin, fork_sibling, spawn, spawn_idle};

/// Blocks every signal for the calling thread permanently.
pub fn block_signals() {
    // SAFETY: both functions only write to the set they are given, which outlives the calls.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// Signals left as inherited: Rust ignores `SIGPIPE` before `main`; `nohup` and shells ignore the
/// others on purpose.
const KEPT_AS_INHERITED: [c_int; 7] = [
    libc::SIGPIPE,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Unblocks every signal of the calling thread, and restores the default action of ignored ones,
/// except [`KEPT_AS_INHERITED`].
pub(crate) fn reset_inherited_signals() {
    // SAFETY: the set and the action are written before they are read. Only ignored signals are
    // changed, so no handler is lost.
    unsafe {
        for signal in (1..=libc::SIGRTMAX()).filter(|signal| !KEPT_AS_INHERITED.contains(signal)) {
            let mut action: libc::sigaction = mem::zeroed();
            let is_known = libc::sigaction(signal, ptr::null(), &raw mut action) == 0;
            if is_known && action.sa_sigaction == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Prevents processes of the same user from tracing this one and reading its memory, and the kernel
/// from writing a core dump.
pub fn forbid_tracing() {
    set_dumpable(false);
}

/// Reverts [`forbid_tracing`].
pub(crate) fn allow_tracing() {
    set_dumpable(true);
}

fn set_dumpable(dumpable: bool) {
    let dumpable = libc::c_ulong::from(dumpable);
    // SAFETY: the call takes integers only. It does not fail with these values.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0);
    }
}

/// Whether the kernel discards the exit statuses of children because `SIGCHLD` is ignored.
pub(crate) fn ignores_child_exits() -> bool {
    // SAFETY: the action is written before it is read, and nothing is changed.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(libc::SIGCHLD, ptr::null(), &raw mut action) == 0
            && (action.sa_sigaction == libc::SIG_IGN || action.sa_flags & libc::SA_NOCLDWAIT != 0)
    }
}

/// A non-blocking descriptor that is readable when a child has exited. `SIGCHLD` must be blocked.
///
/// # Errors
///
/// If the descriptor cannot be created.
pub(crate) fn child_exits() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before it is read; the result is checked before
    // it is taken as an otherwise unowned descriptor. Setting SIGCHLD to its default reverts an
    // inherited "ignore", under which the kernel discards exit statuses.
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

/// Closes every descriptor from `first` on: those leaked into a guard.
///
/// Call it only before this process has opened a descriptor.
pub fn close_inherited(first: u32) {
    // SAFETY: the caller guarantees that no object of this process owns one of these descriptors.
    unsafe {
        libc::syscall(libc::SYS_close_range, first, u32::MAX, 0u32);
    }
}

/// Upper bound of inherited descriptors; a larger announced number is ignored.
const INHERITED_MAX: usize = 1024;

/// The `count` descriptors from 3 on, passed by the service manager. A second call returns none,
/// and so do numbers that are not open.
///
/// Call it only if `$LISTEN_PID` names this process.
pub fn inherited_descriptors(count: usize) -> Vec<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let numbers = (3..).take(count.min(INHERITED_MAX));
    // SAFETY: F_GETFD of a number that is not a descriptor fails without an effect.
    let is_open = |fd: &RawFd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
    // SAFETY: the descriptors are open, were passed to this process before it opened any, and are
    // taken once, so they have no other owner.
    numbers.filter(is_open).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect()
}
