//! Identity of an open file, and whether a path still leads to it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::io::Errno;

/// Device and inode number of a file. Valid only while the file is open: inode numbers are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

/// The file that a path leads to, compared with a known one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The known file.
    Same,
    /// No file: it was removed or renamed.
    Missing,
    /// Another file of the same name.
    Other,
}

impl FileId {
    /// Identity of an open file.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|found| Self::from_metadata(&found))
    }

    /// Identity of the file that a path leads to.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|found| Self::from_metadata(&found))
    }

    fn from_metadata(found: &fs::Metadata) -> Self {
        Self { device: found.dev(), inode: found.ino() }
    }

    /// Looks up the path. An error other than "not found", such as lack of memory or permission,
    /// does not count as removal.
    pub(super) fn look_at(self, path: &Path) -> Lookup {
        match Self::at(path) {
            Ok(found) if found == self => Lookup::Same,
            Ok(_) => Lookup::Other,
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => Lookup::Missing,
                Some(_) | None => Lookup::Same,
            },
        }
    }
}

impl Lookup {
    /// Log text about the file at `path`; `None` if it is the known one.
    pub(super) fn complaint(self, path: &Path) -> Option<String> {
        match self {
            Self::Same => None,
            Self::Missing => Some(format!("{} was removed or renamed", path.display())),
            Self::Other => Some(format!("{} was replaced by another file", path.display())),
        }
    }
}
