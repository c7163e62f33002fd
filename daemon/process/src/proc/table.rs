//! The process table: parents and children, and signals that cannot hit a reused process id.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal,
};
use rustix::thread::gettid;

/// The relevant fields of `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Whether no thread of it runs. State `Z` alone is not sufficient: it is the state of the main
    /// thread, which may exit by `exit(2)` while other threads run.
    pub(crate) is_dead: bool,
    /// Parent process id; 0 if outside the namespace.
    pub(crate) parent: i32,
    /// Process group.
    pub(crate) group: i32,
    /// Its session.
    pub(crate) session: i32,
    /// Start time in clock ticks since boot. Together with the process id, which may be reused, it
    /// identifies a process.
    pub(crate) start: u64,
    /// CPU time of its threads, in clock ticks.
    pub(crate) cpu: u64,
    /// CPU time of its reaped descendants, in clock ticks.
    pub(crate) reaped_cpu: u64,
    /// Resident memory in pages.
    pub(crate) resident: u64,
}

/// A line of `/proc/<pid>/stat`, without the states of the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    /// The main thread has exited.
    is_zombie: bool,
    /// Number of threads, including exited ones that wait for others or for a tracer.
    threads: u32,
    stat: Stat,
}

impl Stat {
    /// Looks up a process; `None` if it does not exist or cannot be inspected.
    pub(crate) fn of(pid: Pid) -> Option<Self> {
        Self::look(pid).ok().flatten()
    }

    /// Looks up a process; [`Blind`] if it may exist.
    fn look(pid: Pid) -> Result<Option<Self>, Blind> {
        let stat = seen(fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())))?;
        let Some(Line { is_zombie, threads, stat }) = stat.and_then(|stat| Line::parse(&stat))
        else {
            return Ok(None);
        };
        // Nearly every zombie has only one thread, and needs no second check.
        let is_dead = is_zombie && (threads <= 1 || !has_live_thread(pid)?);
        Ok(Some(Self { is_dead, ..stat }))
    }

    /// Looks up a process that started at `start`; `None` if it is dead or gone.
    pub(crate) fn of_started(pid: Pid, start: u64) -> Result<Option<Self>, Blind> {
        Ok(Self::look(pid)?.filter(|stat| !stat.is_dead && stat.start == start))
    }

    /// Whether a process that started at `start` is gone or dead. False if unknown.
    pub(crate) fn is_gone(pid: Pid, start: u64) -> bool {
        matches!(Self::of_started(pid, start), Ok(None))
    }

    /// Whether a process is stopped, by a signal or by a tracer.
    pub(crate) fn is_held(pid: Pid) -> bool {
        let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        let state = stat.iter().rposition(|byte| *byte == b')').and_then(|end| stat.get(end + 2));
        matches!(state, Some(b'T' | b't'))
    }

    /// Whether it is live and in the session or the process group of a command.
    pub(crate) const fn belongs_to(self, leader: Pid) -> bool {
        let leader = leader.as_raw_nonzero().get();
        !self.is_dead && (self.session == leader || self.group == leader)
    }
}

impl Line {
    fn parse(stat: &[u8]) -> Option<Self> {
        // The name, in parentheses, may contain any character, including parentheses.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let is_zombie = matches!(fields.next()?, "Z" | "X" | "x");
        let mut number = || fields.next()?.parse().ok();
        let (parent, group, session) = (number()?, number()?, number()?);
        // Fields 7 to 13 lie between the session and the CPU times.
        let mut times = fields.by_ref().skip(7).map(|field| field.parse::<u64>().ok());
        let mut time = || times.next().flatten();
        let cpu = time()?.saturating_add(time()?);
        let reaped_cpu = time()?.saturating_add(time()?);
        // Fields 18 and 19 are priorities, field 21 is obsolete.
        let threads = fields.nth(2)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        // Field 23 is the size of the address space.
        let resident = fields.nth(1).and_then(|pages| pages.parse().ok()).unwrap_or_default();
        let is_dead = is_zombie;
        let stat = Stat { is_dead, parent, group, session, start, cpu, reaped_cpu, resident };
        Some(Self { is_zombie, threads, stat })
    }
}

