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
pub use memory::give_back_memory;
pub(crate) use spawn::{Spawned, Twin, fork_sibling, spawn, spawn_idle};

/// Blocks every signal that can be blocked for the calling thread, for good.
pub fn block_signals() {
    // SAFETY: both functions only write to the set they are given, which outlives the calls.
    unsafe {
        let mut all: libc::sigset_t = mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, ptr::null_mut());
    }
}

/// Signals whose handling is left as it was inherited: Rust ignores `SIGPIPE` before `main`, and the
/// others are ignored by `nohup` and by shells for a reason that concerns clients.
const KEPT_AS_INHERITED: [c_int; 7] = [
    libc::SIGPIPE,
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
];

/// Unblocks every signal of the calling thread, and restores the default handling of those that are
/// ignored, but for [`KEPT_AS_INHERITED`].
pub(crate) fn reset_inherited_signals() {
    // SAFETY: the set and the action are written before they are read. Only signals that are
    // ignored get another handling, so no handler of anybody is lost.
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

/// Keeps processes of the same user from tracing this one and from reading its memory, and the kernel
/// from dumping it.
pub fn forbid_tracing() {
    set_dumpable(false);
}

/// Undoes [`forbid_tracing`].
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

/// Whether the kernel throws the exit statuses of our children away, since `SIGCHLD` is ignored.
pub(crate) fn ignores_child_exits() -> bool {
    // SAFETY: the action is written before it is read, and nothing is changed.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        libc::sigaction(libc::SIGCHLD, ptr::null(), &raw mut action) == 0
            && (action.sa_sigaction == libc::SIG_IGN || action.sa_flags & libc::SA_NOCLDWAIT != 0)
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
pub fn close_inherited(first: u32) {
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
pub fn inherited_descriptors(count: usize) -> Vec<OwnedFd> {
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
