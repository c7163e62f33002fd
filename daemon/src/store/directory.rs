//! The state directory: ours alone, and one daemon's at a time.
//!
//! `lock` is held by the daemon for life, and names it. `processes` is held by the daemon and by
//! every process that ends what a killed daemon leaves behind, so that the next daemon waits until
//! nothing of the last one is left. `guards-…` names these processes, so that the next daemon can end
//! those that do not do it. `tasks` holds the store.

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

/// How long a daemon that has just been killed may seem to live: a process that it was about to
/// start holds its lock until that is started.
pub(super) const HELD_FOR: Duration = Duration::from_secs(1);
/// How long what a dead daemon left behind may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// When a start that waits for that says so.
const SAID_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes of a lock file that are read.
const TEXT_BYTES_MAX: u64 = 4096;

/// A state directory that is this process's, for as long as this lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    held: Mutex<Held>,
}

/// The files that keep other daemons out.
#[derive(Debug)]
struct Held {
    lock: File,
    processes: File,
    /// Control group of the jobs, as noted for the next daemon.
    group: Vec<u8>,
    phase: Phase,
    /// `None` where none could be written: then the next start can only wait for guards.
    roster: Option<Arc<Roster>>,
}

/// What the daemon that holds a state directory is doing, as its lock file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It does not listen yet.
    Starting,
    /// It listens.
    Serving,
    /// It does not listen any more.
    Ending,
}

impl Phase {
    /// Text behind the process id in the lock file.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Starting => ", starting",
            Self::Serving => "",
            Self::Ending => ", ending",
        }
    }
}

/// The daemon that holds a state directory, by the text of its lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its process.
    pub(crate) pid: u32,
    /// What it is doing.
    pub(crate) phase: Phase,
}

impl Holder {
    /// The daemon that holds `dir`; `None` when none does, or it does not say who it is.
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
pub enum StateDirError {
    /// The system does not let us.
    Io {
        /// At what.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It belongs to another user.
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// The user of this process.
        us: u32,
    },
    /// Others can get into it.
    Open {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A daemon uses it.
    Held {
        /// The directory.
        path: PathBuf,
        /// What the daemon says of itself.
        by: String,
    },
    /// Processes of a dead daemon do not go.
    LeftBehind {
        /// The directory.
        path: PathBuf,
        /// Their facts.
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
                "the state directory {} is open to others (mode {mode:04o}); \
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
                write!(f, "processes of the last daemon in {} do not end: {what}", path.display())
            }
        }
    }
}

impl std::error::Error for StateDirError {}

impl StateDir {
    /// Takes the directory, which is made if it is not there, and waits until nothing is left of
    /// the jobs of a daemon that had it before.
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
            tracing::warn!(path = %path.display(), %error, "cannot record the guards of jobs");
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

    /// Checks that the lock is still where the next daemon looks for it.
    ///
    /// # Errors
    /// What is wrong, in words.
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

    /// Makes the directory again if it was removed, and takes the lock again where it is not the
    /// one that is held.
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

    /// Notes what this daemon is doing, for those who find the directory held.
    pub(crate) fn note_phase(&self, phase: Phase) {
        let mut held = self.held();
        held.phase = phase;
        // The text is for people and for `connect --spawn`; the lock is as good without it.
        let _ = name_holder(&held.lock, phase);
    }

    /// The directory of the store, made if it is not there.
    ///
    /// # Errors
    /// [`StateDirError`].
    pub fn store(&self) -> Result<PathBuf, StateDirError> {
        let path = self.path.join("tasks");
        make(&path)?;
        Ok(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the processes have to hold that end what we would leave behind.
    pub(crate) fn lease(&self) -> io::Result<OwnedFd> {
        self.held().processes.as_fd().try_clone_to_owned()
    }

    /// Where guards are recorded.
    pub(crate) fn roster(&self) -> Option<Arc<Roster>> {
        self.held().roster.clone()
    }

    /// Notes the control group of our jobs for the next daemon.
    pub(crate) fn note_group(&self, group: &Path) -> io::Result<()> {
        let mut held = self.held();
        held.group = group.as_os_str().as_bytes().to_vec();
        replace(&held.processes, &held.group)
    }
}

/// Keeps every other daemon out of a directory that is there, for as long as the file is open.
pub(super) fn hold(path: &Path, within: Duration, phase: Phase) -> Result<File, StateDirError> {
    let lock_path = path.join("lock");
    let at = |error| StateDirError::Io { path: lock_path.clone(), error };
    loop {
        let mut lock = open(&lock_path).map_err(at)?;
        if !lock_within(&lock, within).map_err(at)? {
            let by = text(&mut lock).map_err(at)?;
            let by = String::from_utf8_lossy(&by).trim().to_owned();
            let by = if by.is_empty() { "it does not say who it is".into() } else { by };
            return Err(StateDirError::Held { path: path.to_owned(), by });
        }
        // A lock on a file that was removed meanwhile keeps nobody out.
        if look_at(&lock, &lock_path) == Lookup::Same {
            name_holder(&lock, phase).map_err(at)?;
            return Ok(lock);
        }
    }
}

/// Writes into the lock which process has it.
fn name_holder(lock: &File, phase: Phase) -> io::Result<()> {
    let text = format!("process {}{}\n", std::process::id(), phase.suffix());
    replace(lock, text.as_bytes())
}

/// Where a path leads to, compared with an open file.
fn look_at(file: &File, path: &Path) -> Lookup {
    FileId::of(file).map_or(Lookup::Same, |id| id.look_at(path))
}

/// Makes a directory for us alone, if it is not there; checks that it is ours alone.
fn make(path: &Path) -> Result<(), StateDirError> {
    let at = |error| StateDirError::Io { path: path.to_owned(), error };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at)?;
    let found = fs::metadata(path).map_err(at)?;
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

/// False when somebody else has it.
fn try_lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// False when somebody else has it all that time.
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

/// Waits until nothing is left of a dead daemon's jobs.
fn wait_for_leftovers(path: &Path, processes: &mut File) -> Result<(), StateDirError> {
    let left = |what: String| StateDirError::LeftBehind { path: path.to_owned(), what };
    let at = |error| StateDirError::Io { path: path.join("processes"), error };
    if !lock_within(processes, SAID_AFTER).map_err(at)? {
        tracing::warn!("waiting for the processes of the last daemon to end");
        if !lock_within(processes, GONE_WITHIN).map_err(at)? {
            return Err(left(format!("they were waited for for {GONE_WITHIN:?}")));
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
    fn it_is_made_for_us_alone_and_taken_once() {
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
    fn one_that_is_open_to_others_is_refused_by_name() {
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
    fn another_user_is_refused_by_number() {
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
    fn whoever_holds_the_lease_is_waited_for() {
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
