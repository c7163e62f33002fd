//! What a task's promises wait for: the store (DUR-01).

use super::Engine;
use crate::durable::{LoadId, Seq, TaskOutcome, TaskRecord, Unstored};

impl Engine {
    pub(super) fn on_restored(&mut self, _record: TaskRecord) {
        self.counters.late_reports += 1;
    }

    pub(super) fn on_durable(&mut self, _upto: Seq) {
        self.counters.late_reports += 1;
    }

    pub(super) fn on_unstored(&mut self, _seq: Seq, _why: Unstored) {
        self.counters.late_reports += 1;
    }

    pub(super) fn on_loaded(&mut self, _load: LoadId, _outcome: Option<TaskOutcome>) {
        self.counters.late_reports += 1;
    }
}
