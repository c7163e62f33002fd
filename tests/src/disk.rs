//! A disk that is quickly filled: a small file system in memory.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Name of the file that takes the space.
const FILLER: &str = "filler";

/// A small file system. Unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// Mounts a file system of this size; `None` with a printed line if this process may not mount.
    ///
    /// # Panics
    ///
    /// When no directory can be created.
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
        eprintln!("SKIPPED: mounting a small disk requires root");
        None
    }

    /// Mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Uses up all free space.
    ///
    /// # Panics
    ///
    /// When not even an empty file can be created.
    pub fn fill(&self) {
        let mut options = File::options();
        let file = options.create(true).append(true).open(self.path().join(FILLER));
        let mut file = file.expect("an empty file needs no room");
        for bytes in [65_536, 4_096, 512] {
            while file.write_all(&vec![1; bytes]).is_ok() {}
        }
    }

    /// Frees the space that [`SmallDisk::fill`] has used.
    pub fn free(&self) {
        // The file may be missing.
        let _ = fs::remove_file(self.path().join(FILLER));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, because an ending process may still use the file system.
        let _ = Command::new("umount").arg("-l").arg(self.path()).stderr(Stdio::null()).status();
        let _ = fs::remove_dir(self.path());
    }
}
