//! How long the calls of a function take, as far as the last ones tell.
//!
//! What a call takes depends on the size of its arguments more than on anything else, so calls with
//! small ones and calls with large ones are told apart: one that copies a megabyte says nothing
//! about the next one that copies a line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::tools::handler::{Call, Handler};

/// A call that takes longer than this is not short: more than waking a thread costs.
const SHORT: Duration = Duration::from_micros(20);
/// A call that takes no longer than this is quick: less than handing it over costs.
const QUICK: Duration = Duration::from_micros(5);
/// Quick calls in a row before they are trusted to be quick.
const FAST_CALLS_REQUIRED: u32 = 16;
/// As [`FAST_CALLS_REQUIRED`], after a trusted call has held up the loop until another thread took that over. So
/// many that a tool that is quick most of the time cannot hold it up often.
const PROOF_AFTER_HOLD_UP: u32 = 10_000;
/// Bytes of arguments that are large: to read and copy so many takes some microseconds, as long as a
/// quick call may.
const LARGE: usize = 16 * 1024;

/// A function of this process, and what is known of it.
pub(crate) struct HandlerRun {
    pub(crate) handler: Arc<dyn Handler>,
    small: LatencyClass,
    large: LatencyClass,
}

impl HandlerRun {
    pub(crate) fn new(handler: Arc<dyn Handler>) -> Arc<Self> {
        Arc::new(Self { handler, small: LatencyClass::new(), large: LatencyClass::new() })
    }

    /// History of calls like this one.
    pub(crate) fn pace(&self, call: &Call) -> &LatencyClass {
        if call.arguments.get().len() < LARGE { &self.small } else { &self.large }
    }
}

/// History of similar calls.
pub(crate) struct LatencyClass {
    /// Whether the last one took no longer than waking a thread does.
    short: AtomicBool,
    /// Quick calls on worker threads still to be seen before the leader runs one.
    unproven: AtomicU32,
}

impl LatencyClass {
    const fn new() -> Self {
        Self { short: AtomicBool::new(true), unproven: AtomicU32::new(FAST_CALLS_REQUIRED) }
    }

    /// Whether a call is likely to take no longer than waking a thread does.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Whether a call is likely to take less than handing it to another thread does.
    pub(crate) fn is_quick(&self) -> bool {
        self.unproven.load(Ordering::Relaxed) == 0
    }

    /// Notes how long a call took on a worker thread.
    pub(crate) fn note(&self, took: Duration) {
        let short = took <= SHORT;
        // Read first: threads that write to one place wait for each other.
        if self.is_short() != short {
            self.short.store(short, Ordering::Relaxed);
        }
        let before = self.unproven.load(Ordering::Relaxed);
        let unproven =
            if took <= QUICK { before.saturating_sub(1) } else { before.max(FAST_CALLS_REQUIRED) };
        if unproven != before {
            self.unproven.store(unproven, Ordering::Relaxed);
        }
    }

    /// Trust is lent to a call on the leader's thread: if it does not come back, it has none.
    pub(crate) fn begin_probation(&self) {
        self.unproven.store(PROOF_AFTER_HOLD_UP, Ordering::Relaxed);
    }

    /// Such a call has ended, and nobody had to take over the loop meanwhile.
    pub(crate) fn return_trust(&self, took: Duration) {
        let unproven = if took <= QUICK { 0 } else { FAST_CALLS_REQUIRED };
        self.unproven.store(unproven, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use ceased_core::ids::JobId;
    use ceased_core::json::raw::Json;

    use super::*;
    use crate::tools::handler::Job;

    fn run() -> Arc<HandlerRun> {
        HandlerRun::new(Arc::new(|_: &Job| Ok(crate::ToolResult::text("done"))))
    }

    fn call(bytes: usize) -> Call {
        let arguments = Json::written(format!("\"{}\"", "x".repeat(bytes)));
        Call { id: JobId::new(1), task: None, arguments }
    }

    /// A tool is trusted after some quick calls, and no more after a slow one.
    #[test]
    fn trust_is_earned_and_lost() {
        let run = run();
        let pace = run.pace(&call(10));
        for _ in 0..FAST_CALLS_REQUIRED {
            assert!(!pace.is_quick());
            pace.note(QUICK);
        }
        assert!(pace.is_quick() && pace.is_short());
        pace.note(SHORT * 2);
        assert!(!pace.is_quick() && !pace.is_short());
        (0..FAST_CALLS_REQUIRED).for_each(|_| pace.note(QUICK));
        assert!(pace.is_quick() && pace.is_short());
        pace.begin_probation();
        assert!(!pace.is_quick());
        pace.return_trust(QUICK);
        assert!(pace.is_quick());
    }

    /// A call that copies a megabyte does not affect calls that copy a line.
    #[test]
    fn large_arguments_say_nothing_about_small_ones() {
        let run = run();
        (0..FAST_CALLS_REQUIRED).for_each(|_| run.pace(&call(10)).note(QUICK));
        assert!(!run.pace(&call(LARGE)).is_quick());
        run.pace(&call(1 << 20)).note(SHORT * 20);
        run.pace(&call(1 << 20)).begin_probation();
        let pace = run.pace(&call(1000));
        assert!(pace.is_quick() && pace.is_short());
    }
}
