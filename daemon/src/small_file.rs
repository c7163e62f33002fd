//! Small files of the state directory that are replaced whole, and the bound on their number.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

/// Age from which a file that was never renamed has no writer any more: a write takes much less.
const UNFINISHED_FOR: Duration = Duration::from_secs(60);

/// Replaces a file durably: a reader finds the old content or the new one, also after a crash. The
/// directory of the file is created if the one above it is there; only this user may read either.
///
/// # Errors
/// Those of the file system; the old content stays then.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    remove_unfinished(path, dir);
    let dir = File::open(dir)?;
    // A name of its own: two processes may replace the file at once.
    let new = path.with_extension(format!("{}.new", uuid::Uuid::new_v4().simple()));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    if written.is_err() {
        // The reason is the error of the caller.
        let _ = fs::remove_file(&new);
    }
    written?;
    dir.sync_all()
}

/// Removes files that earlier writers of this path have left, ended between their creation and the renaming. A
/// file that stays is tried again at the next write.
fn remove_unfinished(path: &Path, dir: &Path) {
    let Some(name) = path.file_stem().and_then(OsStr::to_str) else { return };
    let is_unfinished = |found: &OsStr| {
        let middle = found.to_str().and_then(|found| found.strip_prefix(name));
        let middle = middle.and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".new"));
        middle.is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_old = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_unfinished(&entry.file_name()) && is_old().is_some_and(|age| age > UNFINISHED_FOR) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes the files of a directory that were written longest ago, until it has at most `max`.
///
/// # Errors
/// Those of the file system.
pub(crate) fn remove_oldest(dir: &Path, max: usize) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    let surplus = files.len().saturating_sub(max);
    files.into_iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A failed write leaves the old content and no other file; nothing is created above the directory.
    #[test]
    fn content_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kept/a.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let taken = dir.path().join("kept/taken");
        fs::create_dir(&taken).unwrap();
        replace(&taken, b"three").unwrap_err();
        assert_eq!(fs::read_dir(dir.path().join("kept")).unwrap().count(), 2);
        replace(&dir.path().join("none/kept/a.json"), b"x").unwrap_err();
        assert!(!dir.path().join("none").exists());
    }

    /// A writer that was killed leaves a file, which goes with the next write once it is old; another file stays.
    #[test]
    fn file_of_a_killed_writer_goes_with_the_next_write() {
        let dir = tempfile::tempdir().unwrap();
        let [old, young] = [1, 2].map(|id| format!("a.{id:032x}.new"));
        let other = format!("b.{:032x}.new", 1);
        for name in [&*old, &young, &other, "a.notes.new", "a.new"] {
            fs::write(dir.path().join(name), "").unwrap();
            let file = File::options().write(true).open(dir.path().join(name)).unwrap();
            let age = UNFINISHED_FOR * if *name == young { 0 } else { 2 };
            file.set_modified(std::time::SystemTime::now() - age).unwrap();
        }
        replace(&dir.path().join("a.json"), b"x").unwrap();
        let left = fs::read_dir(dir.path()).unwrap();
        let mut left: Vec<_> =
            left.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(
            left,
            ["a.00000000000000000000000000000002.new", "a.json", "a.new", "a.notes.new", &*other]
        );
    }

    #[test]
    fn oldest_files_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for (age, name) in [(30_u64, "b"), (20, "a"), (10, "c")] {
            replace(&dir.path().join(name), b"").unwrap();
            let file = File::options().write(true).open(dir.path().join(name)).unwrap();
            let at = std::time::SystemTime::now() - Duration::from_secs(age);
            file.set_modified(at).unwrap();
        }
        remove_oldest(dir.path(), 2).unwrap();
        assert!(!dir.path().join("b").exists() && dir.path().join("a").exists());
    }
}
