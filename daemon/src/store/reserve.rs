//! Reserved disk space, so that started tasks can be finished when the disk is full.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Smallest allocation step, and the size of the zero writes on file systems without `fallocate`.
const CHUNK_BYTES: usize = 64 * 1024;
/// Maximum number of allocation steps.
const STEPS: u64 = 64;

/// The reserve: a file of which only the size matters.
#[derive(Debug)]
pub(super) struct Reserve {
    file: File,
    bytes: u64,
    is_held: bool,
}

impl Reserve {
    /// Opens the reserve at `path` and allocates `bytes` if there is room.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut reserve = Self { file, bytes, is_held: false };
        reserve.hold();
        Ok(reserve)
    }

    /// Configured size.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Allocates the missing part; false if there is not enough room. Keeps the part that could be
    /// allocated, which other programs would use up otherwise.
    pub(super) fn hold(&mut self) -> bool {
        if self.is_held {
            return true;
        }
        let step = (self.bytes / STEPS).max(CHUNK_BYTES as u64);
        let mut size = 0;
        while size < self.bytes {
            size = (size + step).min(self.bytes);
            if self.allocate(size).is_err() {
                return false;
            }
        }
        self.is_held = true;
        true
    }

    /// Whether `bytes` are free beside the reserve; true if that cannot be determined.
    pub(super) fn has_beside(&self, bytes: u64) -> bool {
        let Ok(found) = fstatvfs(&self.file) else { return true };
        // Some free blocks may be reserved for root.
        let free = if geteuid().is_root() { found.f_bfree } else { found.f_bavail };
        free.saturating_mul(found.f_frsize) >= bytes
    }

    /// Frees the reserved space for immediate use.
    pub(super) fn release(&mut self) {
        self.is_held = false;
        // Truncating needs no room; on failure there is only less room.
        let _ = self.file.set_len(0);
    }

    /// Sets the size of the file.
    fn allocate(&mut self, size: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, size) {
            Err(Errno::OPNOTSUPP) => self.write_zeros(size),
            result => Ok(result?),
        }
    }

    fn write_zeros(&mut self, size: u64) -> io::Result<()> {
        let mut end = self.file.seek(SeekFrom::End(0))?;
        while end < size {
            let part = usize::try_from(size - end).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            self.file.write_all(&vec![0; part])?;
            end += part as u64;
        }
        self.file.sync_data()
    }
}

/// Whether an error means that the disk or the quota is exhausted.
pub(super) fn is_no_room(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].iter().any(|full| errno == Some(*full))
}

/// Tests with a file at `path` whether there is no room for even a small write.
pub(super) fn is_full(path: &Path) -> bool {
    let tried = File::create(path)
        .and_then(|mut file| file.write_all(&[1; CHUNK_BYTES]).and_then(|()| file.sync_data()));
    let _ = std::fs::remove_file(path);
    tried.is_err_and(|error| is_no_room(&error))
}
