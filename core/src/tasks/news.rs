//! News of tasks and lists: a change of a task is handed to the table or told to its creator, and to the
//! subscriptions that name the topic.

use alloc::sync::Arc;

use crate::collections::timer_queue::TimerQueue;
use crate::ids::{ConnId, TaskId};
use crate::jobs::Jobs;
use crate::outbox::Outbox;
use crate::settings::Settings;
use crate::tasks::task::{Change, Task, Tasks};
use crate::time::Now;

/// News of tasks and lists, with the leaves that they are told from.
pub(crate) struct TaskNews<'a> {
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) jobs: &'a mut Jobs,
    pub(crate) timers: &'a mut TimerQueue,
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) now: Now,
}

impl TaskNews<'_> {
    /// Moves a task between working and input_required, and says so (TSK-28, TSK-18); whether that
    /// changed anything. A task that is not visible yet stays as it begins (TSK-09).
    pub(crate) fn change_task(&mut self, id: TaskId, change: Change) -> bool {
        if !self.tasks.is_visible(id) {
            return false;
        }
        let Some(before) = self.tasks.get(id).map(|task| task.last_visible()) else { return false };
        let Some(task) = self.tasks.change(id, change, self.now.wall) else { return false };
        let (creator, key) = (task.creator, task.record_key());
        if self.tasks.is_shared() {
            // FLT-02: told once it is in the table.
            let sent = self.tasks.hand_over(self.outbox, (self.jobs, self.timers, self.now), key);
            self.tasks.note_change_sent(id, sent, before);
        } else {
            self.announce(creator, id);
        }
        true
    }

    /// A task has one question more, or one less; the change where it is the first or was the last one.
    pub(crate) fn note_questions_of(&mut self, id: TaskId, change: Option<Change>) {
        if change.is_some_and(|change| self.change_task(id, change)) {
            return;
        }
        let live = |task: &&Task| !task.is_being_created() && !task.status().is_terminal();
        let Some(task) = self.tasks.get(id).filter(live) else { return };
        if self.tasks.is_shared() {
            let (key, before) = (task.record_key(), task.last_visible());
            let sent = self.tasks.hand_over(self.outbox, (self.jobs, self.timers, self.now), key);
            self.tasks.note_change_sent(id, sent, before);
        } else if change.is_some() {
            self.tell_of_task(id);
        }
    }

    /// A task has changed: sends the notifications about it.
    pub(crate) fn announce(&mut self, creator: Option<ConnId>, id: TaskId) {
        if let Some(creator) = creator {
            self.notify_status(creator, id);
        }
        self.tell_of_task(id);
    }

    /// TSK-18
    fn notify_status(&mut self, conn: ConnId, id: TaskId) {
        if !self.settings.tasks.status_notifications {
            return;
        }
        let object = self.tasks.object(self.outbox, self.jobs, id);
        self.outbox.send(conn, |json| {
            json.raw("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tasks/status\",\"params\":");
            json.bytes(&object).raw("}");
        });
        self.outbox.keep_scratch(object);
    }
}
