//! State shared by all jobs of a supervisor.

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
use crate::proc::boot_clock::BootClock;
use crate::proc::table::Table;
use crate::supervisor::orphans::Orphans;
use crate::supervisor::report::Report;
use crate::supervisor::spares::SparePool;

/// State shared by all jobs of a supervisor.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) containment: Containment,
    pub(crate) orphans: Orphans,
    pub(crate) inherited: BTreeMap<OsString, OsString>,
    pub(crate) null: File,
    pub(crate) scratch: Vec<u8>,
    pub(crate) report: Box<dyn FnMut(Report) + Send>,
    /// Spare guards or control groups.
    pub(crate) spare: SparePool,
    /// Processes of jobs outside their control groups.
    pub(crate) families: Families,
    /// Unreaped children started by the supervisor.
    pub(crate) own_children: BTreeSet<NonZeroI32>,
    /// Groups of jobs that ended in this turn.
    pub(crate) emptied: Vec<PathBuf>,
    /// Groups of ended jobs that could not be removed yet.
    pub(crate) removals: Vec<PathBuf>,
    /// Relation of instants to start times of processes.
    pub(crate) boot_clock: BootClock,
    /// Process table, read at most once a turn because many jobs may need it at once.
    pub(crate) table: Option<Table>,
}

impl Shared {
    /// Removes the groups of ended jobs and refills the spares. Called after urgent work, since it
    /// takes time.
    pub(crate) fn refill(&mut self) {
        let stays = |group: &PathBuf| cgroup::remove(group).is_err();
        self.removals.extend(mem::take(&mut self.emptied).into_iter().filter(stays));
        self.spare.refill(&self.containment, &mut self.own_children);
    }

    /// Invalidates observations of processes at the start of a turn.
    pub(crate) fn new_turn(&mut self) {
        self.table = None;
        self.boot_clock.note();
        self.families.new_turn();
    }

    /// The process table of this turn.
    pub(crate) fn table(&mut self) -> &Table {
        self.table.get_or_insert_with(Table::read)
    }
}
