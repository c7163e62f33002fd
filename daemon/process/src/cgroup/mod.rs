//! Control groups: the kernel's own list of a job's processes, which none of them can leave.
//!
//! Every job gets a group of its own below one base group of the daemon's. Only version 2 is used,
//! wherever it is mounted, below the daemon's own group: at the top in a container or on a small
//! machine, in the unit's group under systemd with `Delegate=yes`. No controller is enabled, so the
//! rule against processes in inner groups does not apply, and the daemon can stay where it is: it
//! need not move itself to a group of its own, out of the sight of who looks for it in the unit's.
//!
//! A tool with the privilege to write to other groups can move itself out, and `su`, `sudo`, podman
//! and systemd-run have their children moved. Those are followed by descent: see
//! [`families`](crate::cgroup::families).

pub(crate) mod families;
mod mounts;
pub(crate) mod roll;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::num::NonZeroI32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::cgroup::mounts::own_groups;
use crate::proc::descent::Followed;
use crate::proc::table::{self, KILL, TERMINATE};
use crate::ready::ready;
use crate::sys;

/// What the names of base groups begin with; the daemon's process id and a nonce follow.
const PREFIX: &str = "ceased-";
/// How long trying a group out may take.
const TRIAL_WITHIN: Duration = Duration::from_secs(5);
/// How long ending what a dead daemon left behind may hold up the start of a new one.
const LEFTOVER_WITHIN: Duration = Duration::from_secs(2);
/// How often a group is looked through for processes that were born meanwhile.
const ROUNDS_MAX: u32 = 8;

/// The base group of one supervisor.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    name: String,
    kill: File,
    /// Locked for life: a base group whose lock is free is a dead daemon's.
    _lock: OwnedFd,
}

impl Cgroup {
    /// Makes a base group and tries it out: a process is born in a group below it and killed there.
    ///
    /// Base groups of dead daemons next to it are ended and removed.
    ///
    /// # Errors
    ///
    /// When control groups cannot be used here; the text says what was tried and what happened.
    pub fn create() -> io::Result<Self> {
        let mounts =
            fs::read("/proc/self/mountinfo").map_err(|e| at("/proc/self/mountinfo", &e))?;
        let own = fs::read("/proc/self/cgroup").map_err(|e| at("/proc/self/cgroup", &e))?;
        let mut reasons = String::new();
        for parent in own_groups(&mounts, &own) {
            match Self::create_in(&parent) {
                Ok(cgroup) => return Ok(cgroup),
                Err(error) => reasons = format!("{reasons}; {error}"),
            }
        }
        if reasons.is_empty() {
            return Err(io::Error::other("no cgroup version 2 is mounted that has our own group"));
        }
        Err(io::Error::other(reasons.trim_start_matches("; ")))
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        end_leftovers(parent);
        let nonce = nonce()?;
        let nonce = nonce.get(..12).unwrap_or(&nonce);
        let name = format!("{PREFIX}{}-{nonce}", std::process::id());
        let path = parent.join(&name);
        fs::create_dir(&path).map_err(|error| at(&path, &error))?;
        let made = Self::open(&path, name).and_then(|cgroup| {
            cgroup.try_out()?;
            Ok(cgroup)
        });
        if made.is_err() {
            let _ = remove(&path);
        }
        made
    }

    fn open(path: &Path, name: String) -> io::Result<Self> {
        let lock = open_dir(path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| at(path, &error.into()))?;
        let kill = open_kill(path)?;
        Ok(Self { path: path.to_owned(), name, kill, _lock: lock })
    }

    /// Proves that a process can be put into a job's group, is seen there, and dies there.
    fn try_out(&self) -> io::Result<()> {
        let group = self.group("trial")?;
        let tried = group.try_out();
        let removed = remove(&group.path).map_err(|error| at(&group.path, &error));
        tried.and(removed)
    }

    /// Where the base group is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a group for a job; `number` is one that no other was made with.
    pub(crate) fn job(&self, number: u64) -> io::Result<Group> {
        self.group(&format!("g{number}"))
    }

    fn group(&self, label: &str) -> io::Result<Group> {
        let path = self.path.join(label);
        fs::create_dir(&path).map_err(|error| at(&path, &error))?;
        let open = || -> io::Result<Group> {
            Ok(Group {
                dir: open_dir(&path)?,
                events: File::open(path.join("cgroup.events"))?,
                kill: open_kill(&path)?,
                mark: format!("/{}/{label}", self.name),
                path: path.clone(),
            })
        };
        open().inspect_err(|_| drop(fs::remove_dir(&path)))
    }

