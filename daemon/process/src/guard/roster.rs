//! The roster: the guards that run, in a file that outlives this process, so that the next start can
//! end what a guard that is stopped, or was killed together with its daemon, did not end.
//!
//! The file has a line of fixed length for each guard, after a line that names the boot. A line is
//! written in one piece and never flushed to the disk: it has to outlive the process, not the
//! machine. The file is locked for as long as its daemon lives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::num::NonZeroI32;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::{Pid, Signal, geteuid};

use crate::proc::sweep::Sweep;
use crate::proc::table::{self, KILL, Stat, Table};

/// What the names of rosters begin with; the daemon's process id and the moment it started follow.
const PREFIX: &str = "guards-";
/// Bytes of a line, with its end.
const LINE: usize = 80;
/// Guards that are recorded at once: more than jobs can run at once.
const SLOTS_MAX: usize = 8192;
/// Rosters of dead daemons that one start looks at.
const FILES_MAX: usize = 256;
/// How long a guard may take to end its job by itself, once it has been told to go on.
const GRACE: Duration = Duration::from_millis(500);
/// How long ending what one dead daemon left behind may take.
const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(5);

/// The guards of this process, in a file.
#[derive(Debug)]
pub struct Roster {
    path: PathBuf,
    file: File,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    free: BTreeSet<usize>,
    next: usize,
}

/// A guard's line in the roster, which is blank once this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    roster: Arc<Roster>,
    slot: usize,
    guard: Known,
}

/// A process that its number and the moment it started tell from any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    pid: NonZeroI32,
    start: u64,
}

impl Known {
    fn of(pid: Pid) -> Option<Self> {
        Some(Self { pid: pid.as_raw_nonzero(), start: Stat::of(pid)?.start })
    }

    fn pid(self) -> Option<Pid> {
        Pid::from_raw(self.pid.get())
    }

    fn is_gone(self) -> bool {
        self.pid().is_none_or(|pid| Stat::is_gone(pid, self.start))
    }

    fn signal(self, signals: &[Signal]) {
        if let Some(pid) = self.pid() {
            let is_same = || Stat::of(pid).is_some_and(|stat| stat.start == self.start);
            table::signal_if(pid, signals, is_same);
        }
    }
}

impl Roster {
    /// Makes a roster in a directory, which is made if it is not there, once what dead daemons left
    /// behind in others there is ended. A directory that is not ours alone is refused.
    ///
    /// # Errors
    ///
    /// When there can be no file in it.
    pub fn open(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let found = fs::metadata(dir)?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            let why = format!("{} belongs to, or can be changed by, another user", dir.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        end_recorded(dir);
        let me = Known::of(rustix::process::getpid()).map_or(0, |me| me.start);
        let path = dir.join(format!("{PREFIX}{}-{me}", std::process::id()));
        let file = open(&path, true)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.set_len(0)?;
        file.write_all_at(&line(&boot_id()), 0)?;
        Ok(Self { path, file, slots: Mutex::default() })
    }

    /// Records a guard; `None` when there is no room, or the guard is gone.
    pub(crate) fn add(self: &Arc<Self>, pid: Pid) -> Option<Entry> {
        let guard = Known::of(pid)?;
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            match slots.free.pop_first() {
                Some(slot) => slot,
                None if slots.next < SLOTS_MAX => {
                    slots.next += 1;
                    slots.next
                }
                None => return None,
            }
        };
        let entry = Entry { roster: Arc::clone(self), slot, guard };
        entry.write(None);
        Some(entry)
    }

    fn write(&self, slot: usize, text: &str) {
        if let Err(error) = self.file.write_all_at(&line(text), (slot * LINE) as u64) {
            tracing::debug!(path = %self.path.display(), %error, "a guard is not recorded");
        }
    }
}

impl Drop for Roster {
    /// Everything that is recorded has ended, or is nothing the next start could end either.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Entry {
    /// Records the command, too, which leads the session of its job.
    pub(crate) fn lead(&self, leader: Pid) {
        self.write(Known::of(leader));
    }

