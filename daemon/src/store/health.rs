//! How the store is doing, as its thread notes it: for the watchdog and for whoever looks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::contract::StoreError;

/// Written by the store's thread, read by the loop. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Since when the store has been at what it does; `None` while it does nothing.
    busy_since: Option<Instant>,
    bytes: Option<u64>,
    last_error: Option<LastError>,
}

/// What the store said when it last failed.
#[derive(Debug, Clone)]
pub(crate) struct LastError {
    /// Its words, which name the file.
    pub(crate) message: String,
    pub(crate) at: SystemTime,
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does one thing with the store and notes that, and how it ended.
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

    /// So many bytes are on the disk.
    pub(super) fn measured(&self, bytes: Option<u64>) {
        self.state().bytes = bytes;
    }

    /// For how long the store has been at one and the same thing.
    pub(crate) fn stuck_for(&self) -> Duration {
        self.state().busy_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Bytes on the disk when it was last looked; `None` where there is no disk.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.state().bytes
    }

    /// How it last failed; `None` when it never has.
    pub(crate) fn last_error(&self) -> Option<LastError> {
        self.state().last_error.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_seen_while_it_lasts() {
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
