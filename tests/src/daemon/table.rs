//! The process table as a witness: who is alive, and what a process holds.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::wait_until;

/// A text no other process has as an argument; `sleep` takes it for a time of more than a day.
#[must_use]
pub fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("98765.{:07}{n:05}", std::process::id())
}

/// The live processes one of whose arguments is exactly this text. A zombie has no arguments.
///
/// # Panics
///
/// When there is no `/proc`.
#[must_use]
pub fn carriers(text: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Some(line) = arguments(&entry.path()) else { continue };
        if line.split(|byte| *byte == 0).any(|argument| argument == text.as_bytes()) {
            found.push((pid, OsStr::from_bytes(&line).to_string_lossy().replace('\0', " ")));
        }
    }
    found
}

/// The arguments of a process: a first thread that has exited has none, but the others have.
fn arguments(process: &Path) -> Option<Vec<u8>> {
    let line = fs::read(process.join("cmdline")).ok()?;
    if !line.is_empty() {
        return Some(line);
    }
    let threads = fs::read_dir(process.join("task")).ok()?.flatten();
    let mut lines = threads.filter_map(|thread| fs::read(thread.path().join("cmdline")).ok());
    lines.find(|line| !line.is_empty())
}

/// STOP-01, as the process table sees it: nobody who carries the marker is alive.
///
/// # Panics
///
/// When somebody is.
pub fn assert_none_left(marker: &str) {
    let left = carriers(marker);
    assert!(left.is_empty(), "still alive: {left:?}");
}

/// Waits until all of the tool `family` that was given this marker are there, and are what they are
/// to be: three shells, and the sleep of each.
///
/// # Panics
///
/// When they do not come.
pub fn wait_for_family(marker: &str) {
    wait_until("the whole family is there", || {
        let all = carriers(marker);
        let sleeps = all.iter().filter(|(_, line)| line.starts_with("sleep ")).count();
        (all.len(), sleeps) == (6, 3)
    });
}

/// Waits until no control group is left that a daemon of this process id has made.
///
/// # Panics
///
/// When one stays.
pub fn wait_until_no_group_of(pid: i32) {
    let name = format!("ceased-{pid}-");
    let is_there = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).any(|n| n.to_string_lossy().starts_with(&name))
    };
    // Where this process is, the daemon was, too.
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for line in own.lines() {
        let inside = line.rsplit(':').next().unwrap_or_default().trim_start_matches('/');
        for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let dir = Path::new(mount).join(inside);
            wait_until("its control groups are gone", || !is_there(&dir));
        }
    }
}

/// What a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vitals {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Children, zombies included.
    pub children: usize,
    /// Resident memory in KiB.
    pub memory_kib: usize,
    /// The most it ever was.
    pub memory_peak_kib: usize,
}

impl Vitals {
    /// Of a process that is alive.
    ///
    /// # Panics
    ///
    /// When it is not.
    #[must_use]
    pub fn of(pid: i32) -> Self {
        let proc = Path::new("/proc").join(pid.to_string());
        let status = fs::read_to_string(proc.join("status")).expect("a live process");
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        let entries = |name: &str| fs::read_dir(proc.join(name)).map_or(0, Iterator::count);
        let children = fs::read_dir(proc.join("task")).into_iter().flatten().flatten();
        Self {
            descriptors: entries("fd"),
            threads: number("Threads:"),
            children: children
                .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default())
                .map(|list| list.split_whitespace().count())
                .sum(),
            memory_kib: number("VmRSS:"),
            memory_peak_kib: number("VmHWM:"),
        }
    }

    /// Waits until a process holds no more than it did: descriptors, threads and children.
    pub fn wait_back(self, pid: i32) {
        wait_until("it holds what it held before", || {
            let now = Self::of(pid);
            now.descriptors <= self.descriptors
                && now.threads <= self.threads
                && now.children <= self.children
        });
    }
}
