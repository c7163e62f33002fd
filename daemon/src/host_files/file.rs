//! A host's file on disk: read whole, replaced atomically, with a copy of its former content.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::error::HostFileError;

/// Size limit of a host's file. That of Claude Code, which holds more than settings, has megabytes.
const BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Number of copies of one file.
const COPIES_MAX: u32 = 99;
/// Write permission of the owner.
const OWNER_WRITES: u32 = 0o200;

/// A host's file.
#[derive(Debug)]
pub(crate) struct HostFile {
    /// The file itself, without symbolic links.
    pub(crate) path: PathBuf,
    /// Its content.
    pub(crate) text: String,
    found: Metadata,
}

fn fail(path: &Path, doing: &str, why: &io::Error, hint: &str) -> HostFileError {
    HostFileError::new(0, format!("cannot {doing} {}: {why}", path.display()), hint)
}

/// Options that neither follow a symbolic link nor wait for the writer of a pipe.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

impl HostFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is no regular file, too large, or not UTF-8.
    pub(crate) fn read(named: &Path) -> Result<Self, HostFileError> {
        let hint = "name the file in which the host keeps its MCP servers";
        let path = named.canonicalize().map_err(|why| fail(named, "read", &why, hint))?;
        let no = |why: io::Error| fail(&path, "read", &why, hint);
        let mut file = options().read(true).open(&path).map_err(no)?;
        let found = file.metadata().map_err(no)?;
        if !found.is_file() {
            let what = format!("{} is no regular file", path.display());
            return Err(HostFileError::new(0, what, hint));
        }
        let mut bytes = Vec::new();
        (&mut file).take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(no)?;
        if bytes.len() as u64 > BYTES_MAX {
            let what = format!("{} is larger than {BYTES_MAX} bytes", path.display());
            return Err(HostFileError::new(0, what, hint));
        }
        let text = String::from_utf8(bytes).map_err(|why| {
            let at = why.utf8_error().valid_up_to();
            let what = format!("byte {at} of {} is not UTF-8", path.display());
            HostFileError::new(0, what, "save it as UTF-8")
        })?;
        Ok(Self { path, text, found })
    }

    /// Replaces the file, after its old content is in the returned copy.
    ///
    /// # Errors
    /// If it belongs to another user, is read-only, has changed since it was read, or cannot be
    /// written. It is then as it was.
    pub(crate) fn replace(&self, new: &str) -> Result<PathBuf, HostFileError> {
        self.permit()?;
        let copy = self.keep_copy()?;
        let temporary = self.beside(&format!(".ceased-{}", std::process::id()));
        let no = |why: io::Error| fail(&self.path, "write", &why, "the file is as it was");
        let done = self.create(&temporary, new).and_then(|()| {
            if self.is_unchanged()? { fs::rename(&temporary, &self.path) } else { Err(changed()) }
        });
        if let Err(why) = done {
            if why.kind() != io::ErrorKind::AlreadyExists {
                let _ = fs::remove_file(&temporary);
            }
            return Err(no(why));
        }
        if let Some(dir) = self.path.parent() {
            File::open(dir).and_then(|dir| dir.sync_all()).map_err(no)?;
        }
        Ok(copy)
    }

    /// Checks that this user may replace it.
    ///
    /// # Errors
    /// If it belongs to another user, or is read-only.
    pub(crate) fn permit(&self) -> Result<(), HostFileError> {
        let (path, owner) = (self.path.display(), self.found.uid());
        if owner != geteuid().as_raw() {
            // A user could exchange the directory entries below root's hands.
            let what = format!("{path} belongs to uid {owner}, another user");
            return Err(HostFileError::new(0, what, "run the command as that user"));
        }
        if self.found.mode() & OWNER_WRITES == 0 {
            let what = format!("{path} is read-only");
            return Err(HostFileError::new(0, what, format!("chmod u+w {path}")));
        }
        Ok(())
    }

    fn is_unchanged(&self) -> io::Result<bool> {
        let now = fs::symlink_metadata(&self.path)?;
        let facts = |it: &Metadata| (it.ino(), it.dev(), it.len(), it.mtime(), it.mtime_nsec());
        Ok(facts(&now) == facts(&self.found))
    }

    /// Path of a file beside it.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// Creates a new file with its permissions; nothing is followed or overwritten, and no part of
    /// a file is left if the disk is full.
    fn create(&self, path: &Path, text: &str) -> io::Result<()> {
        let file = options().write(true).create_new(true).mode(0o600).open(path)?;
        let filled = self.fill(file, text);
        if filled.is_err() {
            // The reason is the error of the caller.
            let _ = fs::remove_file(path);
        }
        filled
    }

    fn fill(&self, mut file: File, text: &str) -> io::Result<()> {
        file.write_all(text.as_bytes())?;
        if file.metadata()?.gid() != self.found.gid() {
            // Without it the mode could give rights to another group.
            let _ = std::os::unix::fs::fchown(&file, None, Some(self.found.gid()));
        }
        let is_same_group = file.metadata()?.gid() == self.found.gid();
        let mask = if is_same_group { 0o777 } else { 0o700 };
        file.set_permissions(Permissions::from_mode(self.found.mode() & mask))?;
        file.sync_all()
    }

    /// Keeps the content as `FILE.bak`, or beside other copies as `FILE.bak.1` and so on.
    fn keep_copy(&self) -> Result<PathBuf, HostFileError> {
        let numbered = (1..=COPIES_MAX).map(|number| format!(".bak.{number}"));
        for suffix in std::iter::once(".bak".to_owned()).chain(numbered) {
            let path = self.beside(&suffix);
            match self.create(&path, &self.text) {
                Ok(()) => return Ok(path),
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                    if Self::read_copy(&path).is_some_and(|kept| kept == self.text) {
                        return Ok(path);
                    }
                }
                Err(why) => {
                    let hint = "nothing is changed without a copy; make its directory writable";
                    return Err(fail(&path, "write the copy", &why, hint));
                }
            }
        }
        let what = format!("there are {COPIES_MAX} copies of {}", self.path.display());
        Err(HostFileError::new(0, what, "remove the oldest ones, FILE.bak.1 and so on"))
    }

    fn read_copy(path: &Path) -> Option<String> {
        let mut text = String::new();
        let file = options().read(true).open(path).ok()?;
        let is_file = file.metadata().ok()?.is_file();
        is_file.then(|| file.take(BYTES_MAX).read_to_string(&mut text).ok()).flatten()?;
        Some(text)
    }
}

fn changed() -> io::Error {
    io::Error::other("another program has changed it meanwhile; run the command again")
}
