//! Tasks as the store and peers get them: records, and objects of JSON.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::collections::timer_queue::TimerQueue;
use crate::ids::TaskId;
use crate::jobs::Jobs;
use crate::json::meta::WORK;
use crate::json::writer::Writer;
use crate::outbox::Outbox;
use crate::server::inputs;
use crate::tasks::durable::{RecordKey, RecordedOutcome, Seq, StoreWrite, TaskRecord};
use crate::tasks::persistence::RecordPart;
use crate::tasks::status::Status;
use crate::tasks::task::{Task, Tasks};
use crate::time::Now;

impl Tasks {
    /// Hands a task to the store as it is now, or as gone; `None` when the store takes nothing at
    /// the moment and is owed it.
    pub(super) fn hand_over(
        &mut self,
        outbox: &mut Outbox,
        of: (&Jobs, &TimerQueue, Now),
        key: RecordKey,
    ) -> Option<Seq> {
        if self.writes().is_shut() {
            self.writes_mut().owe(key);
            return None;
        }
        Some(self.send_to_store(outbox, of, key))
    }

    /// Hands a task to the store as it is now, or as gone.
    pub(super) fn send_to_store(
        &mut self,
        outbox: &mut Outbox,
        of: (&Jobs, &TimerQueue, Now),
        key: RecordKey,
    ) -> Seq {
        let write = match self.get(key.task) {
            Some(task) => {
                let record = self.record(of, (key.task, task), RecordPart::Whole);
                if task.is_visiting() {
                    StoreWrite::Cancel(record)
                } else if task.status().is_terminal() {
                    StoreWrite::Put(record)
                } else {
                    StoreWrite::Change(record)
                }
            }
            None => StoreWrite::Delete(key),
        };
        let seq = self.writes_mut().number(Some(key));
        outbox.store(seq, write);
        seq
    }

    /// The record of a task: as it is, or as it began.
    pub(super) fn record(
        &self,
        (jobs, timers, now): (&Jobs, &TimerQueue, Now),
        (id, task): (TaskId, &Task),
        written: RecordPart,
    ) -> TaskRecord {
        // A task that is being created has no timer yet.
        let due = task.timer.map_or(task.created_at + task.ttl(), |armed| timers.due(armed));
        let (status, updated, status_message, outcome) = match written {
            RecordPart::Begun => (Status::Working, task.created, None, RecordedOutcome::Open),
            RecordPart::Whole => {
                let message = task.message().map(Into::into);
                (task.status(), task.updated, message, task.outcome().clone())
            }
        };
        TaskRecord {
            id,
            owner: self.owner(task).clone(),
            position: task.position,
            tool: task.tool.clone(),
            status,
            status_message,
            created: task.created,
            updated,
            ttl: task.ttl(),
            expires: now.wall + (due - now.at),
            outcome,
            asks: Self::asks_of(jobs, task).filter(|_| written == RecordPart::Whole),
            work: task.work().filter(|_| written == RecordPart::Whole),
        }
    }

    /// The questions of a task for its record: an object by their keys.
    fn asks_of(jobs: &Jobs, task: &Task) -> Option<Box<str>> {
        let job = task.job.and_then(|job| jobs.get(job)).filter(|job| job.needs_input())?;
        let mut text = Vec::new();
        inputs::write_all(&mut Writer::new(&mut text), job);
        alloc::string::String::from_utf8(text).ok().map(Into::into)
    }

    /// The task object as JSON text, in the buffer that is [kept](Outbox::keep_scratch) for it.
    pub(crate) fn object(&self, outbox: &mut Outbox, jobs: &Jobs, id: TaskId) -> Vec<u8> {
        let mut bytes = outbox.take_scratch();
        self.write_object(outbox, jobs, id, &mut bytes);
        bytes
    }

    /// The task object as an answer about that task, with how far its work is.
    pub(super) fn answer(&self, outbox: &mut Outbox, jobs: &Jobs, id: TaskId) -> Vec<u8> {
        let mut bytes = self.object(outbox, jobs, id);
        if let Some(work) = self.get(id).and_then(Task::work) {
            bytes.pop();
            let json = &mut Writer::new(&mut bytes);
            json.raw(",\"_meta\":{").member(WORK, work.as_str()).raw("}}");
        }
        bytes
    }

    /// Writes the task object.
    pub(crate) fn write_object(
        &self,
        outbox: &Outbox,
        jobs: &Jobs,
        id: TaskId,
        bytes: &mut Vec<u8>,
    ) {
        if let Some(task) = self.get(id) {
            let place = jobs.place_of_task(outbox, task);
            let poll = outbox.settings().tasks.poll_interval;
            task.write(id, place.as_deref(), poll, &mut Writer::new(bytes));
        }
    }
}