/// Whether a thread of a process runs, sleeps or is stopped.
fn has_live_thread(pid: Pid) -> Result<bool, Blind> {
    let tasks = seen(fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())))?;
    for task in tasks.into_iter().flatten().flatten() {
        let stat = seen(fs::read(task.path().join("stat")))?;
        if stat.and_then(|stat| Line::parse(&stat)).is_some_and(|line| !line.is_zombie) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A lookup failed for lack of descriptors or memory: unseen processes may exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blind;

/// The result; `None` if it does not exist or is hidden.
fn seen<T>(looked: io::Result<T>) -> Result<Option<T>, Blind> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(Blind),
            _ => Ok(None),
        },
    }
}

/// All process ids in ascending order.
fn all() -> Result<Vec<Pid>, Blind> {
    let entries = seen(fs::read_dir("/proc"))?.into_iter().flatten();
    Ok(entries.filter_map(|entry| pid(entry.ok()?.file_name().to_str()?)).collect())
}

fn pid(text: &str) -> Option<Pid> {
    text.parse().ok().filter(|raw| *raw > 0).and_then(Pid::from_raw)
}

/// The children of a process, including zombies. Races may hide some: repeat the call.
pub(crate) fn children(parent: Pid) -> Result<Vec<Pid>, Blind> {
    let mut children = Vec::new();
    let mut is_listed = false;
    let tasks = seen(fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())))?;
    for task in tasks.into_iter().flatten().flatten() {
        if let Some(list) = seen(fs::read_to_string(task.path().join("children")))? {
            is_listed = true;
            children.extend(list.split_ascii_whitespace().filter_map(pid));
        }
    }
    if !is_listed {
        // The kernel lacks these lists, or the parent is gone: then this finds no process.
        let raw = parent.as_raw_nonzero().get();
        for pid in all()? {
            if Stat::look(pid)?.is_some_and(|stat| stat.parent == raw) {
                children.push(pid);
            }
        }
    }
    Ok(children)
}

/// Orphans reparented to this process, and children of the calling thread. An orphan is listed
/// under the first live thread of a process, which is the main one.
pub(crate) fn adopted() -> Result<Vec<Pid>, Blind> {
    let mut found = Vec::new();
    for thread in BTreeSet::from([getpid(), gettid()].map(Pid::as_raw_nonzero)) {
        match seen(fs::read_to_string(format!("/proc/self/task/{thread}/children")))? {
            Some(list) => found.extend(list.split_ascii_whitespace().filter_map(pid)),
            // The kernel lacks these lists.
            None => return children(getpid()),
        }
    }
    Ok(found)
}

/// Calls `visit` with every descendant of a process and its parent, parents before children. False
/// if some could not be inspected.
pub(crate) fn walk(root: Pid, mut visit: impl FnMut(Pid, Pid)) -> bool {
    // A process that moves meanwhile could be visited repeatedly.
    let mut seen = BTreeSet::from([root.as_raw_nonzero()]);
    let mut parents = vec![root];
    let mut is_complete = true;
    while let Some(parent) = parents.pop() {
        let children = children(parent);
        is_complete &= children.is_ok();
        for child in children.unwrap_or_default() {
            if seen.insert(child.as_raw_nonzero()) {
                visit(child, parent);
                parents.push(child);
            }
        }
    }
    is_complete
}

/// A snapshot of the process table.
#[derive(Debug)]
pub(crate) struct Table {
    seen: Vec<(Pid, Stat)>,
    /// Whether processes may be missing.
    is_blind: bool,
}

impl Table {
    /// Reads the table, as far as possible.
    pub(crate) fn read() -> Self {
        let mut table = Self { seen: Vec::new(), is_blind: false };
        match all() {
            Ok(pids) => pids.into_iter().for_each(|pid| table.add(pid)),
            Err(Blind) => table.is_blind = true,
        }
        table
    }

    fn add(&mut self, pid: Pid) {
        match Stat::look(pid) {
            Ok(stat) => self.seen.extend(stat.map(|stat| (pid, stat))),
            Err(Blind) => self.is_blind = true,
        }
    }

