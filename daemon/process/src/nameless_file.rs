//! A file without a name.

use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create, open};
use rustix::io::Errno;

/// Where a file without a name is made, if it cannot be had in memory.
const TEMPORARY: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

/// A file that is gone with its last descriptor: in memory, or in a temporary directory where the
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
        "memfd_create: {error}; no file without a name can be had in {} either",
        TEMPORARY.join(", ")
    )))
}
