//! Unix sockets: the file, its mode, its lock.
//!
//! The holder of the `flock` on `PATH.lock` owns `PATH`: it may remove a socket without a listener
//! and bind its own. Asking by connecting alone would be a race between two daemons that start at
//! once. The lock file itself is never removed, or two processes could hold "the" lock on two
//! files of one name.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix};

use crate::BACKLOG;
use crate::address::SocketMode;
use crate::error::ListenError;
use crate::system::{self, PATH_BYTES_MAX};

/// A socket file of ours and the lock that makes it so. Dropping it removes the file, provided it
/// is still the one we made, and then lets go of the lock.
///
/// Must go before the socket itself: only while that lives is its inode number not given to
/// another file.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    lock: File,
    /// Permissions of the directory, to be given to one that has to be made again.
    dir_mode: Option<u32>,
}

impl SocketFile {
    /// Whether peers find the socket at its path, and other daemons its lock. A path that cannot be
    /// inspected counts as found.
    pub(crate) fn is_in_place(&self) -> bool {
        let socket = fs::symlink_metadata(&self.path);
        let is_there = socket.map_or_else(|error| !is_absent(&error), |found| self.is(&found));
        is_there && self.has_lock()
    }

    fn is(&self, found: &fs::Metadata) -> bool {
        (found.dev(), found.ino()) == (self.device, self.inode)
    }

    /// Whether the lock that is held is the one at its path.
    fn has_lock(&self) -> bool {
        match (self.lock.metadata(), fs::symlink_metadata(lock_path(&self.path))) {
            (Ok(ours), Ok(found)) => (ours.dev(), ours.ino()) == (found.dev(), found.ino()),
            (_, Err(error)) => !is_absent(&error),
            (Err(_), Ok(_)) => true,
        }
    }

    /// Makes the file, its lock and its directory again, as far as they are missing, with a socket
    /// that listens there; `None` when the old socket is in its place. Never takes the place of a
    /// socket that another process listens on.
    pub(crate) fn renew(
        &mut self,
        mode: SocketMode,
        group: Option<u32>,
    ) -> Result<Option<(OwnedFd, Self)>, ListenError> {
        let (path, address) = checked(&self.path)?;
        make_parent(&path, self.dir_mode)?;
        let lock = if self.has_lock() {
            self.lock.try_clone().map_err(failed("keep the lock of", &path))?
        } else {
            lock(&path)?
        };
        if self.is_ours() {
            self.lock = lock;
            return Ok(None);
        }
        clear_stale(&path, &address)?;
        bind(&path, &address, lock, mode, group).map(Some)
    }

