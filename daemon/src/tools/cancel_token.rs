//! Cancellation tokens: notification of handlers that their call was cancelled.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

/// Error of a cancelled call: return as soon as practical (CAN-06).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the call was cancelled")
    }
}

impl std::error::Error for Cancelled {}

/// Flag of a call that is set on cancel. Cheap to clone and to check.
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    cancelled: AtomicBool,
    /// Held while the flag is set and while a sleeper checks it, so that no wake-up is lost.
    raising: Mutex<()>,
    raised: Condvar,
    descriptor: OnceLock<OwnedFd>,
}

impl CancelToken {
    /// Returns true once the call was cancelled; never false again.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.state.cancelled.load(Ordering::Acquire)
    }

    /// Returns an error if the call was cancelled, for use with `?` between two steps of work.
    ///
    /// # Errors
    /// [`Cancelled`] once the call was cancelled.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }

    /// Sleeps until the time is over or the call is cancelled.
    ///
    /// # Errors
    /// [`Cancelled`] if the call was cancelled before the time was over.
    pub fn sleep(&self, span: Duration) -> Result<(), Cancelled> {
        let end = Instant::now().checked_add(span);
        let mut guard = self.state.raising.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_cancelled() {
            guard = match end {
                None => self.state.raised.wait(guard).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(());
                    }
                    let waited = self.state.raised.wait_timeout(guard, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        Err(Cancelled)
    }

    /// A descriptor that becomes readable when the call is cancelled, for use with `poll`. Created
    /// at the first call; do not read from it.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn descriptor(&self) -> std::io::Result<BorrowedFd<'_>> {
        if let Some(descriptor) = self.state.descriptor.get() {
            return Ok(descriptor.as_fd());
        }
        let guard = self.state.raising.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state.descriptor.get().is_none() {
            let count = u32::from(self.is_cancelled());
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let _ = self.state.descriptor.set(eventfd(count, flags)?);
        }
        drop(guard);
        Ok(self.state.descriptor.get().expect("created under the lock").as_fd())
    }

    /// Sets the flag and wakes sleepers.
    pub(crate) fn cancel(&self) {
        let guard = self.state.raising.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.cancelled.store(true, Ordering::Release);
        if let Some(descriptor) = self.state.descriptor.get() {
            // The eventfd counter cannot overflow, so this cannot block or fail.
            let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
        }
        self.state.raised.notify_all();
        drop(guard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }

    #[test]
    fn sleeper_wakes_when_cancelled() {
        let token = CancelToken::default();
        let sleeper = std::thread::spawn({
            let token = token.clone();
            move || token.sleep(Duration::MAX)
        });
        token.cancel();
        assert_eq!(sleeper.join().unwrap(), Err(Cancelled));
        assert_eq!(token.check(), Err(Cancelled));
    }

    #[test]
    fn uncancelled_sleep_ends() {
        let token = CancelToken::default();
        assert_eq!(token.sleep(Duration::from_millis(1)), Ok(()));
        assert_eq!(token.check(), Ok(()));
    }

    #[test]
    fn descriptor_becomes_readable_in_either_order() {
        let early = CancelToken::default();
        assert!(!is_readable(early.descriptor().unwrap()));
        early.cancel();
        assert!(is_readable(early.descriptor().unwrap()));
        let late = CancelToken::default();
        late.cancel();
        assert!(is_readable(late.descriptor().unwrap()));
    }
}
