//! The state directory: private to the user, and used by one daemon at a time.
//!
//! `lock` is held by the daemon for its lifetime and names it. `processes` is held by the daemon
//! and by every guard process that cleans up after a killed daemon, so the next daemon waits until
//! the jobs of the last one have ended. `guards-…` lists these guards, so that the next daemon can
//! end those that hang. `tasks` holds the store.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::file_id::{FileId, Lookup};
use ceased_process::daemon_support::{Roster, end_left_behind};

/// Time for which a killed daemon may still appear to hold the lock: a child between fork and exec
/// inherits it.
pub(super) const HELD_FOR: Duration = Duration::from_secs(1);
/// Time limit for the processes of a dead daemon to end.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// Time after which a waiting startup logs that.
const SAID_AFTER: Duration = Duration::from_secs(1);
/// Polling interval.
const PAUSE: Duration = Duration::from_millis(5);
/// Limit of the bytes read from a lock file.
const TEXT_BYTES_MAX: u64 = 4096;

/// A state directory locked by this process; unlocked on drop.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    held: Mutex<Held>,
}

/// The lock files.
#[derive(Debug)]
struct Held {
    lock: File,
    processes: File,
    /// Control group of the jobs, recorded for the next daemon.
    group: Vec<u8>,
    phase: Phase,
    /// `None` if the roster could not be created: the next start can then only wait for the guards.
    roster: Option<Arc<Roster>>,
}

/// Phase of the daemon that holds a state directory, according to its lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not listening yet.
    Starting,
    /// Listening.
    Serving,
    /// No longer listening.
    Ending,
}

impl Phase {
    /// Suffix of the process id in the lock file.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Starting => ", starting",
            Self::Serving => "",
            Self::Ending => ", ending",
        }
    }
}

/// The daemon that holds a state directory, parsed from its lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Process id.
    pub(crate) pid: u32,
    /// Phase.
    pub(crate) phase: Phase,
}

