//! Entries: processes that are moved into the groups of jobs.
//!
//! A process comes into the group of its job by being started there. While that is the only way,
//! the group proves the job. Root, the daemon's user and the user of a delegated group can also
//! move processes there: by a write to `cgroup.procs`, which inotify reports, or by a group of
//! their own below it. From then on the group proves nothing.
//!
//! A sandbox may deny the call that starts a process in a group. Then each command moves itself
//! there before it is anything else, which is one entry.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::inotify::{add_watch, init, remove_watch};

/// Bytes of events read at once.
const EVENT_BYTES: usize = 4096;

/// The watched groups of one supervisor.
#[derive(Debug, Default)]
pub(crate) struct EntryWatches {
    state: Mutex<State>,
    /// Number of entries with which a command starts.
    own: AtomicU32,
}

/// Number of entries of a group whose entries are not all known.
const UNKNOWN: u32 = u32::MAX;

#[derive(Debug, Default)]
struct State {
    /// `None` until the first group is watched.
    inotify: Option<OwnedFd>,
    /// Number of entries of a group, by the watches of the group.
    entries: BTreeMap<i32, Arc<AtomicU32>>,
}

/// The watch of one group.
#[derive(Debug)]
pub(crate) struct EntryWatch {
    watches: Arc<EntryWatches>,
    numbers: Vec<i32>,
    entries: Arc<AtomicU32>,
}

impl EntryWatches {
    /// Learns from a group in which one process was started how processes come into their groups.
    pub(crate) fn learn(&self, trial: &EntryWatch) {
        let entries = trial.count();
        self.own.store(if entries == UNKNOWN { 0 } else { entries }, Ordering::Relaxed);
    }

    /// Watches an empty group. A group that cannot be watched counts as entered.
    pub(crate) fn watch(self: &Arc<Self>, group: &Path) -> EntryWatch {
        let entries = Arc::new(AtomicU32::new(0));
        let numbers = match self.add(group, &entries) {
            Ok(numbers) => numbers,
            Err(error) => {
                let group = group.display();
                tracing::debug!(%group, %error, "cannot watch for processes moved into a group");
                entries.store(UNKNOWN, Ordering::Relaxed);
                Vec::new()
            }
        };
        EntryWatch { watches: Arc::clone(self), numbers, entries }
    }

    fn add(&self, group: &Path, entries: &Arc<AtomicU32>) -> io::Result<Vec<i32>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let inotify = match state.inotify.take() {
            Some(inotify) => inotify,
            None => init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
        };
        let inotify = &*state.inotify.insert(inotify);
        let procs = add_watch(inotify, group.join("cgroup.procs"), WatchFlags::MODIFY)?;
        let below = add_watch(inotify, group, WatchFlags::CREATE | WatchFlags::MOVED_TO);
        let below = below.inspect_err(|_| _ = remove_watch(inotify, procs))?;
        let numbers = vec![procs, below];
        state.entries.extend(numbers.iter().map(|number| (*number, Arc::clone(entries))));
        Ok(numbers)
    }
}

impl State {
    /// Notes the entries that the kernel has reported.
    fn take_events(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = Reader::new(inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.entries.values().for_each(|count| count.store(UNKNOWN, Ordering::Relaxed));
            }
            let Some(count) = self.entries.get(&event.wd()) else { continue };
            if flags.contains(ReadFlags::MODIFY) {
                let more = count.load(Ordering::Relaxed).saturating_add(1);
                count.store(more, Ordering::Relaxed);
            } else if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                count.store(UNKNOWN, Ordering::Relaxed);
            }
        }
    }
}

impl EntryWatch {
    /// Whether a process was, or may have been, moved into the group after its command.
    pub(crate) fn was_entered(&self) -> bool {
        let own = self.watches.own.load(Ordering::Relaxed);
        self.entries.load(Ordering::Relaxed) > own || self.count() > own
    }

    fn count(&self) -> u32 {
        let state = &self.watches.state;
        state.lock().unwrap_or_else(PoisonError::into_inner).take_events();
        self.entries.load(Ordering::Relaxed)
    }
}

impl Drop for EntryWatch {
    fn drop(&mut self) {
        let mut state = self.watches.state.lock().unwrap_or_else(PoisonError::into_inner);
        for number in &self.numbers {
            state.entries.remove(number);
            if let Some(inotify) = &state.inotify {
                // The kernel has removed the watch already if the group is gone.
                let _ = remove_watch(inotify, *number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    /// SEC-06: a group is watched by itself, and one that cannot be watched proves nothing.
    #[test]
    fn entry_is_noticed_in_its_group_alone() {
        let dir = tempfile::tempdir().unwrap();
        let watches = Arc::new(EntryWatches::default());
        let group = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("cgroup.procs"), "").unwrap();
            path
        };
        let (one, two, three) = (group("one"), group("two"), group("three"));
        let [of_one, of_two, of_three] = [&one, &two, &three].map(|path| watches.watch(path));
        assert!(!of_one.was_entered() && !of_two.was_entered());
        fs::read(one.join("cgroup.procs")).unwrap();
        assert!(!of_one.was_entered(), "reading moves no process");
        fs::write(one.join("cgroup.procs"), "1").unwrap();
        assert!(of_one.was_entered() && !of_two.was_entered());
        fs::create_dir(two.join("below")).unwrap();
        assert!(of_two.was_entered(), "a group below it can be entered unnoticed");
        drop(of_one);
        assert!(!of_three.was_entered());
        assert!(watches.watch(&dir.path().join("none")).was_entered());
    }

    /// SEC-06: where commands can come into their groups by an entry alone, a second one counts.
    #[test]
    fn second_entry_is_noticed_where_commands_enter_their_groups() {
        let dir = tempfile::tempdir().unwrap();
        let procs = dir.path().join("cgroup.procs");
        fs::write(&procs, "").unwrap();
        let watches = Arc::new(EntryWatches::default());
        let trial = watches.watch(dir.path());
        fs::OpenOptions::new().write(true).open(&procs).unwrap().write_all(b"1").unwrap();
        assert!(trial.was_entered());
        watches.learn(&trial);
        drop(trial);
        let group = watches.watch(dir.path());
        for is_foreign in [false, true] {
            fs::OpenOptions::new().write(true).open(&procs).unwrap().write_all(b"1").unwrap();
            assert_eq!(group.was_entered(), is_foreign);
        }
    }
}
