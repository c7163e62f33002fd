//! Health of the store, updated by its thread, for the watchdog and the status.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::contract::StoreError;

/// Health written by the store's thread and read by the loop. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Start of the operation in progress; `None` while idle.
    busy_since: Option<Instant>,
    bytes: Option<u64>,
    last_error: Option<LastError>,
}

/// The last failure of the store.
#[derive(Debug, Clone)]
pub(crate) struct LastError {
    /// Text of the error, which names the file.
    pub(crate) message: String,
    pub(crate) at: SystemTime,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an operation of the store and records its duration and result.
    pub(super) fn step<T>(
        &self,
        step: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.state().busy_since = Some(Instant::now());
        let done = step();
        let mut state = self.state();
        state.busy_since = None;
        if let Err(error) = &done {
            let (message, at) = (error.to_string(), SystemTime::now());
            state.last_error = Some(LastError { message, at });
        }
        done
    }

    /// Records the size on disk.
    pub(super) fn measured(&self, bytes: Option<u64>) {
        self.state().bytes = bytes;
    }

    /// Duration of the operation in progress.
    pub(crate) fn stuck_for(&self) -> Duration {
        self.state().busy_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Size on disk at the last measurement; `None` without a disk.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.state().bytes
    }

    /// The last failure, if any.
    pub(crate) fn last_error(&self) -> Option<LastError> {
        self.state().last_error.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_in_progress_is_visible() {
        let health = Health::default();
        assert_eq!(health.stuck_for(), Duration::ZERO);
        let seen = health.step(|| {
            std::thread::sleep(Duration::from_millis(2));
            Ok(health.stuck_for())
        });
        assert!(seen.expect("it was done") >= Duration::from_millis(2));
        assert_eq!(health.stuck_for(), Duration::ZERO);
        assert!(health.last_error().is_none());
        let failed: Result<(), _> = health.step(|| Err(StoreError::Full));
        assert_eq!(failed, Err(StoreError::Full));
        assert!(health.last_error().is_some_and(|last| last.message.contains("no room")));
        assert_eq!(health.stuck_for(), Duration::ZERO);
    }
}
