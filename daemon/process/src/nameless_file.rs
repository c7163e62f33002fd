//! A file without a name.

use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::io::Errno;

/// Directories for an unnamed file if memory files are unavailable.
const TEMPORARY: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

/// A file that vanishes with its last descriptor: in memory, or in a temporary directory if the
/// kernel or a sandbox has no `memfd_create`.
pub(crate) fn nameless_file() -> io::Result<File> {
    let error = match memfd_create("ceased", MemfdFlags::CLOEXEC) {
        Ok(file) => return Ok(file.into()),
        Err(error) => error,
    };
    if matches!(error, Errno::NOSYS | Errno::PERM) {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = TEMPORARY.iter().find_map(|dir| open(*dir, flags, Mode::RUSR | Mode::WUSR).ok());
        if let Some(file) = made {
            return Ok(file.into());
        }
    }
    Err(io::Error::other(format!(
        "memfd_create: {error}; cannot create an unnamed file in {} either",
        TEMPORARY.join(", ")
    )))
}
