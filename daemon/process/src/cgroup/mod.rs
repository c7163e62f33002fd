//! Containment by control groups: the kernel's list of a job's processes, which unprivileged
//! processes cannot leave.
//!
//! Every job gets a group below one base group of the daemon. Only version 2 is used, wherever it
//! is mounted, below the daemon's own group: at the root in a container or on a small machine, in
//! the unit's group under systemd with `Delegate=yes`. Controllers are enabled only for jobs with
//! bounds (see [`limits`](crate::cgroup::limits)); otherwise the rule against processes in inner
//! groups does not apply, and the daemon stays in its own group.
//!
//! A tool with permission to write to other groups can move itself out, and `su`, `sudo`, podman
//! and systemd-run have their children moved. Those are tracked by descent: see
//! [`families`](crate::cgroup::families).

mod attribution;
mod entries;
pub(crate) mod families;
mod limits;
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
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::bounds::{Bounds, Controller, Reached, Unenforced};
use crate::cgroup::entries::{EntryWatch, EntryWatches};
use crate::cgroup::mounts::own_groups;
use crate::proc::descent::Followed;
use crate::proc::table::{self, KILL, TERMINATE};
use crate::ready::ready;
use crate::sys;

/// Prefix of the names of base groups; the daemon's process id and a nonce follow.
const PREFIX: &str = "ceased-";
/// Time limit of the trial of a group.
const TRIAL_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for ending leftovers of a dead daemon at the start of a new one.
const LEFTOVER_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of scans of a group for newly started processes.
const ROUNDS_MAX: u32 = 8;

/// The base group of one supervisor.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// Its path in `/proc/PID/cgroup`.
    shown: String,
    kill: File,
    entries: Arc<EntryWatches>,
    /// Controllers that the groups of jobs have.
    enabled: BTreeSet<Controller>,
    /// Locked for the lifetime of the daemon: an unlocked base group belongs to a dead daemon.
    _lock: OwnedFd,
}

impl Cgroup {
    /// Creates a base group and tests it: a process is started in a group below it and killed
    /// there.
    ///
    /// Ends and removes the base groups of dead daemons next to it.
    ///
    /// # Errors
    ///
    /// If control groups cannot be used here; the text names the attempts and their errors.
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
            return Err(io::Error::other(
                "no mounted cgroup version 2 hierarchy contains the daemon's group",
            ));
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
        let made = Self::open(&path).and_then(|mut cgroup| {
            cgroup.shown = cgroup.try_out()?;
            Ok(cgroup)
        });
        if made.is_err() {
            let _ = remove(&path);
        }
        made
    }

    fn open(path: &Path) -> io::Result<Self> {
        let lock = open_dir(path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| at(path, &error.into()))?;
        let kill = open_kill(path)?;
        let (enabled, entries) = (BTreeSet::new(), Arc::default());
        let (path, shown) = (path.to_owned(), String::new());
        Ok(Self { path, shown, kill, entries, enabled, _lock: lock })
    }

    /// Tests that a process can be started in a job's group, is listed there, and can be killed
    /// there. Returns the path of the base group that the kernel shows of such a process.
    fn try_out(&self) -> io::Result<String> {
        const TRIAL: &str = "/trial";
        let group = self.group(TRIAL.trim_start_matches('/'))?;
        let tried = group.try_out();
        self.entries.learn(&group.mark.entries);
        remove(&group.path).map_err(|error| at(&group.path, &error))?;
        let shown = tried?;
        let base = shown.strip_suffix(TRIAL).map(str::to_owned);
        base.ok_or_else(|| at(&group.path, &io::Error::other(format!("shown as {shown}"))))
    }

    /// Path of the base group.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes controllers available to jobs; returns those that are not, with the reasons.
    pub(crate) fn enable(&mut self, wanted: &BTreeSet<Controller>) -> Vec<Unenforced> {
        let mut unenforced = Vec::new();
        for controller in wanted.iter().copied() {
            match limits::enable(&self.path, controller) {
                Ok(()) => _ = self.enabled.insert(controller),
                Err(why) => unenforced.push(Unenforced { controller, why }),
            }
        }
        unenforced
    }

    /// Writes the bounds of a job into its group. Those without their controller have no effect.
    pub(crate) fn bound(&self, group: &Group, bounds: &Bounds) -> io::Result<()> {
        limits::bound(&group.path, bounds, |controller| self.enabled.contains(&controller))
    }

    /// Whether a bound of them can be enforced.
    pub(crate) fn enforces(&self, bounds: &Bounds) -> bool {
        !self.enabled.is_disjoint(&bounds.controllers())
    }

    /// Creates a group for a job; `number` must be unique.
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
                mark: Arc::new(Mark {
                    shown: format!("{}/{label}", self.shown),
                    entries: self.entries.watch(&path),
                }),
                path: path.clone(),
            })
        };
        open().inspect_err(|_| drop(fs::remove_dir(&path)))
    }

    /// Sends SIGKILL to all processes in all groups of this supervisor.
    pub(crate) fn kill_all(&self) {
        let _ = (&self.kill).write_all(b"1");
    }

    /// Removes the base group; call it when every job has ended.
    pub(crate) fn remove(&self, within: Duration) -> io::Result<()> {
        end(&self.path, Followed::default(), within)
    }
}

