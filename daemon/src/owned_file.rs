//! Opening of files that decide which commands run, only if no other user can have written them.
//!
//! A configuration, a token file or an environment file grants the rights of the commands in it.
//! The file is accepted if it and every directory and symbolic link on its path belong to root or
//! to the user of this process, and no other user may write to them. The path is walked one
//! component at a time with descriptors, so the checked file is the one that is read.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fcntl_getfl, fcntl_setfl, fstat, fstatfs,
    openat, readlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::accounts;
use ceased_client::printable::clean;

/// Maximum number of symbolic links on a path, as in the kernel.
const LINKS_MAX: usize = 40;
/// Write permission of group and others.
const OTHERS_WRITE: u32 = 0o022;
/// The group's part of [`OTHERS_WRITE`].
const GROUP_WRITE: u32 = 0o020;
/// Sticky bit: only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;

/// Users that may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// All users.
    Public,
    /// Its owner; for a file of root also its group, which can be the only way for the user of a
    /// daemon to read it.
    Secret,
}

/// Why a file is rejected.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It cannot be opened or read.
    Io(io::Error),
    /// Another user controls its content, or may read it.
    Refused {
        /// The problem, with path, owner and mode.
        what: String,
        /// The command that corrects it.
        remedy: String,
    },
}

impl From<Errno> for Unfit {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<io::Error> for Unfit {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Refused { what, remedy } => write!(f, "{what}; {remedy}"),
        }
    }
}

