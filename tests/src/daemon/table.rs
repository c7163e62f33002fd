//! The process table as evidence: live processes, and the resources of a process.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::wait_until;

/// A text unique among the arguments of all processes; `sleep` accepts it as a duration of more
/// than a day.
#[must_use]
pub fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("98765.{:07}{n:05}", std::process::id())
}

/// Live processes with exactly this text as an argument. A zombie has no arguments.
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

/// Arguments of a process; if its first thread has exited, those of another thread.
fn arguments(process: &Path) -> Option<Vec<u8>> {
    let line = fs::read(process.join("cmdline")).ok()?;
    if !line.is_empty() {
        return Some(line);
    }
    let threads = fs::read_dir(process.join("task")).ok()?.flatten();
    let mut lines = threads.filter_map(|thread| fs::read(thread.path().join("cmdline")).ok());
    lines.find(|line| !line.is_empty())
}

/// STOP-01, checked against the process table: no process with the marker is alive.
///
/// # Panics
///
/// When such a process is alive.
pub fn assert_none_left(marker: &str) {
    let left = carriers(marker);
    assert!(left.is_empty(), "still alive: {left:?}");
}

/// Waits until every process of the tool `family` with this marker runs its program: three shells,
/// and the sleep of each.
///
/// # Panics
///
/// When they do not start.
pub fn wait_for_family(marker: &str) {
    wait_until("all processes of the family run", || {
        let all = carriers(marker);
        let sleeps = all.iter().filter(|(_, line)| line.starts_with("sleep ")).count();
        (all.len(), sleeps) == (6, 3)
    });
}

/// Waits until the control groups of the daemon with this process id are removed.
///
/// # Panics
///
/// When a group stays.
pub fn wait_until_no_group_of(pid: i32) {
    let name = format!("ceased-{pid}-");
    let is_there = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).any(|n| n.to_string_lossy().starts_with(&name))
    };
    // The daemon was started in the group of this process.
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for line in own.lines() {
        let inside = line.rsplit(':').next().unwrap_or_default().trim_start_matches('/');
        for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            let dir = Path::new(mount).join(inside);
            wait_until("the control groups are removed", || !is_there(&dir));
        }
    }
}

/// Resources of a process.
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
    /// Peak of the resident memory.
    pub memory_peak_kib: usize,
}

impl Vitals {
    /// Reads the resources of a live process.
    ///
    /// # Panics
    ///
    /// When the process is not alive.
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

    /// Waits until descriptors, threads and children are back at these numbers.
    pub fn wait_back(self, pid: i32) {
        wait_until("descriptors, threads and children are as before", || {
            let now = Self::of(pid);
            now.descriptors <= self.descriptors
                && now.threads <= self.threads
                && now.children <= self.children
        });
    }
}
