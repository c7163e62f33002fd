//! Files that decide what runs, opened only when nobody else can have written them.
//!
//! A configuration, a token file or a file of variables is as good as the commands in it. It is
//! taken when it and every directory and symbolic link on the way to it belong to root or to the
//! user of this process, and nobody else may write to them. The path is walked one component at a
//! time with descriptors, so that what was judged is what is read.

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
use crate::printable::clean;

/// Symbolic links on the way to a file, as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// Permission to write for others than the owner.
const OTHERS_WRITE: u32 = 0o022;
/// The group's part of [`OTHERS_WRITE`].
const GROUP_WRITE: u32 = 0o020;
/// Only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;

/// Users that may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrecy {
    /// All users.
    Public,
    /// Its owner; of a file that root owns, its group as well, which can be the only way for the
    /// user of a daemon to read it.
    Secret,
}

/// Why a file is not taken.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It cannot be opened or read.
    Io(io::Error),
    /// Another user decides its content, or may read it.
    Refused {
        /// The problem, with the path, the owner and the mode.
        what: String,
        /// The command that puts it right.
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
/// A public one may also be a named pipe, what a descriptor of a process leads to (`/dev/stdin`, the
/// `<(…)` of a shell), or a character device.
///
/// # Errors
/// When it cannot be opened, or is not such a file.
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

/// A way to a file, as far as it was gone.
struct Walk {
    us: u32,
    /// The directories from the root on; never empty.
    dirs: Vec<(OsString, OwnedFd)>,
    /// Components still to be walked, the last first.
    pending: Vec<OsString>,
    links: usize,
}

impl Walk {
    fn start(absolute: &Path) -> Result<Self, Unfit> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, "/", flags, Mode::empty())?;
        let mut walk =
            Self { us: geteuid().as_raw(), dirs: Vec::new(), pending: Vec::new(), links: 0 };
        walk.judge(&root, Kind::Directory, Path::new("/"))?;
        walk.dirs.push((OsString::from("/"), root));
        walk.add(absolute);
        Ok(walk)
    }

    /// Components to be walked before all others.
    fn add(&mut self, path: &Path) {
        self.pending.extend(path.components().rev().filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        }));
    }

    /// Where it is.
    fn path(&self) -> PathBuf {
        self.dirs.iter().map(|(name, _)| name).collect()
    }

    /// One component; the file, if it is the last and leads to one.
    fn step(&mut self, name: &OsStr, secrecy: Secrecy) -> Result<Option<File>, Unfit> {
        if name == ".." {
            // No directory is above the root.
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
                self.judge(&found, Kind::Link, &path)?;
                if is_last && fstatfs(dir)?.f_type == PROC_SUPER_MAGIC {
                    // Not a path but a descriptor that a process has open.
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
                self.judge(&found, Kind::Directory, &path)?;
                self.dirs.push((name.to_owned(), found));
                Ok(None)
            }
            Kind::File | Kind::Device | Kind::Pipe | Kind::Other if !is_last => {
                Err(Errno::NOTDIR.into())
            }
            Kind::File | Kind::Device => {
                self.open(name, OFlags::NOFOLLOW | OFlags::NONBLOCK, secrecy, &path).map(Some)
            }
            // It waits for a writer, who has to be one of those who may write a file.
            Kind::Pipe if secrecy == Secrecy::Public => {
                self.judge(&found, Kind::Pipe, &path)?;
                self.open(name, OFlags::NOFOLLOW, secrecy, &path).map(Some)
            }
            Kind::Pipe | Kind::Other => Err(no_file(&path, "a pipe or a socket")),
        }
    }

    /// Opens the last component and judges what has been opened.
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
        self.judge(&file, kind_of(&stat), path)?;
        if secrecy == Secrecy::Secret {
            self.judge_secret(&stat, path)?;
        }
        Ok(file.into())
    }

    fn judge(&self, entry: &impl AsFd, kind: Kind, path: &Path) -> Result<(), Unfit> {
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

    fn judge_secret(&self, stat: &Stat, path: &Path) -> Result<(), Unfit> {
        let (owner, mode) = (stat.st_uid, stat.st_mode & 0o7777);
        if reads_secretly(owner, mode, self.us) {
            return Ok(());
        }
        let (shown, quoted) = (clean(&path.to_string_lossy()).into_owned(), quoted(path));
        Err(Unfit::Refused {
            what: format!("others may read {shown} (it belongs to uid {owner}, mode {mode:04o})"),
            remedy: format!("chmod 600 {quoted}"),
        })
    }
}

/// What something on the way to a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
    /// Its writes and its reads differ.
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

/// What decides whether somebody else has a hand in something.
#[derive(Debug, Clone, Copy)]
struct Facts {
    kind: Kind,
    owner: u32,
    mode: u32,
    /// Whether its group has no member but its owner.
    group_is_owner: bool,
}

/// Why something is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// It belongs to another user.
    Owner,
    /// Others may write to it.
    Writable,
}

impl Facts {
    /// The one rule, for the user `us`. `is_unmapped` says that this is a user namespace where
    /// root's directories read as the overflow user's.
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
            // The mode of a link means nothing, and nobody can write into what a device gives.
            Kind::Link | Kind::Device => None,
            Kind::Directory if self.mode & STICKY != 0 => None,
            Kind::Directory | Kind::File | Kind::Pipe | Kind::Other if writers == 0 => None,
            Kind::Directory | Kind::File | Kind::Pipe | Kind::Other => Some(Flaw::Writable),
        }
    }
}

/// Whether only its owner, or for a file of root its group as well, may read a file.
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
                     to ours, {us}, so that user decides what runs"
                ),
                remedy: format!(
                    "look at what is in it, then chown {no_follow}{us} {quoted}, or use a copy of \
                     your own"
                ),
            }
        }
        Flaw::Writable => Unfit::Refused {
            what: format!(
                "others may change {noun}{shown} (it belongs to uid {owner}, mode {mode:04o}), so \
                 they decide what runs"
            ),
            remedy: format!("chmod go-w {quoted}"),
        },
    }
}

fn no_file(path: &Path, found: &str) -> Unfit {
    Unfit::Refused {
        what: format!("{} is {found}, no regular file", clean(&path.to_string_lossy())),
        remedy: "name a file".into(),
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = clean(&path.to_string_lossy()).into_owned();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Whether the group is the one that many systems make for each user, with nobody else in it.
/// Files of such users are writable by their group.
fn is_private(owner: u32, gid: u32) -> bool {
    accounts::is_own_group(owner, gid)
}

/// Whether the group's permission is the group's and not the limit of an access control list.
fn has_no_acl(entry: &impl AsFd) -> bool {
    let path = format!("/proc/self/fd/{}", entry.as_fd().as_raw_fd());
    let found = rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]);
    matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Whether this is a user namespace that does not map the overflow user: root's and all other
/// users' files that it does not map read as belonging to it.
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