impl Holder {
    /// The daemon that holds `dir`; `None` if there is none or its lock file is malformed.
    pub(crate) fn of(dir: &Path) -> Option<Self> {
        let mut lock = OpenOptions::new().read(true).open(dir.join("lock")).ok()?;
        if try_lock(&lock).ok()? {
            return None;
        }
        let text = text(&mut lock).ok()?;
        Self::parse(std::str::from_utf8(&text).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = text.trim().strip_prefix("process ")?;
        let phases = [Phase::Starting, Phase::Ending, Phase::Serving];
        phases.into_iter().find_map(|phase| {
            let pid = rest.strip_suffix(phase.suffix())?.parse().ok()?;
            Some(Self { pid, phase })
        })
    }
}

/// Why a state directory cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateDirError {
    /// A system call failed.
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The directory belongs to another user.
    Foreign {
        /// The directory.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
        /// User id of this process.
        us: u32,
    },
    /// Other users have access.
    Open {
        /// The directory.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// Another daemon uses it.
    Held {
        /// The directory.
        path: PathBuf,
        /// Text of the lock file.
        by: String,
    },
    /// Processes of a dead daemon do not end.
    LeftBehind {
        /// The directory.
        path: PathBuf,
        /// Description of the processes.
        what: String,
    },
}

impl fmt::Display for StateDirError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(
                f,
                "cannot use the state directory: {}: {error}; \
                 `state_dir` in [daemon] says where it is",
                path.display()
            ),
            Self::Foreign { path, owner, us } => write!(
                f,
                "the state directory {} belongs to uid {owner} and this is uid {us}; \
                 set `state_dir` in [daemon] to a directory of your own",
                path.display()
            ),
            Self::Open { path, mode } => write!(
                f,
                "the state directory {} is accessible to other users (mode {mode:04o}); \
                 it holds results of tools: chmod 700 {}",
                path.display(),
                path.display()
            ),
            Self::Held { path, by } => write!(
                f,
                "the state directory {} is used by another daemon ({by}); \
                 stop that one, or set `state_dir` in [daemon] to another directory",
                path.display()
            ),
            Self::LeftBehind { path, what } => {
                write!(
                    f,
                    "processes of the previous daemon in {} do not end: {what}",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for StateDirError {}

impl StateDir {
    /// Locks the directory, creating it if it does not exist, and waits until all jobs of a
    /// previous daemon have ended.
    ///
    /// # Errors
    /// [`StateDirError`].
    pub fn take(path: &Path) -> Result<Self, StateDirError> {
        make(path)?;
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| StateDirError::Io { path, error }
        };
        let processes_path = path.join("processes");
        let lock = hold(path, HELD_FOR, Phase::Starting)?;
        let mut processes = open(&processes_path).map_err(at(&processes_path))?;
        let roster = Roster::open(path).inspect_err(|error| {
            tracing::warn!(path = %path.display(), %error, "cannot create the roster of guards");
        });
        wait_for_leftovers(path, &mut processes)?;
        replace(&processes, b"").map_err(at(&processes_path))?;
        let (group, phase) = (Vec::new(), Phase::Starting);
        let roster = roster.ok().map(Arc::new);
        let held = Mutex::new(Held { lock, processes, group, phase, roster });
        Ok(Self { path: path.to_owned(), held })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the lock file is still at its path, where the next daemon looks for it.
    ///
    /// # Errors
    /// A description of the problem.
    #[cfg_attr(
        not(feature = "sqlite"),
        expect(dead_code, reason = "only a store on disk is repaired")
    )]
    pub(crate) fn verify(&self) -> Result<(), String> {
        let held = self.held();
        let files = [(&held.lock, "lock"), (&held.processes, "processes")];
        let complaint = files.into_iter().find_map(|(file, name)| {
            let path = self.path.join(name);
            look_at(file, &path).complaint(&path)
        });
        complaint.map_or(Ok(()), Err)
    }

    /// Creates the directory again after a removal, and takes the lock again if the file at its
    /// path is not the one held.
    ///
    /// # Errors
    /// [`StateDirError`]; with [`StateDirError::Held`] another daemon has taken the directory.
    #[cfg_attr(
        not(feature = "sqlite"),
        expect(dead_code, reason = "only a store on disk is repaired")
    )]
    pub(crate) fn retake(&self) -> Result<(), StateDirError> {
        make(&self.path)?;
        let mut held = self.held();
        if look_at(&held.lock, &self.path.join("lock")) != Lookup::Same {
            held.lock = hold(&self.path, Duration::ZERO, held.phase)?;
        }
        let path = self.path.join("processes");
        if look_at(&held.processes, &path) != Lookup::Same {
            let at = |error| StateDirError::Io { path: path.clone(), error };
            let processes = open(&path).map_err(at)?;
            if !try_lock(&processes).map_err(at)? {
                let what = "they hold its file `processes`".to_owned();
                return Err(StateDirError::LeftBehind { path: self.path.clone(), what });
            }
            replace(&processes, &held.group).map_err(at)?;
            held.processes = processes;
        }
        Ok(())
    }

    /// Records the phase of this daemon in the lock file.
    pub(crate) fn note_phase(&self, phase: Phase) {
        let mut held = self.held();
        held.phase = phase;
        // The text is informative, also for `connect --spawn`; the lock works without it.
        let _ = name_holder(&held.lock, phase);
    }

    /// The directory of the store, created if it does not exist.
    ///
    /// # Errors
    /// [`StateDirError`].
    pub fn store(&self) -> Result<PathBuf, StateDirError> {
        let path = self.path.join("tasks");
        make(&path)?;
        Ok(path)
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Duplicate of the lease, which guard processes hold until they have cleaned up.
    pub(crate) fn lease(&self) -> io::Result<OwnedFd> {
        self.held().processes.as_fd().try_clone_to_owned()
    }

    /// Where guards are recorded.
    pub(crate) fn roster(&self) -> Option<Arc<Roster>> {
        self.held().roster.clone()
    }

    /// Records the control group of the jobs for the next daemon.
    pub(crate) fn note_group(&self, group: &Path) -> io::Result<()> {
        let mut held = self.held();
        held.group = group.as_os_str().as_bytes().to_vec();
        replace(&held.processes, &held.group)
    }
}

/// Locks an existing directory against other daemons while the file is open.
pub(super) fn hold(path: &Path, within: Duration, phase: Phase) -> Result<File, StateDirError> {
    let lock_path = path.join("lock");
    let at = |error| StateDirError::Io { path: lock_path.clone(), error };
    loop {
        let mut lock = open(&lock_path).map_err(at)?;
        if !lock_within(&lock, within).map_err(at)? {
            let by = text(&mut lock).map_err(at)?;
            let by = String::from_utf8_lossy(&by).trim().to_owned();
            let by = if by.is_empty() { "its lock file names no process".into() } else { by };
            return Err(StateDirError::Held { path: path.to_owned(), by });
        }
        // A lock on a removed file excludes no other process.
        if look_at(&lock, &lock_path) == Lookup::Same {
            name_holder(&lock, phase).map_err(at)?;
            return Ok(lock);
        }
    }
}

/// Writes the owner into the lock file.
fn name_holder(lock: &File, phase: Phase) -> io::Result<()> {
    let text = format!("process {}{}\n", std::process::id(), phase.suffix());
    replace(lock, text.as_bytes())
}

/// Compares the file at a path with an open file.
fn look_at(file: &File, path: &Path) -> Lookup {
    FileId::of(file).map_or(Lookup::Same, |id| id.look_at(path))
}

/// Creates a directory of mode 0700 if it does not exist; checks its owner and mode.
fn make(path: &Path) -> Result<(), StateDirError> {
    let at = |error| StateDirError::Io { path: path.to_owned(), error };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at)?;
    check(path)
}

