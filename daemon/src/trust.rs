//! Ownership checks of the files of `connect --spawn`. A user that can place a socket, a lock or a
//! log where a daemon is searched for could impersonate that daemon, so all of them must belong to
//! this user, as with the files of ssh and gpg.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::process::geteuid;

const ROOT: u32 = 0;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Checks that only this user and root can create files in a directory, or that files of other
/// users are distinguishable there (`/tmp`).
///
/// # Errors
/// An error whose text gives the problem and the remedy.
pub(crate) fn check_directory(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let (owner, mode, us) = (found.uid(), found.mode() & 0o7777, geteuid().as_raw());
    if owner != us && owner != ROOT {
        return Err(refused(format!(
            "the directory belongs to uid {owner}, but this is uid {us}: a daemon there may be \
             another user's; set `path` in [[listen]] to a directory of your own"
        )));
    }
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        return Err(refused(format!(
            "the directory is writable by others (mode {mode:04o}); they could place a daemon of \
             their own there: chmod go-w {}",
            path.display()
        )));
    }
    Ok(())
}

/// Checks that an open file is a regular file of this user that others cannot write.
///
/// # Errors
/// An error whose text gives the problem and the remedy.
pub(crate) fn check_file(file: &File, path: &Path) -> io::Result<()> {
    let found = file.metadata()?;
    let us = geteuid().as_raw();
    let path = path.display();
    if !found.is_file() {
        return Err(refused(format!("it is {}, not a regular file: remove it", kind(&found))));
    }
    if found.uid() != us {
        let owner = found.uid();
        return Err(refused(format!(
            "it belongs to uid {owner}, but this is uid {us}: remove it (rm {path})"
        )));
    }
    let mode = found.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(refused(format!(
            "it is writable by others (mode {mode:04o}): chmod go-w {path}"
        )));
    }
    Ok(())
}

/// Reports a path that is not a regular file before it is opened, with a better error than opening
/// it. The opened file must still be checked with [`check_file`].
///
/// # Errors
/// A description of the obstacle.
pub(crate) fn check_type(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            Err(refused(format!("it is {}, not a regular file: remove it", kind(&found))))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Checks that a daemon runs as this user or as root.
///
/// # Errors
/// An error with its user and the remedy.
pub(crate) fn check_daemon(socket: impl AsFd) -> io::Result<()> {
    let peer = getsockopt(&socket.as_fd(), PeerCredentials)?;
    let us = geteuid().as_raw();
    if peer.uid() == us || peer.uid() == ROOT {
        return Ok(());
    }
    Err(refused(format!(
        "the daemon (process {}) belongs to uid {}, but this is uid {us}; \
         to use the daemon of another user, connect without --spawn",
        peer.pid(),
        peer.uid()
    )))
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

fn kind(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a fifo"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}
