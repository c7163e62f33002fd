//! Inline calls: handlers that run on the loop's own thread, to the end and at once.

use ceased_core::action::Action;
use ceased_core::event::{Event, Outcome};
use ceased_core::time::Now;

use crate::handler::{Call, Handler, Job};
use crate::pool::run_guarded;
use crate::record::Recorded;
use crate::reports::{Inbound, Report, Reports};

/// Where inline handlers run.
pub(super) struct Inline {
    /// What a handler is given: the same for each, with what is called now. Nothing cancels a call
    /// that has begun.
    job: Job,
    /// What handlers say, and where that is heard from, empty in between.
    inbound: Inbound,
    heard: Vec<Report>,
}

impl Inline {
    pub(super) fn new() -> Self {
        let (reports, inbound) = Reports::aside();
        Self { job: Job::inline(reports), inbound, heard: Vec::new() }
    }

    /// Runs a handler, and tells the engine what it had to say and what came of it. False when it
    /// did not run, since its call was taken back.
    pub(super) fn run(
        &mut self,
        now: Now,
        handler: &dyn Handler,
        call: Call,
        engine: &mut Recorded,
        actions: &mut Vec<Action>,
    ) -> bool {
        let job = call.id;
        // CAN-08: a cancel that came together with its call wins.
        if engine.is_stopping(job) {
            let outcome = Outcome::Stopped;
            engine.handle(now, Event::Done { job, outcome }, actions);
            return false;
        }
        self.job.call(call);
        let outcome = run_guarded(handler, &self.job);
        self.job.is_over();
        if self.inbound.has_some() {
            self.inbound.take(&mut self.heard);
            for report in self.heard.drain(..) {
                // An inline handler has nothing else to report.
                if let Some(said) = report.said() {
                    engine.handle(now, said, actions);
                }
            }
        }
        engine.handle(now, Event::Done { job, outcome }, actions);
        true
    }
}
