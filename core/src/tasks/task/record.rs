//! The state of one task.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use crate::collections::lazy_box::{IsEmpty, LazyBox};
use crate::collections::slab::SlabPlace;
use crate::collections::slot_map::Record;
use crate::collections::small_set::SmallSet;
use crate::collections::timer_queue::Armed;
use crate::ids::{ConnId, JobId, RequestId, TaskId};
use crate::json::writer::Writer;
use crate::rpc::error::code;
use crate::tasks::durable::{LoadId, RecordKey, RecordedOutcome, Seq, Work};
use crate::tasks::persistence::{DiskInput, DiskState, LastVisible};
use crate::tasks::status::Status;
use crate::time::{Instant, Wall};

/// How a task shows itself.
pub(crate) struct View<'a> {
    pub(crate) status: Status,
    pub(crate) status_message: Option<&'a str>,
    pub(crate) updated: Wall,
}

/// One task: two lines of the cache, of which the first has the fields of a lookup.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Task {
    pub(super) id: TaskId,
    /// Where its owner is.
    pub(super) owner: SlabPlace,
    pub(super) status: Status,
    /// The status under which it is counted.
    pub(super) counted: Status,
    /// Waits for its turn, and says so (TSK-09).
    pub(crate) queued: bool,
    /// Past its ttl and let finish (TSK-35).
    pub(crate) overdue: bool,
    /// Rare data.
    pub(crate) aside: LazyBox<Aside>,
    pub(crate) created: Wall,
    pub(crate) updated: Wall,
    /// See [`Task::ttl`]; nanoseconds.
    pub(super) ttl: u64,
    /// An earlier request for it counts as too early (TSK-41).
    pub(crate) next_poll: Instant,
    /// There exactly when the status is terminal.
    pub(super) end: Option<Box<TaskEnd>>,
    /// Its place in the owner's list; grows, never reused.
    pub(crate) position: u64,
    pub(crate) created_at: Instant,
    /// The name of its tool.
    pub(crate) tool: Arc<str>,
    /// The job behind it, until nothing of that is left.
    pub(crate) job: Option<JobId>,
    /// The session it was created in; told of status changes while it lives (TSK-18).
    pub(crate) creator: Option<ConnId>,
    /// When its timer is due.
    pub(crate) timer: Option<Armed>,
}

/// A million of them may be there.
const _: () = assert!(size_of::<Task>() <= 128);

impl Record for Task {
    type Key = TaskId;

    fn key(&self) -> &TaskId {
        &self.id
    }
}

/// The end of a task: its outcome.
#[derive(Debug)]
pub(super) struct TaskEnd {
    pub(super) message: Option<Box<str>>,
    pub(super) outcome: RecordedOutcome,
}

/// Data that few tasks have, or only for a short time.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    /// Requests that wait for its end (TSK-15), or for a state on disk (DUR-01).
    pub(crate) waiters: SmallSet<(ConnId, RequestId)>,
    /// Subscriptions that are told of every change (MOD-08).
    pub(crate) listeners: SmallSet<(ConnId, RequestId)>,
    disk: DiskState,
    /// The load that will bring its outcome.
    pub(crate) load: Option<LoadId>,
    /// The job that ended while the creation was on its way, and where it came from: that it was
    /// created is to be told yet (TSK-41).
    pub(crate) maker: Option<(JobId, ConnId)>,
    /// Messages of its job for the creator, held while no peer may know of the task.
    pub(crate) said: Vec<Box<[u8]>>,
    /// The last line that its job printed, until it ends.
    pub(crate) line: Option<Box<str>>,
    pub(super) visiting: bool,
    /// A change that the table does not have yet.
    pub(super) changing: Option<Box<Changing>>,
    /// Its open questions, where another engine runs it.
    pub(super) asks: Option<Box<str>>,
    /// How far its work is, as the table has it.
    pub(super) work: Option<Work>,
}

/// A change without an end that the table does not have yet.
#[derive(Debug)]
pub(crate) struct Changing {
    /// The write that has it; `None` while the table is owed it.
    pub(super) seq: Option<Seq>,
    pub(super) before: LastVisible,
}

/// Bytes of messages that are kept for a creator that may not know of the task yet; further
/// ones are lost, as for a peer that does not read.
const SAID_MAX: usize = 16 * 1024;

