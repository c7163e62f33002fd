//! A bound on tests of one kind at once, for tests that keep every CPU busy on their own.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Turns, of which so many can be taken at once.
#[derive(Debug)]
pub struct Turns {
    free: Mutex<usize>,
    given_back: Condvar,
}

/// A turn that was taken; given back when dropped.
#[derive(Debug)]
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// So many turns.
    #[must_use]
    pub const fn new(free: usize) -> Self {
        Self { free: Mutex::new(free), given_back: Condvar::new() }
    }

    /// Waits for a turn.
    pub fn take(&self) -> Turn<'_> {
        let has_none = |free: &mut usize| *free == 0;
        let free = self.given_back.wait_while(self.lock(), has_none);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Turn(self)
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.lock() += 1;
        self.0.given_back.notify_one();
    }
}