impl Drop for Cgroup {
    /// Removes the group of a daemon that failed to start: the next one would otherwise take it for
    /// leftovers of a dead daemon. A group with processes stays, for the keeper.
    fn drop(&mut self) {
        let _ = remove(&self.path);
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The group of one job. Its `cgroup.kill` is opened at creation, so that a lack of descriptors
/// cannot prevent the kill.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    dir: OwnedFd,
    events: File,
    kill: File,
    mark: Arc<Mark>,
}

/// The mark by which processes of a group are known.
#[derive(Debug)]
pub(crate) struct Mark {
    /// The group's path in `/proc/PID/cgroup`: another group may have its name elsewhere.
    shown: String,
    entries: EntryWatch,
}

impl Mark {
    /// Whether a path of `/proc/PID/cgroup` is of the group, or of one below it.
    fn is_on(&self, shown: &str) -> bool {
        let below = shown.strip_prefix(&self.shown);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    /// Whether a process with this path was started in the group: no process was ever moved there.
    pub(crate) fn proves(&self, shown: &str) -> bool {
        self.is_on(shown) && !self.was_entered()
    }

    /// Whether a process was, or may have been, moved into the group.
    pub(crate) fn was_entered(&self) -> bool {
        self.entries.was_entered()
    }
}

impl Group {
    /// The mark of its processes.
    pub(crate) fn mark(&self) -> &Arc<Mark> {
        &self.mark
    }

    /// Descriptor with a priority event when [`Group::is_populated`] may have changed.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Path of the group.
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

    /// The bounds that its processes have reached so far.
    pub(crate) fn reached(&self, bounds: &Bounds) -> Reached {
        limits::reached(&self.path, bounds)
    }

    /// Moves a process into the group.
    pub(crate) fn take_in(&self, pid: Pid) -> io::Result<()> {
        let path = self.path.join("cgroup.procs");
        let text = pid.as_raw_nonzero().to_string();
        OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut procs| procs.write_all(text.as_bytes()))
            .map_err(|error| at(&path, &error))
    }

    /// CPU time of all processes that are or were in or below the group.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let text = fs::read_to_string(self.path.join("cpu.stat")).ok()?;
        let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(Duration::from_micros(usage.parse().ok()?))
    }

    /// Bytes of memory of the group and the groups below it; `None` without the memory controller.
    pub(crate) fn memory(&self) -> Option<u64> {
        fs::read_to_string(self.path.join("memory.current")).ok()?.trim().parse().ok()
    }

    /// Sends SIGKILL to all processes in and below the group at once. A process whose main thread
    /// has exited does not receive it: see [`Group::kill_each`].
    pub(crate) fn kill(&self) -> io::Result<()> {
        (&self.kill).write_all(b"1")
    }

    /// Sends SIGKILL to each remaining process in and below the group. `cgroup.kill` signals main
    /// threads, and one that has exited does not forward the signal to its process.
    pub(crate) fn kill_each(&self) {
        for pid in self.processes() {
            table::signal_if(pid, KILL, || self.contains(pid));
        }
    }

    /// Sends SIGTERM and SIGCONT to every process not in `signalled`, including new ones, and adds
    /// them to it.
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

    /// Processes in and below the group.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        processes(&self.path)
    }

    fn contains(&self, pid: Pid) -> bool {
        of(pid).is_some_and(|group| self.mark.is_on(&group))
    }

    /// Whether a process with this `/proc/PID/cgroup` is in or below the group.
    pub(crate) fn has(&self, text: &str) -> bool {
        unified(text).is_some_and(|group| self.mark.is_on(group))
    }

    /// Tests the group; returns the path that the kernel shows of a process in it.
    fn try_out(&self) -> io::Result<String> {
        let fail = |what: &str| io::Error::other(format!("{}: {what}", self.path.display()));
        let (pid, pidfd) =
            sys::spawn_idle(self.dir.as_fd()).map_err(|error| at(&self.path, &error))?;
        let until = Instant::now() + TRIAL_WITHIN;
        let mut shown = None;
        let mut result = Err(fail("a process started in it is not listed"));
        while Instant::now() < until && result.is_err() {
            match self.is_populated() {
                Ok(true) => (shown, result) = (of(pid), Ok(())),
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
            result = Err(fail("a process in it survives cgroup.kill"));
        }
        // Also leaves no process behind if the trial failed.
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        while result.is_ok() && self.is_populated()? {
            if Instant::now() > until {
                return Err(fail("it stays populated after its last process exited"));
            }
            sleep(Duration::from_millis(1));
        }
        result.and_then(|()| shown.ok_or_else(|| fail("its path is not shown")))
    }
}