    /// Whether processes may be missing: then no process counts as gone.
    pub(crate) const fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// The live processes in sessions led by these processes.
    pub(crate) fn led_by(&self, leaders: &BTreeSet<i32>) -> impl Iterator<Item = (Pid, Stat)> {
        let led = |stat: &Stat| !stat.is_dead && leaders.contains(&stat.session);
        self.seen.iter().copied().filter(move |(_, stat)| led(stat))
    }

    /// The live processes in the session or the process group of a command.
    pub(crate) fn members(&self, leader: Pid) -> Vec<Pid> {
        let belong = self.seen.iter().filter(|(_, stat)| stat.belongs_to(leader));
        belong.map(|(pid, _)| *pid).collect()
    }
}

/// Signals that ask a process to end: a stopped one needs SIGCONT to handle SIGTERM.
pub(crate) const TERMINATE: &[Signal] = &[Signal::TERM, Signal::CONT];
/// Signal that ends a process.
pub(crate) const KILL: &[Signal] = &[Signal::KILL];

/// Signals a process if `belongs` holds once its identity is pinned by a pidfd; true if it was
/// signalled.
///
/// A process id alone may have been reused since it was read.
pub(crate) fn signal_if(pid: Pid, signals: &[Signal], belongs: impl FnOnce() -> bool) -> bool {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => belongs() && send(signals, |signal| pidfd_send_signal(&fd, signal)),
        // Without a pidfd, accept the short race between check and signal.
        Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSYS | Errno::PERM) => {
            belongs() && send(signals, |signal| kill_process(pid, signal))
        }
        Err(_) => false,
    }
}

/// Sends the signals in order; true if the first was sent. A process that ends and is reaped before
/// the next signal still counts as signalled.
pub(crate) fn send(signals: &[Signal], to_one: impl Fn(Signal) -> rustix::io::Result<()>) -> bool {
    signals.iter().take_while(|signal| to_one(**signal).is_ok()).count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    use std::process::{Command, Stdio};

    #[test]
    fn stat_is_parsed_with_parentheses_in_the_name() {
        let text = b"12 (a) S 1 2 3) Z 45 67 89 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 4711 9 77 1";
        let line = Line::parse(text).unwrap();
        assert!(line.is_zombie);
        assert_eq!(line.threads, 3);
        let (start, cpu, reaped_cpu, resident) = (4711, 11, 15, 77);
        let (parent, group, session) = (45, 67, 89);
        let stat = Stat { is_dead: true, parent, group, session, start, cpu, reaped_cpu, resident };
        assert_eq!(line.stat, stat);
        assert_eq!(Line::parse(b"12 (a) S 1 2"), None);
        assert_eq!(Line::parse(b""), None);
    }

    #[test]
    fn zombie_is_dead_and_its_parent_is_not() {
        let mut child = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), exited).unwrap();
        assert!(Stat::of(pid).unwrap().is_dead);
        assert!(!Stat::of(getpid()).unwrap().is_dead);
        child.wait().unwrap();
        assert_eq!(Stat::of(pid), None);
    }

    #[test]
    fn process_ended_by_the_first_signal_counts_as_signalled() {
        let is_there = std::cell::Cell::new(true);
        let dies = |_| if is_there.replace(false) { Ok(()) } else { Err(Errno::SRCH) };
        assert!(send(TERMINATE, dies));
        assert!(!send(TERMINATE, dies));
    }

    #[test]
    fn child_is_found_and_signalled() {
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        let me = getpid();
        // The kernel may leave out children while others end, as those of other tests do here.
        let mut found = false;
        for _ in 0..1000 {
            walk(me, |descendant, _| found |= descendant == pid);
            if found {
                break;
            }
        }
        assert!(found);
        assert_eq!(Stat::of(pid).unwrap().parent, me.as_raw_nonzero().get());
        assert!(!signal_if(pid, KILL, || false));
        assert!(signal_if(pid, KILL, || true));
        assert!(!child.wait().unwrap().success());
        assert!(!signal_if(pid, KILL, || true));
    }
}