impl IsEmpty for Aside {
    const EMPTY: &'static Self = &Self {
        waiters: SmallSet::None,
        listeners: SmallSet::None,
        disk: DiskState::Settled,
        load: None,
        maker: None,
        said: Vec::new(),
        line: None,
        visiting: false,
        changing: None,
        asks: None,
        work: None,
    };

    fn is_empty_value(&self) -> bool {
        self.waiters.is_empty()
            && self.listeners.is_empty()
            && matches!(self.disk, DiskState::Settled)
            && self.load.is_none()
            && self.maker.is_none()
            && self.said.is_empty()
            && self.line.is_none()
            && !self.visiting
            && self.changing.is_none()
            && self.asks.is_none()
            && self.work.is_none()
    }
}

impl LazyBox<Aside> {
    /// The table has its change, or a later one.
    pub(super) fn forget_change(&mut self) {
        if let Some(aside) = self.some() {
            aside.changing = None;
        }
        self.shrink();
    }

    /// Forgets the last line of its job.
    pub(crate) fn forget_line(&mut self) {
        if let Some(aside) = self.some() {
            aside.line = None;
        }
        self.shrink();
    }

    /// Forgets a request that waits for it.
    pub(crate) fn forget_waiter(&mut self, waiter: &(ConnId, RequestId)) {
        if let Some(aside) = self.some() {
            aside.waiters.remove(waiter);
        }
        self.shrink();
    }

    /// A subscription is over.
    pub(crate) fn forget_listener(&mut self, listener: &(ConnId, RequestId)) {
        if let Some(aside) = self.some() {
            aside.listeners.remove(listener);
        }
        self.shrink();
    }

    /// The job that had ended before the task came to be, if one had; it is told once.
    pub(crate) fn take_maker(&mut self) -> Option<(JobId, ConnId)> {
        let maker = self.some().and_then(|aside| aside.maker.take());
        self.shrink();
        maker
    }

    /// Keeps a message of its job, as far as there is room, until its creator may know of it.
    pub(crate) fn keep_said(&mut self, message: &[u8]) {
        let kept: usize = self.said.iter().map(|message| message.len()).sum();
        if kept + message.len() <= SAID_MAX {
            self.said.push(message.into());
        }
    }

    /// The messages that were kept.
    pub(crate) fn take_said(&mut self) -> Vec<Box<[u8]>> {
        let said = self.some().map(|aside| mem::take(&mut aside.said));
        self.shrink();
        said.unwrap_or_default()
    }
}

/// Status message of a task that waits for its turn (TSK-09).
pub(super) const QUEUED: &str = "queued";

impl Task {
    /// The ttl as promised (TSK-34).
    pub(crate) const fn ttl(&self) -> Duration {
        Duration::from_nanos(self.ttl)
    }

    /// Whether it was copied from the table that several engines share, while requests are answered with
    /// it: another engine runs it, or it has ended.
    pub(crate) fn is_visiting(&self) -> bool {
        self.aside.visiting
    }

    /// Its id.
    pub(crate) const fn id(&self) -> TaskId {
        self.id
    }

    /// Where it stands.
    pub(crate) const fn status(&self) -> Status {
        self.status
    }

    /// How much of it is on disk.
    pub(crate) fn disk(&self) -> &DiskState {
        &self.aside.disk
    }

    /// Moves on how much of it is on disk.
    pub(super) fn persist(&mut self, input: DiskInput) {
        let disk = self.aside.some().map(|aside| mem::take(&mut aside.disk));
        let disk = disk.unwrap_or_default().after(input);
        if !matches!(disk, DiskState::Settled) {
            self.aside.disk = disk;
        }
        self.aside.shrink();
    }

    /// Its keys in a store.
    pub(crate) const fn record_key(&self) -> RecordKey {
        RecordKey { task: self.id, position: self.position }
    }

    /// Its `statusMessage` (TSK-09, TSK-43).
    pub(crate) fn message(&self) -> Option<&str> {
        match self.status.is_terminal() {
            false if self.queued => Some(QUEUED),
            false => self.aside.line.as_deref(),
            true => self.end.as_ref()?.message.as_deref(),
        }
    }

    /// Whether its creation is not on disk yet: no peer may know of it (DUR-01).
    pub(crate) fn is_being_created(&self) -> bool {
        matches!(self.aside.disk, DiskState::Fresh | DiskState::Creating(..))
    }

