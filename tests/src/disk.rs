//! A disk that is easily filled: a file system in memory of a few megabytes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

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
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is about to end may still be in there.
        let _ = Command::new("umount").arg("-l").arg(self.path()).stderr(Stdio::null()).status();
        let _ = fs::remove_dir(self.path());
    }
}
