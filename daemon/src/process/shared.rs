//! What all jobs of a supervisor share.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::mem;
use std::num::NonZeroI32;
use std::path::PathBuf;

use mio::Registry;

use super::Report;
use super::cgroup;
use super::containment::Containment;
use super::families::Families;
use super::spares::SparePool;
use super::supervisor::Orphans;
use super::tree::Table;

/// What all jobs of a supervisor share.
pub(super) struct Shared {
    pub(super) registry: Registry,
    pub(super) containment: Containment,
    pub(super) orphans: Orphans,
    pub(super) inherited: BTreeMap<OsString, OsString>,
    pub(super) null: File,
    pub(super) scratch: Vec<u8>,
    pub(super) report: Box<dyn FnMut(Report) + Send>,
    /// The next guard, or the next group.
    pub(super) spare: SparePool,
    /// What jobs have beside what their control groups show.
    pub(super) families: Families,
    /// Every child that the supervisor started itself and has not reaped.
    pub(super) own_children: BTreeSet<NonZeroI32>,
    /// Groups of jobs that ended in this turn.
    pub(super) emptied: Vec<PathBuf>,
    /// Groups of ended jobs that the kernel would not remove yet.
    pub(super) removals: Vec<PathBuf>,
    /// Read at most once in a turn: where it is needed, many jobs tend to need it.
    pub(super) table: Option<Table>,
}

impl Shared {
    /// Tidies up behind jobs that have ended, and has a spare made of what was taken. After what is
    /// urgent: it takes a moment.
    pub(super) fn refill(&mut self) {
        let stays = |group: &PathBuf| cgroup::remove(group).is_err();
        self.removals.extend(mem::take(&mut self.emptied).into_iter().filter(stays));
        self.spare.refill(&self.containment, &mut self.own_children);
    }

    /// Time has passed: what was seen of processes may not hold any more.
    pub(super) fn new_turn(&mut self) {
        self.table = None;
        self.families.new_turn();
    }

    /// The process table as it is in this turn.
    pub(super) fn table(&mut self) -> &Table {
        self.table.get_or_insert_with(Table::read)
    }
}
