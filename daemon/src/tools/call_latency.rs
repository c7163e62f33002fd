//! Latency of recent calls of a handler, by size of the arguments.
//!
//! The duration of a call depends mostly on the size of its arguments, so small and large ones are
//! tracked separately: a call that copies a megabyte does not predict one that copies a line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::tools::handler::{Call, Work};

/// Limit of a short call: more than waking a thread costs.
const SHORT: Duration = Duration::from_micros(20);
/// Limit of a quick call: less than handing it to another thread costs.
const QUICK: Duration = Duration::from_micros(5);
/// Consecutive quick calls required before the loop's thread runs one.
const FAST_CALLS_REQUIRED: u32 = 16;
/// As [`FAST_CALLS_REQUIRED`], after a call on the loop's thread took so long that another thread
/// took over the loop. Large, so that a tool that is usually quick cannot delay the loop often.
const FAST_CALLS_AFTER_HANDOFF: u32 = 10_000;
/// Size of large arguments: reading and copying them takes some microseconds, as long as a quick
/// call.
const LARGE: usize = 16 * 1024;

/// A handler and the latency of its calls.
pub(crate) struct HandlerRun {
    pub(crate) handler: Arc<dyn Work>,
    small: LatencyClass,
    large: LatencyClass,
}

impl HandlerRun {
    pub(crate) fn new(handler: Arc<dyn Work>) -> Arc<Self> {
        Arc::new(Self { handler, small: LatencyClass::new(), large: LatencyClass::new() })
    }

    /// Latency class of a call.
    pub(crate) fn latency_class(&self, call: &Call) -> &LatencyClass {
        if call.arguments.get().len() < LARGE { &self.small } else { &self.large }
    }
}

/// Latency of similar calls.
pub(crate) struct LatencyClass {
    /// Whether the last call took no longer than waking a thread.
    short: AtomicBool,
    /// Quick calls on worker threads still required before the leader runs one.
    fast_calls_missing: AtomicU32,
}

impl LatencyClass {
    const fn new() -> Self {
        Self {
            short: AtomicBool::new(true),
            fast_calls_missing: AtomicU32::new(FAST_CALLS_REQUIRED),
        }
    }

    /// Whether a call is expected to take no longer than waking a thread.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed)
    }

    /// Whether a call is expected to take less than handing it to another thread.
    pub(crate) fn is_quick(&self) -> bool {
        self.fast_calls_missing.load(Ordering::Relaxed) == 0
    }

    /// Records the duration of a call on a worker thread.
    pub(crate) fn note(&self, took: Duration) {
        let short = took <= SHORT;
        // Read before writing: concurrent writes contend for the cache line.
        if self.is_short() != short {
            self.short.store(short, Ordering::Relaxed);
        }
        let before = self.fast_calls_missing.load(Ordering::Relaxed);
        let fast_calls_missing =
            if took <= QUICK { before.saturating_sub(1) } else { before.max(FAST_CALLS_REQUIRED) };
        if fast_calls_missing != before {
            self.fast_calls_missing.store(fast_calls_missing, Ordering::Relaxed);
        }
    }

    /// Starts a call on the leader's thread; the class counts as slow unless
    /// [`Self::end_probation`] follows.
    pub(crate) fn begin_probation(&self) {
        self.fast_calls_missing.store(FAST_CALLS_AFTER_HANDOFF, Ordering::Relaxed);
    }

    /// Ends such a call; the loop was not taken over meanwhile.
    pub(crate) fn end_probation(&self, took: Duration) {
        let fast_calls_missing = if took <= QUICK { 0 } else { FAST_CALLS_REQUIRED };
        self.fast_calls_missing.store(fast_calls_missing, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use ceased_core::ids::JobId;
    use ceased_core::json::raw::Json;

    use super::*;
    use crate::tools::handler::{Calling, Job};

    fn run() -> Arc<HandlerRun> {
        HandlerRun::new(Arc::new(Calling(|_: &Job| Ok(crate::ToolResult::text("done")))))
    }

    fn call(bytes: usize) -> Call {
        let arguments = Json::written(format!("\"{}\"", "x".repeat(bytes)));
        Call { id: JobId::new(1), task: None, arguments }
    }

    /// A handler qualifies after enough quick calls, and loses that with a slow one.
    #[test]
    fn quick_calls_qualify_and_slow_call_disqualifies() {
        let run = run();
        let latency_class = run.latency_class(&call(10));
        for _ in 0..FAST_CALLS_REQUIRED {
            assert!(!latency_class.is_quick());
            latency_class.note(QUICK);
        }
        assert!(latency_class.is_quick() && latency_class.is_short());
        latency_class.note(SHORT * 2);
        assert!(!latency_class.is_quick() && !latency_class.is_short());
        (0..FAST_CALLS_REQUIRED).for_each(|_| latency_class.note(QUICK));
        assert!(latency_class.is_quick() && latency_class.is_short());
        latency_class.begin_probation();
        assert!(!latency_class.is_quick());
        latency_class.end_probation(QUICK);
        assert!(latency_class.is_quick());
    }

    /// A call that copies a megabyte does not affect calls that copy a line.
    #[test]
    fn large_arguments_do_not_affect_small_ones() {
        let run = run();
        (0..FAST_CALLS_REQUIRED).for_each(|_| run.latency_class(&call(10)).note(QUICK));
        assert!(!run.latency_class(&call(LARGE)).is_quick());
        run.latency_class(&call(1 << 20)).note(SHORT * 20);
        run.latency_class(&call(1 << 20)).begin_probation();
        let latency_class = run.latency_class(&call(1000));
        assert!(latency_class.is_quick() && latency_class.is_short());
    }
}
