//! The place where a child says why it could not become the program.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clone_vm::SharedVmChild;
use super::exec_error::Fault;

/// Where a child says why it could not become the program.
#[derive(Debug)]
pub(crate) enum FaultCell {
    /// It has said all it has to say.
    Known(Option<Fault>),
    /// It may have, once it has exited; it took its time to become the program.
    Late(SharedVmChild),
    /// It may have, once it has exited.
    Shared(SharedFault),
}

impl FaultCell {
    /// Why the process could not become the program, if that is so; to be asked once it has exited.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self {
            Self::Known(fault) => *fault,
            Self::Late(cradle) => cradle.fault(),
            Self::Shared(shared) => Fault::unpack(shared.cell().load(Ordering::Acquire)),
        }
    }
}

/// A page that a forked child and its parent both see.
#[derive(Debug)]
pub(crate) struct SharedFault(ptr::NonNull<AtomicU64>);

// SAFETY: it owns its page, and an atomic number is all that is in it.
unsafe impl Send for SharedFault {}

impl SharedFault {
    pub(super) fn new() -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, checked before it is used; its zeros are a valid atomic number.
        let page = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, protection, flags, -1, 0) };
        match ptr::NonNull::new(page.cast()).filter(|_| page != libc::MAP_FAILED) {
            Some(page) => Ok(Self(page)),
            None => Err(io::Error::last_os_error()),
        }
    }

    const BYTES: usize = size_of::<AtomicU64>();

    pub(super) const fn cell(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as this lives, and is only used as an atomic number.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedFault {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nobody has a reference to it any more.
        unsafe {
            libc::munmap(self.0.as_ptr().cast(), Self::BYTES);
        }
    }
}
