//! Ownership of the files of `connect --spawn`. A user that can put a socket, a lock or a log where a daemon is
//! looked for could be taken for that daemon, so all of it has to belong to this user, as ssh and
//! gpg want it of theirs.

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

/// Checks that nobody but this user and root can put files into a directory, or that those of
/// others can at least not be mistaken for this user's (`/tmp`).
///
/// # Errors
/// What is wrong and what to do, as the text of an error.
pub(crate) fn check_directory(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let (owner, mode, us) = (found.uid(), found.mode() & 0o7777, geteuid().as_raw());
    if owner != us && owner != ROOT {
        return Err(refused(format!(
            "the directory belongs to uid {owner} and this is uid {us}: a daemon there may be \
             another user's; set `path` in [[listen]] to a directory of your own"
        )));
    }
    if mode & WRITABLE_BY_OTHERS != 0 && mode & STICKY == 0 {
        return Err(refused(format!(
            "the directory can be written by others (mode {mode:04o}), who could put a daemon of \
             their own there: chmod go-w {}",
            path.display()
        )));
    }
    Ok(())
}

/// Checks that an open file is a regular file of this user that others cannot write.
///
/// # Errors
/// What is wrong and what to do, as the text of an error.
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
            "it belongs to uid {owner} and this is uid {us}: remove it (rm {path})"
        )));
    }
    let mode = found.mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(refused(format!(
            "it can be written by others (mode {mode:04o}): chmod go-w {path}"
        )));
    }
    Ok(())
}

/// Says what is in the way of a file that is to be opened, where that is no regular file: opening it
/// would fail with less to go by. An opened file is to be checked by [`check_file`] all the same.
///
/// # Errors
/// What is in the way.
pub(crate) fn check_type(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => {
            Err(refused(format!("it is {}, not a regular file: remove it", kind(&found))))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Checks that a daemon that was reached runs as this user or as root.
///
/// # Errors
/// As whom it runs, and what to do.
pub(crate) fn check_daemon(socket: impl AsFd) -> io::Result<()> {
    let who = getsockopt(&socket.as_fd(), PeerCredentials)?;
    let us = geteuid().as_raw();
    if who.uid() == us || who.uid() == ROOT {
        return Ok(());
    }
    Err(refused(format!(
        "what listens there (process {}) belongs to uid {} and this is uid {us}; \
         to use the daemon of another user, connect without --spawn",
        who.pid(),
        who.uid()
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