impl AsFd for Group {
    /// The group's directory, for starting processes in it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Processes in and below a group.
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

/// Predicts which controllers a daemon started here would not have, without a change.
pub(crate) fn predict_unenforced(wanted: &BTreeSet<Controller>) -> Vec<Unenforced> {
    let read = |path: &str| fs::read(path).unwrap_or_default();
    let groups = own_groups(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
    let may_write = |group: &PathBuf| {
        rustix::fs::access(group, rustix::fs::Access::WRITE_OK).map_err(io::Error::from)
    };
    let why = |controller: Controller| match groups.first() {
        None => Some("no mounted cgroup version 2 hierarchy contains this process".to_owned()),
        Some(group) => match may_write(group) {
            Ok(()) => limits::available(group, controller).err(),
            Err(error) => Some(format!(
                "groups cannot be created in the control group {}: {error}; a unit of systemd can \
                 with Delegate=yes",
                group.display()
            )),
        },
    };
    let of = |controller| Some(Unenforced { controller, why: why(controller)? });
    wanted.iter().copied().filter_map(of).collect()
}

/// The version 2 group of a process.
pub(crate) fn of(pid: Pid) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).ok()?;
    unified(&text).map(str::to_owned)
}

/// The unified hierarchy's path in the text of `/proc/PID/cgroup`.
pub(crate) fn unified(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Whether a path of `/proc/PID/cgroup` has this name in it.
fn has_name(shown: &str, name: &str) -> bool {
    shown.split('/').any(|part| part == name)
}

/// Ends every process in the tree of groups at `path`, those of `kin`, and all their descendants;
/// removes the tree. Waits at most `within`.
pub(crate) fn end(path: &Path, mut kin: Followed, within: Duration) -> io::Result<()> {
    let until = Instant::now() + within;
    let mut pause = Duration::from_millis(1);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for round in 0_u32.. {
        // Read the descent first: it is lost when the parents die.
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
                let is_there = || of(pid).is_some_and(|group| has_name(&group, &name));
                table::signal_if(pid, KILL, is_there);
            }
        }
        let left = match remove(path) {
            Ok(()) if kin.is_empty() => return Ok(()),
            Ok(()) => io::Error::other("processes that were moved out of the group are alive"),
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

/// Sends SIGKILL to every process of the groups with these names below `path`, of all of them without names;
/// whether processes are left.
pub(crate) fn kill_groups(path: &Path, names: &[String]) -> bool {
    let groups = match names {
        [] => subgroups(path),
        names => names.iter().map(|name| path.join(name)).collect(),
    };
    let mut is_left = false;
    for group in groups {
        let members = processes(&group);
        is_left |= !members.is_empty();
        let _ = open_kill(&group).and_then(|mut kill| kill.write_all(b"1"));
    }
    is_left
}

/// Removes a group and its subgroups; fails while one of them has a live process.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    // Few tools create subgroups, so search for them only if the removal fails.
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

/// Ends the leftovers of a dead daemon in its base group, if `path` is one.
///
/// # Errors
///
/// If a process in it is alive after `within`.
pub fn end_left_behind(path: &Path, within: Duration) -> io::Result<()> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if name.strip_prefix(PREFIX).and_then(owner).is_none() || !path.is_dir() {
        return Ok(());
    }
    tracing::warn!(group = %path.display(), "ending processes left behind by a dead daemon");
    end(path, Followed::default(), within)
}

/// Ends the leftovers of daemons that died together with their keepers.
fn end_leftovers(parent: &Path) {
    for path in subgroups(parent) {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.strip_prefix(PREFIX).and_then(owner).is_some_and(|owner| !is_alive(owner))
            && is_unlocked(&path)
        {
            tracing::warn!(group = %path.display(), "ending processes left behind by a dead daemon");
            if let Err(error) = end(&path, Followed::default(), LEFTOVER_WITHIN) {
                tracing::warn!(%error, "cannot end processes left behind by a dead daemon");
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

/// Whether no live daemon holds a base group. A process id alone is ambiguous: process namespaces
/// have separate numbers.
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
    fn group_name_contains_the_process_id() {
        assert_eq!(owner("12-abc").map(|pid| pid.as_raw_nonzero().get()), Some(12));
        for bad in ["12", "-1-a", "0-a", "x-a", "-a"] {
            assert_eq!(owner(bad), None, "{bad}");
        }
    }
}
