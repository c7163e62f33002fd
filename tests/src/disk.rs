//! A disk that is easily filled: a file system in memory of a few megabytes.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// What takes the room.
const FILLER: &str = "filler";

/// A small file system of its own. Gone when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// Mounts one of so many bytes; `None`, and a line that says so, where we may not.
    ///
    /// # Panics
    ///
    /// When no directory can be made.
    #[must_use]
    pub fn mount(bytes: u64) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("ceased-disk-").tempdir();
        let disk = Self { dir: dir.expect("a temporary directory") };
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes},mode=0700"), "tmpfs"])
            .arg(disk.path())
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(disk);
        }
        eprintln!("skipped: no small disk can be mounted here (that needs root)");
        None
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Uses up all the room there is.
    ///
    /// # Panics
    ///
    /// When not even an empty file can be made.
    pub fn fill(&self) {
        let mut options = File::options();
        let file = options.create(true).append(true).open(self.path().join(FILLER));
        let mut file = file.expect("an empty file needs no room");
        for bytes in [65_536, 4_096, 512] {
            while file.write_all(&vec![1; bytes]).is_ok() {}
        }
    }

    /// Gives the room back that [`SmallDisk::fill`] used up.
    pub fn free(&self) {
        // It may not have been filled.
        let _ = fs::remove_file(self.path().join(FILLER));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is about to end may still be in there.
        let _ = Command::new("umount").arg("-l").arg(self.path()).stderr(Stdio::null()).status();
        let _ = fs::remove_dir(self.path());
    }
}