    /// The roster that it is in.
    pub(crate) const fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    fn write(&self, leader: Option<Known>) {
        let Known { pid, start } = self.guard;
        let mut text = format!("{pid} {start}");
        if let Some(Known { pid, start }) = leader {
            text = format!("{text} {pid} {start}");
        }
        self.roster.write(self.slot, &text);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.roster.write(self.slot, "");
        let mut slots = self.roster.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.free.insert(self.slot);
    }
}

/// A text as a line of the file.
fn line(text: &str) -> [u8; LINE] {
    let mut line = [b' '; LINE];
    for (place, byte) in line.iter_mut().zip(text.bytes().take(LINE - 1)) {
        *place = byte;
    }
    if let Some(last) = line.last_mut() {
        *last = b'\n';
    }
    line
}

/// The name of this boot: what was recorded in another says nothing about processes of this one.
fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn open(path: &Path, is_new: bool) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(is_new).truncate(false).mode(0o600).custom_flags(flags);
    options.open(path)
}

/// Ends what the dead daemons left behind whose rosters are in a directory, and removes these.
fn end_recorded(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let is_roster = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX))
    };
    let paths = entries.flatten().map(|entry| entry.path()).filter(is_roster);
    for path in paths.take(FILES_MAX) {
        let Ok(mut file) = open(&path, false) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            // Its daemon lives.
            continue;
        }
        let mut text = String::new();
        let limit = (SLOTS_MAX + 1) * LINE;
        if (&mut file).take(limit as u64).read_to_string(&mut text).is_ok() {
            end_all(&recorded(&text, &boot_id()));
        }
        let _ = fs::remove_file(&path);
    }
}

/// The guards in a roster, and the commands they guard.
fn recorded(text: &str, boot: &str) -> Vec<(Known, Option<Known>)> {
    let mut lines = text.lines().map(str::trim);
    if lines.next() != Some(boot) || boot.is_empty() {
        return Vec::new();
    }
    let known = |pid: Option<&str>, start: Option<&str>| {
        let pid = pid?.parse::<i32>().ok().filter(|pid| *pid > 1).and_then(NonZeroI32::new)?;
        Some(Known { pid, start: start?.parse().ok()? })
    };
    let entry = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let guard = known(words.next(), words.next())?;
        Some((guard, known(words.next(), words.next())))
    };
    lines.filter_map(entry).collect()
}

/// Ends guards with what they guard, and what is left of jobs whose guards are dead.
fn end_all(recorded: &[(Known, Option<Known>)]) {
    let until = Instant::now() + ENDS_WITHIN;
    let mut left: Vec<(Known, Sweep)> = recorded
        .iter()
        .filter(|(guard, _)| !guard.is_gone())
        .filter_map(|(guard, _)| Some((*guard, Sweep::new(guard.pid()?))))
        .collect();
    // One that was stopped sees now that its daemon is dead.
    left.iter().for_each(|(guard, _)| guard.signal(&[Signal::CONT]));
    let forced = Instant::now() + GRACE;
    let none = BTreeSet::new();
    while !left.is_empty() && Instant::now() < until {
        left.retain_mut(|(guard, sweep)| {
            if Instant::now() >= forced && sweep.turn(&none) {
                guard.signal(KILL);
            }
            !guard.is_gone()
        });
        sleep(PAUSE);
    }
    let commands: BTreeMap<_, _> = recorded
        .iter()
        .filter_map(|(_, leader)| leader.as_ref())
        .map(|leader| (leader.pid, leader.start))
        .collect();
    while !commands.is_empty() && !end_sessions(&commands) && Instant::now() < until {
        sleep(PAUSE);
    }
    if Instant::now() >= until {
        tracing::warn!("processes of a dead daemon's jobs do not end");
    } else if !left.is_empty() || recorded.iter().any(|(guard, _)| !guard.is_gone()) {
        tracing::warn!("a guard of a dead daemon does not end");
    }
}