/// Reads a whole file after [`open`].
///
/// # Errors
/// As [`open`]; [`Unfit::Io`] of kind `FileTooLarge` when it has more than `bytes_max` bytes.
pub(crate) fn read(path: &Path, secrecy: Secrecy, bytes_max: u64) -> Result<Vec<u8>, Unfit> {
    let mut bytes = Vec::new();
    open(path, secrecy)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Unfit::Io(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(bytes)
}

/// Opens a file that only root and the user of this process can have written.
///
/// A public file may also be a named pipe, a descriptor of a process (`/dev/stdin`, the `<(…)` of a
/// shell), or a character device.
///
/// # Errors
/// If it cannot be opened, or is not such a file.
pub(crate) fn open(path: &Path, secrecy: Secrecy) -> Result<File, Unfit> {
    let absolute = std::path::absolute(path)?;
    let mut walk = Walk::start(&absolute)?;
    while let Some(name) = walk.pending.pop() {
        if let Some(file) = walk.step(&name, secrecy)? {
            return Ok(file);
        }
    }
    Err(no_file(&walk.path(), "a directory"))
}

/// State of a path walk.
struct Walk {
    us: u32,
    /// Open directories from the root on; never empty.
    dirs: Vec<(OsString, OwnedFd)>,
    /// Components still to walk, in reverse order.
    pending: Vec<OsString>,
    links: usize,
}

impl Walk {
    fn start(absolute: &Path) -> Result<Self, Unfit> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, "/", flags, Mode::empty())?;
        let mut walk =
            Self { us: geteuid().as_raw(), dirs: Vec::new(), pending: Vec::new(), links: 0 };
        walk.check(&root, Kind::Directory, Path::new("/"))?;
        walk.dirs.push((OsString::from("/"), root));
        walk.add(absolute);
        Ok(walk)
    }

    /// Adds components to walk before all others.
    fn add(&mut self, path: &Path) {
        self.pending.extend(path.components().rev().filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        }));
    }

    /// Path of the current directory.
    fn path(&self) -> PathBuf {
        self.dirs.iter().map(|(name, _)| name).collect()
    }

    /// Walks one component; returns the file if it is the last one and leads to a file.
    fn step(&mut self, name: &OsStr, secrecy: Secrecy) -> Result<Option<File>, Unfit> {
        if name == ".." {
            // The parent of the root is the root.
            if self.dirs.len() > 1 {
                self.dirs.pop();
            }
            return Ok(None);
        }
        let path = self.path().join(name);
        let Some((_, dir)) = self.dirs.last() else { return Err(Errno::NOENT.into()) };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(dir, name, flags, Mode::empty())?;
        let is_last = self.pending.is_empty();
        match kind_of(&fstat(&found)?) {
            Kind::Link => {
                self.check(&found, Kind::Link, &path)?;
                if is_last && fstatfs(dir)?.f_type == PROC_SUPER_MAGIC {
                    // A magic link to an open descriptor rather than a path.
                    return self.open(name, OFlags::NONBLOCK, secrecy, &path).map(Some);
                }
                self.links += 1;
                if self.links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&found, "", Vec::new())?.into_bytes();
                let target = PathBuf::from(OsString::from_vec(target));
                if target.is_absolute() {
                    self.dirs.truncate(1);
                }
                self.add(&target);
                Ok(None)
            }
            Kind::Directory => {
                self.check(&found, Kind::Directory, &path)?;
                self.dirs.push((name.to_owned(), found));
                Ok(None)
            }
            Kind::File | Kind::Device | Kind::Pipe | Kind::Other if !is_last => {
                Err(Errno::NOTDIR.into())
            }
            Kind::File | Kind::Device => {
                self.open(name, OFlags::NOFOLLOW | OFlags::NONBLOCK, secrecy, &path).map(Some)
            }
            // Opening waits for a writer, which must have write permission.
            Kind::Pipe if secrecy == Secrecy::Public => {
                self.check(&found, Kind::Pipe, &path)?;
                self.open(name, OFlags::NOFOLLOW, secrecy, &path).map(Some)
            }
            Kind::Pipe | Kind::Other => Err(no_file(&path, "a pipe or a socket")),
        }
    }

    /// Opens the last component and checks the opened file.
    fn open(
        &self,
        name: &OsStr,
        how: OFlags,
        secrecy: Secrecy,
        path: &Path,
    ) -> Result<File, Unfit> {
        let Some((_, dir)) = self.dirs.last() else { return Err(Errno::NOENT.into()) };
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC | how;
        let file = openat(dir, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        match (kind_of(&stat), secrecy) {
            (Kind::File, _) => {}
            (Kind::Directory | Kind::Link, _) => return Err(no_file(path, "a directory")),
            (Kind::Device | Kind::Pipe | Kind::Other, Secrecy::Secret) => {
                return Err(no_file(path, "a pipe or a device"));
            }
            (Kind::Device | Kind::Pipe | Kind::Other, Secrecy::Public) => {
                fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
            }
        }
        self.check(&file, kind_of(&stat), path)?;
        if secrecy == Secrecy::Secret {
            self.check_secret(&stat, path)?;
        }
        Ok(file.into())
    }

    fn check(&self, entry: &impl AsFd, kind: Kind, path: &Path) -> Result<(), Unfit> {
        let stat = fstat(entry)?;
        let (owner, mode) = (stat.st_uid, stat.st_mode & 0o7777);
        let facts = Facts {
            kind,
            owner,
            mode,
            group_is_owner: mode & GROUP_WRITE != 0
                && is_private(owner, stat.st_gid)
                && has_no_acl(entry),
        };
        match facts.flaw(self.us, is_unmapped()) {
            None => Ok(()),
            Some(flaw) => Err(refusal(flaw, &facts, self.us, path)),
        }
    }

    fn check_secret(&self, stat: &Stat, path: &Path) -> Result<(), Unfit> {
        let (owner, mode) = (stat.st_uid, stat.st_mode & 0o7777);
        if reads_secretly(owner, mode, self.us) {
            return Ok(());
        }
        let (shown, quoted) = (clean(&path.to_string_lossy()).into_owned(), quoted(path));
        Err(Unfit::Refused {
            what: format!(
                "other users may read {shown} (it belongs to uid {owner}, mode {mode:04o})"
            ),
            remedy: format!("chmod 600 {quoted}"),
        })
    }
}

/// Type of a path component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
    /// A device: reading it does not return data written by users.
    Device,
    Pipe,
    Other,
}

fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        FileType::CharacterDevice => Kind::Device,
        FileType::Fifo => Kind::Pipe,
        FileType::BlockDevice | FileType::Socket | FileType::Unknown => Kind::Other,
    }
}

