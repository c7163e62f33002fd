//! Room on the disk that nobody but us can use up: so that what was begun can be ended when the
//! disk is full.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// What zeros are written in, where the file system cannot allocate without.
const CHUNK_BYTES: usize = 64 * 1024;

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

    /// Takes the room, unless it has it; false when there is not enough.
    pub(super) fn hold(&mut self) -> bool {
        if !self.is_held {
            self.is_held = self.bytes == 0 || self.allocate().is_ok();
            if !self.is_held {
                self.release();
            }
        }
        self.is_held
    }

    /// Gives the room back.
    pub(super) fn release(&mut self) {
        self.is_held = false;
        // Giving back needs no room; should it fail, there is only less of it.
        let _ = self.file.set_len(0);
    }

    fn allocate(&mut self) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, self.bytes) {
            Err(Errno::OPNOTSUPP) => self.write_zeros(),
            result => Ok(result?),
        }
    }

    fn write_zeros(&mut self) -> io::Result<()> {
        let chunk = vec![0; CHUNK_BYTES];
        self.file.seek(SeekFrom::Start(0))?;
        let mut left = self.bytes;
        while let Some(part) =
            chunk.get(..usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES))
            && !part.is_empty()
        {
            self.file.write_all(part)?;
            left -= part.len() as u64;
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