    /// SIGKILL to everything in every group of this supervisor.
    pub(crate) fn kill_all(&self) {
        let _ = (&self.kill).write_all(b"1");
    }

    /// Removes the base group; for when every job has ended.
    pub(crate) fn remove(&self, within: Duration) -> io::Result<()> {
        end(&self.path, Followed::default(), within)
    }
}

impl Drop for Cgroup {
    /// For a daemon that has not come as far as running anything: nobody else would remove the
    /// group, and the next one would take it for what a dead daemon left behind. A group that has
    /// processes stays, for the keeper.
    fn drop(&mut self) {
        let _ = remove(&self.path);
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The group of one job. The file that kills it is open from the start, so that no lack of
/// descriptors can prevent that.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    dir: OwnedFd,
    events: File,
    kill: File,
    /// How the group's place ends in `/proc/<pid>/cgroup`.
    mark: String,
}

impl Group {
    /// How the group's place ends in `/proc/<pid>/cgroup`.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// The descriptor that has an urgent event when [`Group::is_populated`] may have changed.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Where the group is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a live process is in the group or below it.
    pub(crate) fn is_populated(&self) -> io::Result<bool> {
        let mut text = [0; 256];
        let n = self.events.read_at(&mut text, 0)?;
        Ok(!text
            .get(..n)
            .is_some_and(|text| text.split(|b| *b == b'\n').any(|l| l == b"populated 0")))
    }

    /// SIGKILL to everything in the group and below it, at once. A process whose first thread has
    /// exited does not take it: see [`Group::kill_each`].
    pub(crate) fn kill(&self) -> io::Result<()> {
        (&self.kill).write_all(b"1")
    }

    /// SIGKILL to each process that is still in the group or below it. The kernel sends the signal
    /// of a group to first threads, and one that has exited passes it on to no other.
    pub(crate) fn kill_each(&self) {
        for pid in self.processes() {
            table::signal_if(pid, KILL, || self.contains(pid));
        }
    }

    /// SIGTERM and SIGCONT to every process that is not in `signalled` yet, those born meanwhile
    /// included; they are added to it.
    pub(crate) fn terminate(&self, signalled: &mut BTreeSet<NonZeroI32>) {
        for _ in 0..ROUNDS_MAX {
            let before = signalled.len();
            for pid in self.processes() {
                let raw = pid.as_raw_nonzero();
                if !signalled.contains(&raw)
                    && table::signal_if(pid, TERMINATE, || self.contains(pid))
                {
                    signalled.insert(raw);
                }
            }
            if signalled.len() == before {
                break;
            }
        }
    }

    /// The processes in the group and below it.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        processes(&self.path)
    }

    fn contains(&self, pid: Pid) -> bool {
        of(pid).is_some_and(|group| is_in(&group, &self.mark))
    }

    /// Whether a process with this `/proc/PID/cgroup` is in the group or below it.
    pub(crate) fn has(&self, text: &str) -> bool {
        unified(text).is_some_and(|group| is_in(group, &self.mark))
    }

    fn try_out(&self) -> io::Result<()> {
        let fail = |what: &str| io::Error::other(format!("{}: {what}", self.path.display()));
        let (_, pidfd) =
            sys::spawn_idle(self.dir.as_fd()).map_err(|error| at(&self.path, &error))?;
        let until = Instant::now() + TRIAL_WITHIN;
        let mut result = Err(fail("a process in it is not listed"));
        while Instant::now() < until && result.is_err() {
            match self.is_populated() {
                Ok(true) => result = Ok(()),
                Ok(false) => sleep(Duration::from_millis(1)),
                Err(error) => {
                    result = Err(at(&self.path, &error));
                    break;
                }
            }
        }
        if result.is_ok() {
            result = self.kill().map_err(|error| at(self.path.join("cgroup.kill"), &error));
        }
        if result.is_ok() && !ready(pidfd.as_fd(), TRIAL_WITHIN)? {
            result = Err(fail("a process in it outlives cgroup.kill"));
        }
        // Not for the trial's sake but to leave no process behind when it failed.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        while result.is_ok() && self.is_populated()? {
            if Instant::now() > until {
                return Err(fail("it stays populated after its last process"));
            }
            sleep(Duration::from_millis(1));
        }
        result
    }
}

impl AsFd for Group {
    /// The group's directory, for processes to be born in.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// The processes in a group and below it.
fn processes(path: &Path) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut groups = vec![path.to_owned()];
    while let Some(group) = groups.pop() {
        if let Ok(list) = fs::read_to_string(group.join("cgroup.procs")) {
            let raw = list.lines().filter_map(|line| line.parse().ok());
            found.extend(raw.filter(|raw| *raw > 0).filter_map(Pid::from_raw));
        }
        groups.extend(subgroups(&group));
    }
    found
}

