//! The place where a child says why it could not become the program.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clone_vm::SharedVmChild;
use super::exec_error::Fault;

/// Storage of a child's fault.
#[derive(Debug)]
pub(crate) enum FaultCell {
    /// Final.
    Known(Option<Fault>),
    /// Valid once the child has exited; its exec took long.
    Late(SharedVmChild),
    /// Valid once the child has exited.
    Shared(SharedFault),
}

impl FaultCell {
    /// Why the program could not be executed, if so; valid once the child has exited.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self {
            Self::Known(fault) => *fault,
            Self::Late(shared_vm) => shared_vm.fault(),
            Self::Shared(shared) => Fault::unpack(shared.cell().load(Ordering::Acquire)),
        }
    }
}

/// A page shared by a forked child and its parent.
#[derive(Debug)]
pub(crate) struct SharedFault(ptr::NonNull<AtomicU64>);

// SAFETY: it owns its page, which holds only an atomic number.
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
        // SAFETY: the page is mapped as long as this value lives, and is only used as an atomic
        // number.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedFault {
    fn drop(&mut self) {
        // SAFETY: the page is owned, and has no remaining references.
        unsafe {
            libc::munmap(self.0.as_ptr().cast(), Self::BYTES);
        }
    }
}
