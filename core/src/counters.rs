//! Counters: numbers of events in an engine, for status and metrics.

/// Everything counted since the engine was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames read.
    pub frames: u64,
    /// Requests read.
    pub requests: u64,
    /// Requests answered with a result.
    pub answers: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Frames that were no message.
    pub invalid: u64,
    /// Lines over the limit.
    pub overlong: u64,
    /// Responses to requests that were never sent (CAN-10).
    pub unasked_responses: u64,
    /// Responses to requests that are no longer awaited (CAN-10).
    pub late_responses: u64,
    /// Requests cancelled by their requestor (CAN-06).
    pub cancelled: u64,
    /// Cancellations that named nothing cancellable (CAN-09).
    pub cancels_ignored: u64,
    /// Cancellations that were malformed (CAN-14).
    pub cancels_malformed: u64,
    /// Jobs handed to the host.
    pub jobs_started: u64,
    /// Jobs that ended before they were handed to the host.
    pub jobs_never_started: u64,
    /// Handlers that did not look at their flag.
    pub jobs_abandoned: u64,
    /// Reports of jobs that had ended, were abandoned, or had lost their purpose (TSK-26).
    pub late_reports: u64,
    /// Progress that did not grow, or had no receiver (TSK-33).
    pub progress_dropped: u64,
    /// Tasks created.
    pub tasks_created: u64,
    /// Tasks deleted at their ttl.
    pub tasks_expired: u64,
    /// Requests refused by a limit.
    pub refused: u64,
    /// Task ids the generator gave twice (TSK-08).
    pub id_collisions: u64,
    /// Writes the store did not carry out (DUR-01).
    pub unstored: u64,
    /// Requests that named a task their sender has not (TSK-41).
    pub unknown_tasks: u64,
    /// Requests for a task before its `pollInterval` had passed (TSK-41).
    pub fast_polls: u64,
    /// Warnings raised about identities (TSK-41).
    pub suspicions: u64,
}

impl Counters {
    /// Every counter with its name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, u64); 24] {
        [
            ("frames", self.frames),
            ("requests", self.requests),
            ("answers", self.answers),
            ("errors", self.errors),
            ("invalid", self.invalid),
            ("overlong", self.overlong),
            ("unaskedResponses", self.unasked_responses),
            ("lateResponses", self.late_responses),
            ("cancelled", self.cancelled),
            ("cancelsIgnored", self.cancels_ignored),
            ("cancelsMalformed", self.cancels_malformed),
            ("jobsStarted", self.jobs_started),
            ("jobsNeverStarted", self.jobs_never_started),
            ("jobsAbandoned", self.jobs_abandoned),
            ("lateReports", self.late_reports),
            ("progressDropped", self.progress_dropped),
            ("tasksCreated", self.tasks_created),
            ("tasksExpired", self.tasks_expired),
            ("refused", self.refused),
            ("idCollisions", self.id_collisions),
            ("unstored", self.unstored),
            ("unknownTasks", self.unknown_tasks),
            ("fastPolls", self.fast_polls),
            ("suspicions", self.suspicions),
        ]
    }
}
