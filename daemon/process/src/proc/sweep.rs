//! A sweep: ends every descendant of a child subreaper, from within it or from outside, and proves
//! that none is left.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroI32;

use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, getpid, kill_process, kill_process_group, waitid,
};

use crate::proc::table::{self, KILL, Stat};

/// Looks in one turn. A process that forks and exits all the time gets away from most of them.
const LOOKS_A_TURN: u32 = 16;
/// How many looks in a row have to find nothing new.
const CLEAN_LOOKS: u32 = 2;

/// What a look at the children of a subreaper found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Every child was dead before the look.
    Clean,
    /// Some were killed, or have died since.
    Progress,
    /// Some are alive that were killed before, or could not be seen.
    Waiting,
}

/// Ends what is below a subreaper.
///
/// A look without a find is no proof: a process that was born, lost its parent and forked while the
/// list was read is in no list. But an orphan comes to its subreaper in the moment its parent dies,
/// and is put behind the children that are listed already. So if a descendant is alive when a list
/// ends, there is a child in that list that was alive then. Hence nothing is left once each child
/// that a list shows was dead before the list was read.
#[derive(Debug)]
pub(crate) struct Sweep {
    root: Pid,
    /// Children that are dead and that we cannot reap, with the moments they started.
    dead: BTreeMap<NonZeroI32, u64>,
    clean_looks: u32,
    signalled: BTreeSet<NonZeroI32>,
}

impl Sweep {
    /// A sweep below `root`: this process, or a guard that cannot do it.
    pub(crate) const fn new(root: Pid) -> Self {
        Self { root, dead: BTreeMap::new(), clean_looks: 0, signalled: BTreeSet::new() }
    }

    /// How many processes were killed.
    pub(crate) fn signalled(&self) -> u32 {
        u32::try_from(self.signalled.len()).unwrap_or(u32::MAX)
    }

    /// Kills what is left, but for the children in `spared` and what is below them. True once it is
    /// proven that nothing is left.
    pub(crate) fn turn(&mut self, spared: &BTreeSet<NonZeroI32>) -> bool {
        for _ in 0..LOOKS_A_TURN {
            match self.look(spared) {
                Look::Clean => {
                    self.clean_looks += 1;
                    if self.clean_looks >= CLEAN_LOOKS {
                        return true;
                    }
                }
                Look::Progress => self.clean_looks = 0,
                // All have been told and need a moment to die, if they can.
                Look::Waiting => {
                    self.clean_looks = 0;
                    break;
                }
            }
        }
        false
    }

    fn look(&mut self, spared: &BTreeSet<NonZeroI32>) -> Look {
        let Ok(mut children) = table::children(self.root) else { return Look::Waiting };
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
            (true, _) => Look::Clean,
            (false, true) => Look::Progress,
            (false, false) => Look::Waiting,
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
            // Hits a chain of forks in one blow. The number is not another group's: a child that
            // was not reaped keeps it.
            let _ = kill_process_group(group, Signal::KILL);
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

    /// Kills a child that is listed and of which nothing can be seen: it was reaped since, or `/proc`
    /// hides what may not be traced (`hidepid=invisible`).
    fn kill_unseen(&self, child: Pid) {
        if self.root == getpid() && !self.reap(child) {
            // The number is its own until we reap it.
            let _ = kill_process(child, Signal::KILL);
        }
    }

    /// Reaps a child of this process; false when it is another's, or is traced by a live process.
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
    fn a_dead_child_counts_as_new_once() {
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
        assert_ne!(sweep.look(&spared), Look::Clean, "a live child");
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