/// Ownership and mode of a path component.
#[derive(Debug, Clone, Copy)]
struct Facts {
    kind: Kind,
    owner: u32,
    mode: u32,
    /// Whether the owner is the only member of the group.
    group_is_owner: bool,
}

/// Why a path component is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// It belongs to another user.
    Owner,
    /// Other users may write to it.
    Writable,
}

impl Facts {
    /// The rule, for the user `us`. `is_unmapped`: a user namespace in which root's directories
    /// appear to belong to the overflow uid.
    const fn flaw(&self, us: u32, is_unmapped: bool) -> Option<Flaw> {
        let is_unknown_dir = is_unmapped
            && self.owner == accounts::OVERFLOW_UID
            && matches!(self.kind, Kind::Directory | Kind::Link);
        if self.owner != 0 && self.owner != us && !is_unknown_dir {
            return Some(Flaw::Owner);
        }
        let writers = self.mode
            & if self.group_is_owner { OTHERS_WRITE & !GROUP_WRITE } else { OTHERS_WRITE };
        match self.kind {
            // The mode of a link has no effect, and users cannot write the data a device returns.
            Kind::Link | Kind::Device => None,
            Kind::Directory if self.mode & STICKY != 0 => None,
            Kind::Directory | Kind::File | Kind::Pipe | Kind::Other if writers == 0 => None,
            Kind::Directory | Kind::File | Kind::Pipe | Kind::Other => Some(Flaw::Writable),
        }
    }
}

/// Whether a file is readable only by its owner, or for a file of root also by its group.
const fn reads_secretly(owner: u32, mode: u32, us: u32) -> bool {
    let others = if owner == 0 && us != 0 { 0o007 } else { 0o077 };
    mode & others == 0
}

fn refusal(flaw: Flaw, facts: &Facts, us: u32, path: &Path) -> Unfit {
    let Facts { kind, owner, mode, .. } = *facts;
    let (shown, quoted) = (clean(&path.to_string_lossy()).into_owned(), quoted(path));
    let noun = match kind {
        Kind::Directory => "the directory ",
        Kind::Link => "the symbolic link ",
        Kind::File | Kind::Device | Kind::Pipe | Kind::Other => "",
    };
    match flaw {
        Flaw::Owner => {
            let no_follow = if kind == Kind::Link { "-h " } else { "" };
            Unfit::Refused {
                what: format!(
                    "{noun}{shown} belongs to uid {owner} (mode {mode:04o}), neither to root nor \
                     to the user of this process, {us}; that user could change the commands that run"
                ),
                remedy: format!(
                    "check its content, then chown {no_follow}{us} {quoted}, or use a copy of \
                     your own"
                ),
            }
        }
        Flaw::Writable => Unfit::Refused {
            what: format!(
                "other users may write to {noun}{shown} (it belongs to uid {owner}, mode {mode:04o}) \
                 and could change the commands that run"
            ),
            remedy: format!("chmod go-w {quoted}"),
        },
    }
}

fn no_file(path: &Path, found: &str) -> Unfit {
    Unfit::Refused {
        what: format!("{} is {found}, not a regular file", clean(&path.to_string_lossy())),
        remedy: "give the path of a regular file".into(),
    }
}

/// A path quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = clean(&path.to_string_lossy()).into_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Whether the group is the private group of the owner, without other members. Files of users with
/// such a group are often group-writable.
fn is_private(owner: u32, gid: u32) -> bool {
    accounts::is_own_group(owner, gid)
}

/// Whether the mode shows the group's permission and not the mask of an access control list.
fn has_no_acl(entry: &impl AsFd) -> bool {
    let path = format!("/proc/self/fd/{}", entry.as_fd().as_raw_fd());
    let found = rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]);
    matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Whether this is a user namespace without a mapping of the overflow uid: files of root and of all
/// other unmapped users appear to belong to it.
fn is_unmapped() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| !maps(&map, accounts::OVERFLOW_UID))
}

fn maps(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(first)), Some(Ok(_)), Some(Ok(count))) =
            (fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(uid))
    })
}

#[cfg(test)]
mod tests;