    /// Whether the file is still the one we made.
    fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| self.is(&found))
    }

    /// Changes the users that may connect, unless another file is in its place.
    pub(crate) fn set(&self, mode: SocketMode, group: Option<u32>) -> Result<(), ListenError> {
        let path = &self.path;
        let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
        if !self.is(&found) {
            return Ok(());
        }
        let set_mode = |bits| {
            fs::set_permissions(path, fs::Permissions::from_mode(bits))
                .map_err(failed("set the mode of", path))
        };
        let gid = group.unwrap_or_else(|| rustix::process::getegid().as_raw());
        if found.gid() != gid {
            // Open to neither group while it changes hands.
            set_mode(found.mode() & mode.bits() & 0o700)?;
            if let Err(error) = std::os::unix::fs::lchown(path, None, Some(gid)) {
                set_mode(found.mode() & 0o777)?;
                return Err(failed("set the group of", path)(error));
            }
        } else if found.mode() & 0o777 == mode.bits() {
            return Ok(());
        }
        set_mode(mode.bits())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_ours() {
            // Nothing can be done about a failure, and the next daemon clears up anyway.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on `path`; the absolute path, too.
pub(crate) fn listen(
    path: &Path,
    mode: SocketMode,
    group: Option<u32>,
) -> Result<(OwnedFd, SocketFile, PathBuf), ListenError> {
    let (path, address) = checked(path)?;
    make_parent(&path, None)?;
    let lock = lock(&path)?;
    clear_stale(&path, &address)?;
    let (fd, file) = bind(&path, &address, lock, mode, group)?;
    Ok((fd, file, path))
}

/// Makes the directory of a socket if there is none: with mode 0700, or the one it had before.
fn make_parent(path: &Path, mode: Option<u32>) -> Result<(), ListenError> {
    let Some(parent) = path.parent().filter(|parent| !parent.exists()) else { return Ok(()) };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .map_err(failed("create directory", parent))?;
    if let Some(mode) = mode {
        fs::set_permissions(parent, fs::Permissions::from_mode(mode))
            .map_err(failed("set the mode of", parent))?;
    }
    Ok(())
}

/// A Unix stream socket that never blocks and that is closed at exec, to connect with.
///
/// # Errors
/// If the process is out of descriptors.
pub fn socket() -> io::Result<OwnedFd> {
    Ok(system::stream_socket(AddressFamily::UNIX)?)
}

/// Binds and listens, where nothing is in the way. To be called with the lock held.
fn bind(
    path: &Path,
    address: &SocketAddrUnix,
    lock: File,
    mode: SocketMode,
    group: Option<u32>,
) -> Result<(OwnedFd, SocketFile), ListenError> {
    let fd = system::stream_socket(AddressFamily::UNIX).map_err(failed("make socket", path))?;
    // The file is born with the mode of the socket, less the umask: never wider than wanted, and
    // open to no group before it is the right one.
    let born_with = if group.is_some() { mode.bits() & 0o700 } else { mode.bits() };
    system::set_birth_mode(&fd, born_with).map_err(failed("set the mode of", path))?;
    net::bind(&fd, address).map_err(failed("bind", path))?;
    let born = fs::symlink_metadata(path).map_err(failed("look at", path))?;
    let dir_mode = path.parent().and_then(|parent| fs::metadata(parent).ok());
    let dir_mode = dir_mode.map(|found| found.mode() & 0o7777);
    let (device, inode) = (born.dev(), born.ino());
    let file = SocketFile { path: path.to_owned(), device, inode, lock, dir_mode };
    if let Some(gid) = group {
        std::os::unix::fs::lchown(path, None, Some(gid))
            .map_err(failed("set the group of", path))?;
    }
    if born.mode() & 0o777 != mode.bits() {
        // The permissions that the umask removed are restored before any peer can connect.
        fs::set_permissions(path, fs::Permissions::from_mode(mode.bits()))
            .map_err(failed("set the mode of", path))?;
    }
    net::listen(&fd, BACKLOG).map_err(failed("listen on", path))?;
    Ok((fd, file))
}

/// The absolute path, so that a later change of directory cannot redirect its removal, and the
/// address made of it.
fn checked(path: &Path) -> Result<(PathBuf, SocketAddrUnix), ListenError> {
    if path.as_os_str().is_empty() || path.as_os_str().as_bytes().contains(&0) {
        return Err(ListenError::PathUnusable { path: path.to_owned() });
    }
    let path = std::path::absolute(path).map_err(failed("find directory of", path))?;
    let bytes = path.as_os_str().len();
    if bytes > PATH_BYTES_MAX {
        return Err(ListenError::PathTooLong { path, bytes, bytes_max: PATH_BYTES_MAX });
    }
    let address = SocketAddrUnix::new(&path).map_err(failed("make an address of", &path))?;
    Ok((path, address))
}

/// Takes the lock of `path`, for as long as the file it returns lives.
fn lock(path: &Path) -> Result<File, ListenError> {
    let lock_path = lock_path(path);
    loop {
        let lock = try_lock(path, &lock_path)?;
        // A lock on a file that was removed meanwhile excludes no process.
        let held = lock.metadata().map_err(failed("look at lock", &lock_path))?;
        match fs::symlink_metadata(&lock_path) {
            Ok(found) if (found.dev(), found.ino()) == (held.dev(), held.ino()) => return Ok(lock),
            Ok(_) => {}
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(failed("look at lock", &lock_path)(error)),
        }
    }
}

/// Where the lock of a socket is.
fn lock_path(path: &Path) -> PathBuf {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    lock_path.into()
}

/// Whether this says that there is no such file.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn try_lock(path: &Path, lock_path: &Path) -> Result<File, ListenError> {
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(lock_path)
        .map_err(failed("open lock", lock_path))?;
    if !lock.metadata().map_err(failed("look at lock", lock_path))?.is_file() {
        let what = "something that is no regular file";
        return Err(ListenError::InTheWay { path: lock_path.to_owned(), what });
    }
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let holder = lock
                .take(32)
                .read_to_string(&mut text)
                .ok()
                .and_then(|_| text.trim_end().parse().ok());
            return Err(ListenError::AlreadyRunning { path: path.to_owned(), holder });
        }
        Err(errno) => return Err(failed("lock", lock_path)(errno)),
    }
    // The number is for the error text of the next one; without it the lock is as good.
    let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
    Ok(lock)
}

/// Removes a socket without a listener, and nothing else. To be called with the lock held.
fn clear_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), ListenError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", path)(error)),
    };
    let in_the_way = |what| Err(ListenError::InTheWay { path: path.to_owned(), what });
    if !found.is_socket() {
        return in_the_way(match found {
            _ if found.is_file() => "a regular file",
            _ if found.is_dir() => "a directory",
            _ if found.is_symlink() => "a symbolic link",
            _ => "a device or fifo",
        });
    }
    let probe =
        system::stream_socket(AddressFamily::UNIX).map_err(failed("make a socket to try", path))?;
    match net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path).map_err(failed("remove stale socket", path))
        }
        // It accepts, or would if its queue were not full.
        Ok(()) | Err(Errno::AGAIN) => Err(ListenError::InUse { path: path.to_owned() }),
        Err(Errno::PROTOTYPE) => in_the_way("a socket of another type"),
        // It went by itself.
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("find out whether somebody serves", path)(errno)),
    }
}

fn failed<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> ListenError {
    let subject = path.display().to_string();
    move |error| ListenError::Os { doing, subject, error: error.into() }
}