    /// Whether all that is to be on disk of it is there.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.aside.disk, DiskState::Settled)
    }

    /// Its outcome.
    pub(crate) fn outcome(&self) -> &RecordedOutcome {
        let end = self.end.as_ref().filter(|_| self.status.is_terminal());
        end.map_or(&RecordedOutcome::Open, |end| &end.outcome)
    }

    /// Replaces its outcome by another form, and returns the one before.
    pub(crate) fn keep(&mut self, outcome: RecordedOutcome) -> RecordedOutcome {
        match &mut self.end {
            Some(end) => mem::replace(&mut end.outcome, outcome),
            None => RecordedOutcome::Open,
        }
    }

    /// How it shows itself: as it is, or as it was while its end is not on disk (DUR-01).
    pub(crate) fn view(&self) -> View<'_> {
        match &self.aside.disk {
            DiskState::Settled | DiskState::Fresh | DiskState::Creating(..) => {
                match &self.aside.changing {
                    Some(changing) => of_before(&changing.before),
                    None => {
                        let (status, updated) = (self.status, self.updated);
                        View { status, status_message: self.message(), updated }
                    }
                }
            }
            DiskState::Ending(_, before) | DiskState::Owed(before) => of_before(before),
        }
    }

    /// How it shows itself now, for the time until its next state is in the store.
    pub(crate) fn last_visible(&self) -> LastVisible {
        let view = self.view();
        LastVisible { status: view.status, queued: self.queued, updated: view.updated }
    }

    /// Whether this write has its change.
    pub(super) fn is_changing(&self, seq: Seq) -> bool {
        self.aside.changing.as_ref().is_some_and(|changing| changing.seq == Some(seq))
    }

    /// Whether the table is owed its change.
    pub(crate) fn owes_change(&self) -> bool {
        self.aside.changing.as_ref().is_some_and(|changing| changing.seq.is_none())
    }

    /// Its open questions, where another engine runs it.
    pub(crate) fn recorded_asks(&self) -> Option<&str> {
        self.aside.asks.as_deref()
    }

    /// How far the work behind it is, where it was cancelled or has failed.
    pub(crate) fn work(&self) -> Option<Work> {
        match self.view().status {
            Status::Working | Status::InputRequired | Status::Completed => return None,
            Status::Failed | Status::Cancelled => {}
        }
        Some(match (self.job, self.aside.work, self.outcome()) {
            (Some(_), ..) => Work::Ending,
            (None, Some(work), _) => work,
            // Cancelled just now.
            (None, None, _) if self.is_visiting() => Work::Ending,
            (None, None, RecordedOutcome::Here(Err(error))) if error.code == code::INTERRUPTED => {
                Work::Lost
            }
            (None, None, _) => Work::Ceased,
        })
    }

    /// The flat task object (TSK-12, TSK-34).
    ///
    /// `place` replaces the message of a task that waits.
    pub(crate) fn write(
        &self,
        id: TaskId,
        place: Option<&str>,
        poll_interval: Duration,
        json: &mut Writer<'_>,
    ) {
        let view = self.view();
        json.raw("{\"taskId\":\"").uuid(id.uuid()).raw("\",\"status\":\"");
        json.raw(view.status.as_str()).raw("\",");
        if let Some(message) = place.or(view.status_message) {
            json.member("statusMessage", message).raw(",");
        }
        self.write_stamps(&view, json);
        json.raw(",\"ttl\":").millis(self.ttl());
        json.raw(",\"pollInterval\":").millis(poll_interval).raw("}");
    }

    /// When it was made, and changed last (TSK-34).
    pub(crate) fn write_stamps(&self, view: &View<'_>, json: &mut Writer<'_>) {
        let created = self.created.stamp();
        // Most tasks are over in the millisecond they were made in.
        let same = view.updated == self.created;
        let updated = if same { created } else { view.updated.stamp() };
        json.stamp("createdAt", &created).raw(",").stamp("lastUpdatedAt", &updated);
    }
}

fn of_before(before: &LastVisible) -> View<'_> {
    View {
        status: before.status,
        status_message: before.queued.then_some(QUEUED),
        updated: before.updated,
    }
}

/// A span as it is kept: no ttl reaches five hundred years.
pub(super) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