/// Kills what is left in the sessions of commands; true when nothing is.
///
/// A session keeps its number as long as a process is in it. Where its first process is gone, the
/// number alone does not tell whether the session is still the same: then only processes are killed
/// that have the variable of a job.
fn end_sessions(commands: &BTreeMap<NonZeroI32, u64>) -> bool {
    let mut is_empty = true;
    let table = Table::read();
    for (raw, start) in commands {
        let Some(leader) = Pid::from_raw(raw.get()) else { continue };
        let is_led = Stat::of(leader).is_some_and(|stat| stat.start == *start);
        for pid in table.members(leader) {
            let belongs = || {
                Stat::of(pid).is_some_and(|stat| stat.belongs_to(leader))
                    && (is_led || is_of_a_job(pid))
            };
            is_empty &= !table::signal_if(pid, KILL, belongs);
        }
    }
    is_empty && !table.is_blind()
}

/// Whether a process has the variable in its environment that every command of a job gets.
fn is_of_a_job(pid: Pid) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
    let name = b"CEASED_JOB=";
    environment.is_ok_and(|text| text.split(|byte| *byte == 0).any(|pair| pair.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn known(pid: i32, start: u64) -> Known {
        Known { pid: NonZeroI32::new(pid).unwrap(), start }
    }

    #[test]
    fn torn_and_foreign_lines_are_skipped() {
        let text = "boot \n12 34 56 78\n\n  \n1 5\n-3 4\n12\n12 x\n7 8 9\n7 8 \0\n";
        let both = (known(12, 34), Some(known(56, 78)));
        let alone = (known(7, 8), None);
        assert_eq!(recorded(text, "boot"), [both, alone, alone]);
        assert_eq!(recorded(text, "another"), []);
        assert_eq!(recorded("\n12 34\n", ""), []);
    }

    #[test]
    fn slots_are_used_again() {
        let dir = tempfile::tempdir().unwrap();
        let roster = Arc::new(Roster::open(dir.path()).unwrap());
        let me = rustix::process::getpid();
        let first = roster.add(me).unwrap();
        let second = roster.add(me).unwrap();
        second.lead(me);
        assert_eq!((first.slot, second.slot), (1, 2));
        let text = fs::read_to_string(&roster.path).unwrap();
        let both = recorded(&text, &boot_id());
        assert_eq!(both, [(first.guard, None), (second.guard, Some(second.guard))]);
        drop(first);
        assert_eq!(roster.add(me).unwrap().slot, 1);
        let path = roster.path.clone();
        drop((second, roster));
        assert!(!path.exists(), "nothing is left to be ended");
    }

    #[test]
    fn next_start_ends_a_stopped_guard_with_its_job() {
        let dir = tempfile::tempdir().unwrap();
        // It stands for a guard that is stopped, and ends nothing when it goes on.
        let script = "setsid sleep 1000 & echo; while :; do kill -STOP $$; done";
        let mut guard = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        guard.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        let pid = Pid::from_child(&guard);
        let roster = Arc::new(Roster::open(dir.path()).unwrap());
        let entry = roster.add(pid).unwrap();
        // A daemon that is alive keeps its roster.
        end_recorded(dir.path());
        assert!(roster.path.exists() && guard.try_wait().unwrap().is_none());
        let text = fs::read(&roster.path).unwrap();
        drop((entry, roster));
        let left = dir.path().join(format!("{PREFIX}1-1"));
        fs::write(&left, text).unwrap();
        let reaped = std::thread::spawn(move || guard.wait().unwrap());
        let next = Roster::open(dir.path()).unwrap();
        assert!(!left.exists() && next.path.exists());
        assert!(!reaped.join().unwrap().success());
        let table = Table::read();
        assert_eq!(table.members(pid), []);
    }
}