/// The group of version 2 that a process is in.
pub(crate) fn of(pid: Pid) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).ok()?;
    unified(&text).map(str::to_owned)
}

/// The group of the unified hierarchy that the text of `/proc/PID/cgroup` names.
fn unified(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Whether a group is the one with this mark, or below it.
pub(crate) fn is_in(group: &str, mark: &str) -> bool {
    group.split_once(mark).is_some_and(|(_, below)| below.is_empty() || below.starts_with('/'))
}

/// Ends every process in the tree of groups at `path`, those of `kin`, and all that descend from
/// them; removes the tree. Waits at most `within`.
pub(crate) fn end(path: &Path, mut kin: Followed, within: Duration) -> io::Result<()> {
    let until = Instant::now() + within;
    let mut pause = Duration::from_millis(1);
    let mark = format!("/{}", path.file_name().unwrap_or_default().to_string_lossy());
    for round in 0_u32.. {
        // Descent comes first: it is lost with the parents.
        let members = processes(path);
        let names: BTreeSet<NonZeroI32> = members.iter().map(|pid| pid.as_raw_nonzero()).collect();
        members.iter().for_each(|pid| _ = kin.add_children(*pid, &names));
        if round == 0 {
            kin.add_sessions(members.iter().copied());
        }
        kin.refresh();
        let _ = open_kill(path).and_then(|mut kill| kill.write_all(b"1"));
        kin.signal(KILL, |_| true, |_| {});
        if round > 0 {
            for pid in members {
                let is_there = || of(pid).is_some_and(|group| is_in(&group, &mark));
                table::signal_if(pid, KILL, is_there);
            }
        }
        let left = match remove(path) {
            Ok(()) if kin.is_empty() => return Ok(()),
            Ok(()) => io::Error::other("processes that were moved out of it are alive"),
            Err(error) => error,
        };
        if Instant::now() >= until {
            return Err(at(path, &left));
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    Ok(())
}

/// Removes a group and the groups below it; fails while one of them has a live process.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    // Few tools make groups of their own, so they are looked for only when there are some.
    match fs::remove_dir(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    for group in subgroups(path) {
        remove(&group)?;
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn subgroups(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let dirs = entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.map(|entry| entry.path()).collect()
}

/// A word that no other group has by chance.
fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// Ends what a dead daemon left behind in its base group, if `path` is one.
///
/// # Errors
///
/// When something in it is alive after `within`.
pub fn end_left_behind(path: &Path, within: Duration) -> io::Result<()> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if name.strip_prefix(PREFIX).and_then(owner).is_none() || !path.is_dir() {
        return Ok(());
    }
    tracing::warn!(group = %path.display(), "ending what a dead daemon left behind");
    end(path, Followed::default(), within)
}

/// Ends what daemons left behind that died together with their keepers.
fn end_leftovers(parent: &Path) {
    for path in subgroups(parent) {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.strip_prefix(PREFIX).and_then(owner).is_some_and(|owner| !is_alive(owner))
            && is_unlocked(&path)
        {
            tracing::warn!(group = %path.display(), "ending what a dead daemon left behind");
            if let Err(error) = end(&path, Followed::default(), LEFTOVER_WITHIN) {
                tracing::warn!(%error, "cannot end what a dead daemon left behind");
            }
        }
    }
}

/// The process id in the name of a base group.
fn owner(rest: &str) -> Option<Pid> {
    let (pid, _nonce) = rest.split_once('-')?;
    pid.parse().ok().filter(|raw| *raw > 0).and_then(Pid::from_raw)
}

fn is_alive(pid: Pid) -> bool {
    rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
}

/// Whether no live daemon holds a base group. A process id alone does not tell: another process
/// namespace has other numbers.
fn is_unlocked(path: &Path) -> bool {
    open_dir(path).is_ok_and(|dir| flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|error| at(path, &error.into()))
}

fn open_kill(path: &Path) -> io::Result<File> {
    let path = path.join("cgroup.kill");
    OpenOptions::new().write(true).open(&path).map_err(|error| at(&path, &error))
}

fn at(path: impl AsRef<Path>, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.as_ref().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_owner() {
        assert_eq!(owner("12-abc").map(|pid| pid.as_raw_nonzero().get()), Some(12));
        for bad in ["12", "-1-a", "0-a", "x-a", "-a"] {
            assert_eq!(owner(bad), None, "{bad}");
        }
    }
}
