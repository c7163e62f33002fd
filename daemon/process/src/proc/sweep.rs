//! Sweep: ends every descendant of a child subreaper, from within it or from outside, and proves
//! that none is left.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroI32;

use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpid, kill_process, kill_process_group, waitid,
};

use crate::proc::table::{self, KILL, Stat};

/// Scans per turn. A process that forks and exits in a loop escapes most of them.
const LOOKS_A_TURN: u32 = 16;
/// Consecutive scans that must find nothing new.
const CLEAN_LOOKS: u32 = 2;

/// Result of a scan of a subreaper's children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanResult {
    /// Every child was dead before the scan.
    Clean,
    /// Some were killed, or have died since.
    Progress,
    /// Some are alive that were killed before, or could not be seen.
    Waiting,
}

/// Ends the descendants of a subreaper.
///
/// An empty scan is no proof: a process that was started, lost its parent and forked while the list
/// was read is in no list. But an orphan is reparented to its subreaper the moment its parent dies,
/// and is appended behind the children already listed. So if a descendant is alive when a list
/// ends, that list contains a child that was alive then. Hence no descendant is left once each
/// listed child was dead before the list was read.
#[derive(Debug)]
pub(crate) struct Sweep {
    root: Pid,
    /// Dead children that cannot be reaped here, with their start times.
    dead: BTreeMap<NonZeroI32, u64>,
    clean_looks: u32,
    signalled: BTreeSet<NonZeroI32>,
}

impl Sweep {
    /// A sweep below `root`: this process, or a guard that does not respond.
    pub(crate) const fn new(root: Pid) -> Self {
        Self { root, dead: BTreeMap::new(), clean_looks: 0, signalled: BTreeSet::new() }
    }

    /// Number of killed processes.
    pub(crate) fn signalled(&self) -> u32 {
        u32::try_from(self.signalled.len()).unwrap_or(u32::MAX)
    }

    /// Kills the remaining descendants, except the children in `spared` and their descendants. True
    /// once it is proven that none is left.
    pub(crate) fn turn(&mut self, spared: &BTreeSet<NonZeroI32>) -> bool {
        for _ in 0..LOOKS_A_TURN {
            match self.scan(spared) {
                ScanResult::Clean => {
                    self.clean_looks += 1;
                    if self.clean_looks >= CLEAN_LOOKS {
                        return true;
                    }
                }
                ScanResult::Progress => self.clean_looks = 0,
                // All were signalled and need a moment to die.
                ScanResult::Waiting => {
                    self.clean_looks = 0;
                    break;
                }
            }
        }
        false
    }

    fn scan(&mut self, spared: &BTreeSet<NonZeroI32>) -> ScanResult {
        let Ok(mut children) = table::children(self.root) else { return ScanResult::Waiting };
        children.retain(|pid| !spared.contains(&pid.as_raw_nonzero()));
        let mut dead = BTreeMap::new();
        let (mut is_clean, mut has_progress) = (true, false);
        let signalled = self.signalled.len();
        for pid in children {
            let raw = pid.as_raw_nonzero();
            match Stat::of(pid) {
                Some(stat) if stat.is_dead => {
                    let is_known = self.dead.get(&raw) == Some(&stat.start);
                    is_clean &= is_known;
                    has_progress |= !is_known;
                    if !self.reap(pid) {
                        dead.insert(raw, stat.start);
                    }
                }
                Some(stat) => {
                    is_clean = false;
                    self.kill(pid, stat);
                }
                None => {
                    is_clean = false;
                    self.kill_unseen(pid);
                }
            }
        }
        self.dead = dead;
        match (is_clean, has_progress || self.signalled.len() > signalled) {
            (true, _) => ScanResult::Clean,
            (false, true) => ScanResult::Progress,
            (false, false) => ScanResult::Waiting,
        }
    }

    /// Kills a child, its process group and its descendants.
    fn kill(&mut self, child: Pid, stat: Stat) {
        let root = self.root.as_raw_nonzero().get();
        let own_group = getpgid(Some(self.root)).map(|group| group.as_raw_nonzero().get());
        if stat.group > 1
            && own_group != Ok(stat.group)
            && let Some(group) = Pid::from_raw(stat.group)
        {
            // Kills a chain of forks at once. The group id cannot be reused: the child is not
            // reaped yet.
            if kill_process_group(group, Signal::KILL).is_ok() {
                self.signalled.insert(child.as_raw_nonzero());
            }
        }
        let is_same =
            |pid, start| Stat::of(pid).is_some_and(|now: Stat| !now.is_dead && now.start == start);
        if table::signal_if(child, KILL, || {
            is_same(child, stat.start) && Stat::of(child).is_some_and(|now| now.parent == root)
        }) {
            self.signalled.insert(child.as_raw_nonzero());
        }
        let signalled = &mut self.signalled;
        table::walk(child, |pid, parent| {
            let parent = parent.as_raw_nonzero().get();
            let belongs = || {
                Stat::of(pid)
                    .is_some_and(|now| !now.is_dead && (now.parent == parent || now.parent == root))
            };
            if table::signal_if(pid, KILL, belongs) {
                signalled.insert(pid.as_raw_nonzero());
            }
        });
    }

    /// Kills a listed child that cannot be inspected: it was reaped since, or `/proc` hides
    /// untraceable processes (`hidepid=invisible`).
    fn kill_unseen(&self, child: Pid) {
        if self.root == getpid() && !self.reap(child) {
            // The process id is valid until it is reaped here.
            let _ = kill_process(child, Signal::KILL);
        }
    }

    /// Reaps a child of this process; false if it is another's, or is traced by a live process.
    fn reap(&self, pid: Pid) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        self.root == getpid()
            && !matches!(retry_on_intr(|| waitid(WaitId::Pid(pid), options)), Ok(None))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn dead_child_counts_as_new_once() {
        let root = Command::new("sh")
            .args(["-c", "setsid sleep 1000 & echo; kill -STOP $$"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut root = root.unwrap();
        let pid = Pid::from_child(&root);
        let mut line = [0];
        std::io::Read::read_exact(root.stdout.as_mut().unwrap(), &mut line).unwrap();
        // A shell that is not stopped yet would reap its child.
        let stopped = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::UNTRACED);
        assert!(stopped.unwrap().unwrap().1.stopped());
        let spared = BTreeSet::new();
        let mut sweep = Sweep::new(pid);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        assert_ne!(sweep.scan(&spared), ScanResult::Clean, "a live child");
        while !sweep.turn(&spared) {
            assert!(std::time::Instant::now() < until, "{sweep:?}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!((sweep.dead.len(), sweep.signalled()), (1, 1), "its parent does not reap it");
        root.kill().unwrap();
        root.wait().unwrap();
    }

    #[test]
    fn spared_children_live() {
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let me = getpid();
        let mut spared: BTreeSet<_> =
            table::children(me).unwrap().into_iter().map(Pid::as_raw_nonzero).collect();
        spared.insert(Pid::from_child(&child).as_raw_nonzero());
        Sweep::new(me).turn(&spared);
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