/// Whether a directory that exists can be one of states: its user's, and closed to others.
pub(crate) fn check(path: &Path) -> Result<(), StateDirError> {
    let at = |error| StateDirError::Io { path: path.to_owned(), error };
    let found = fs::metadata(path).map_err(at)?;
    check_found(path, &found)
}

/// Checks a state directory that may be there, as [`StateDir::take`] would, and changes nothing.
///
/// # Errors
/// [`StateDirError::Io`], [`StateDirError::Foreign`] or [`StateDirError::Open`].
pub(crate) fn probe(path: &Path) -> Result<(), StateDirError> {
    let at = |error| StateDirError::Io { path: path.to_owned(), error };
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => Err(at(Errno::NOTDIR.into())),
        Ok(found) => check_found(path, &found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(at(error)),
    }
}

fn check_found(path: &Path, found: &fs::Metadata) -> Result<(), StateDirError> {
    let us = geteuid().as_raw();
    if found.uid() != us {
        return Err(StateDirError::Foreign { path: path.to_owned(), owner: found.uid(), us });
    }
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(StateDirError::Open { path: path.to_owned(), mode });
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Returns false if the lock is held.
fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns false if the lock is held for the whole time.
fn lock_within(file: &File, within: Duration) -> io::Result<bool> {
    let begun = Instant::now();
    while !try_lock(file)? {
        if begun.elapsed() > within {
            return Ok(false);
        }
        sleep(PAUSE);
    }
    Ok(true)
}

fn text(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn replace(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.set_len(0)?;
    if bytes.is_empty() {
        return Ok(());
    }
    file.write_all_at(bytes, 0)?;
    file.flush()
}

/// Waits until the jobs of a dead daemon have ended.
fn wait_for_leftovers(path: &Path, processes: &mut File) -> Result<(), StateDirError> {
    let left = |what: String| StateDirError::LeftBehind { path: path.to_owned(), what };
    let at = |error| StateDirError::Io { path: path.join("processes"), error };
    if !lock_within(processes, SAID_AFTER).map_err(at)? {
        tracing::warn!("waiting for the processes of the previous daemon to end");
        if !lock_within(processes, GONE_WITHIN).map_err(at)? {
            return Err(left(format!("still running after {GONE_WITHIN:?}")));
        }
    }
    let group = PathBuf::from(std::ffi::OsString::from_vec(text(processes).map_err(at)?));
    end_left_behind(&group, GONE_WITHIN).map_err(|error| left(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn directory_is_private_and_locked_once() {
        let home = tempfile::tempdir().expect("tempdir");
        let path = home.path().join("a/b");
        let first = StateDir::take(&path).expect("free");
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&first.store().expect("made")), 0o700);
        assert_eq!(mode(&path.join("lock")), 0o600);
        let second = StateDir::take(&path).expect_err("held").to_string();
        assert!(second.contains(&format!("process {}", std::process::id())), "{second}");
        assert!(second.contains(&path.display().to_string()), "{second}");
        drop(first);
        StateDir::take(&path).expect("free again");
    }

    #[test]
    fn directory_open_to_others_is_rejected() {
        let home = tempfile::tempdir().expect("tempdir");
        let path = home.path().join("open");
        fs::create_dir(&path).expect("made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).expect("changed");
        let why = StateDir::take(&path).expect_err("open").to_string();
        assert!(
            why.contains("0750") && why.contains(&format!("chmod 700 {}", path.display())),
            "{why}"
        );
        let file = home.path().join("file");
        fs::write(&file, "").expect("written");
        let why = StateDir::take(&file).expect_err("a file").to_string();
        assert!(why.contains(&file.display().to_string()), "{why}");
    }

    #[test]
    fn directory_of_another_user_is_rejected() {
        if !geteuid().is_root() {
            eprintln!("skipped: only root can give a directory away");
            return;
        }
        let home = tempfile::tempdir().expect("tempdir");
        std::os::unix::fs::chown(home.path(), Some(12345), None).expect("given away");
        let why = StateDir::take(home.path()).expect_err("foreign").to_string();
        assert!(why.contains("uid 12345"), "{why}");
    }

    #[test]
    fn startup_waits_for_the_lease() {
        let home = tempfile::tempdir().expect("tempdir");
        let path = home.path().join("state");
        let dir = StateDir::take(&path).expect("free");
        let lease = dir.lease().expect("a descriptor");
        drop(dir);
        let held = Duration::from_millis(200);
        let holder = std::thread::spawn(move || {
            sleep(held);
            drop(lease);
        });
        let begun = Instant::now();
        StateDir::take(&path).expect("free once it is given back");
        assert!(begun.elapsed() >= held / 2);
        holder.join().expect("no panic");
    }
}
