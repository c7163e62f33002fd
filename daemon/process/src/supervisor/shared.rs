//! What all jobs of a supervisor share.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::mem;
use std::num::NonZeroI32;
use std::path::PathBuf;

use mio::Registry;

use crate::cgroup;
use crate::cgroup::families::Families;
use crate::containment::Containment;
use crate::proc::table::Table;
use crate::supervisor::orphans::Orphans;
use crate::supervisor::report::Report;
use crate::supervisor::spares::SparePool;

/// What all jobs of a supervisor share.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) containment: Containment,
    pub(crate) orphans: Orphans,
    pub(crate) inherited: BTreeMap<OsString, OsString>,
    pub(crate) null: File,
    pub(crate) scratch: Vec<u8>,
    pub(crate) report: Box<dyn FnMut(Report) + Send>,
    /// The next guard, or the next group.
    pub(crate) spare: SparePool,
    /// What jobs have beside what their control groups show.
    pub(crate) families: Families,
    /// Every child that the supervisor started itself and has not reaped.
    pub(crate) own_children: BTreeSet<NonZeroI32>,
    /// Groups of jobs that ended in this turn.
    pub(crate) emptied: Vec<PathBuf>,
    /// Groups of ended jobs that the kernel would not remove yet.
    pub(crate) removals: Vec<PathBuf>,
    /// Read at most once in a turn: where it is needed, many jobs tend to need it.
    pub(crate) table: Option<Table>,
}

impl Shared {
    /// Tidies up behind jobs that have ended, and has a spare made of what was taken. After what is
    /// urgent: it takes a moment.
    pub(crate) fn refill(&mut self) {
        let stays = |group: &PathBuf| cgroup::remove(group).is_err();
        self.removals.extend(mem::take(&mut self.emptied).into_iter().filter(stays));
        self.spare.refill(&self.containment, &mut self.own_children);
    }

    /// Time has passed: what was seen of processes may not hold any more.
    pub(crate) fn new_turn(&mut self) {
        self.table = None;
        self.families.new_turn();
    }

    /// The process table as it is in this turn.
    pub(crate) fn table(&mut self) -> &Table {
        self.table.get_or_insert_with(Table::read)
    }
}
