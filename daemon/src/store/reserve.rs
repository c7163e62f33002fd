//! Room on the disk that nobody but us can use up: so that what was begun can be ended when the
//! disk is full.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Smallest useful step, and size of the zeros written where the file system cannot allocate
/// without.
const CHUNK_BYTES: usize = 64 * 1024;
/// In how many steps the reserve is taken, at most.
const STEPS: u64 = 64;

/// A file of which nothing but its size matters.
#[derive(Debug)]
pub(super) struct Reserve {
    file: File,
    bytes: u64,
    is_held: bool,
}

impl Reserve {
    /// The reserve at `path`, of so many bytes, held if there is room for it.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut reserve = Self { file, bytes, is_held: false };
        reserve.hold();
        Ok(reserve)
    }

    /// Bytes it is to have.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the room, unless it has it; false when there is not enough. What there is is taken all
    /// the same, or others would use it up.
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

    /// Whether so many bytes are free besides; true where that cannot be told.
    pub(super) fn has_beside(&self, bytes: u64) -> bool {
        let Ok(found) = fstatvfs(&self.file) else { return true };
        // Some of what is free may be kept for root.
        let free = if geteuid().is_root() { found.f_bfree } else { found.f_bavail };
        free.saturating_mul(found.f_frsize) >= bytes
    }

    /// Gives the room back, to be used at once.
    pub(super) fn release(&mut self) {
        self.is_held = false;
        // Giving back needs no room; should it fail, there is only less of it.
        let _ = self.file.set_len(0);
    }

    /// Makes the file this long.
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

/// Whether this is how a file system says that there is no room: for all, or for this user.
pub(super) fn is_no_room(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].iter().any(|full| errno == Some(*full))
}

/// Whether there is no room for even a little, tried out in a file at `path`.
pub(super) fn is_full(path: &Path) -> bool {
    let tried = File::create(path)
        .and_then(|mut file| file.write_all(&[1; CHUNK_BYTES]).and_then(|()| file.sync_data()));
    let _ = std::fs::remove_file(path);
    tried.is_err_and(|error| is_no_room(&error))
}
