//! Waiting for descriptors, a deadline, and interrupts at once.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

/// A deadline and its original timeout.
pub(crate) struct Deadline {
    pub(crate) at: Option<Instant>,
    pub(crate) after: Duration,
}

impl Deadline {
    /// A deadline after `timeout`; never if `None`.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        let at = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { at, after: timeout.unwrap_or_default() }
    }
}

/// Wishes to stop, one byte a wish, in a pipe that can be polled beside a connection.
///
/// A client that was given one returns [`Error::Interrupted`](crate::Error::Interrupted) from
/// whatever it waits for, once per wish.
#[derive(Debug)]
pub struct Interrupts {
    wishes: OwnedFd,
    leave: Arc<AtomicBool>,
    signals: Vec<SigId>,
    /// Time of the last interrupt, for suppressing echoes, and the echo interval.
    last: Cell<Option<Instant>>,
    echo: Duration,
}

/// The other end of an [`Interrupts`]: fires it from another thread.
#[derive(Debug)]
pub struct Trigger(OwnedFd);

/// Interval of echoes: one Ctrl-C reaches a program twice if its terminal and a wrapper (`timeout`,
/// a package runner) both send the signal. Faster than a second key press.
const SIGNAL_ECHO: Duration = Duration::from_millis(200);

/// Exit code of a program ended by SIGINT, as in shells.
const EXIT_INTERRUPTED: i32 = 130;

impl Interrupts {
    /// Creates one interrupt for every SIGINT (Ctrl-C) and SIGTERM of this process, except those
    /// within 200 ms of a handled one.
    ///
    /// From then on, these signals no longer end the process by themselves.
    ///
    /// # Errors
    /// If the process is out of descriptors or the signals cannot be caught.
    pub fn on_signals() -> io::Result<Self> {
        let (mut interrupts, trigger) = Self::manual()?;
        interrupts.echo = SIGNAL_ECHO;
        for signal in [SIGINT, SIGTERM] {
            let leave = Arc::clone(&interrupts.leave);
            let at_once =
                signal_hook::flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, leave)?;
            interrupts.signals.push(at_once);
            let pipe = trigger.0.try_clone()?;
            interrupts.signals.push(signal_hook::low_level::pipe::register(signal, pipe)?);
        }
        Ok(interrupts)
    }

    /// Creates one interrupt for every call of [`Trigger::fire`]; for programs with their own
    /// handling of Ctrl-C.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub fn manual() -> io::Result<(Self, Trigger)> {
        let (wishes, trigger) = io::pipe()?;
        let (wishes, trigger) = (OwnedFd::from(wishes), OwnedFd::from(trigger));
        for end in [&wishes, &trigger] {
            rustix::io::ioctl_fionbio(end, true)?;
        }
        let leave = Arc::new(AtomicBool::new(false));
        let interrupts = Self {
            wishes,
            leave,
            signals: Vec::new(),
            last: Cell::new(None),
            echo: Duration::ZERO,
        };
        Ok((interrupts, Trigger(trigger)))
    }

    /// Takes one interrupt, if any.
    #[must_use]
    pub fn take(&self) -> bool {
        while self.read_one() {
            let is_echo = self.last.get().is_some_and(|last| last.elapsed() < self.echo);
            if !is_echo {
                self.last.set(Some(Instant::now()));
                return true;
            }
        }
        false
    }

    fn read_one(&self) -> bool {
        let mut one = [0];
        matches!(rustix::io::retry_on_intr(|| rustix::io::read(&self.wishes, &mut one)), Ok(1))
    }

    /// Makes the next signal end the process at once with exit code 130: for a user that was told
    /// about the remaining work.
    pub fn exit_at_next(&self) {
        self.leave.store(true, Ordering::SeqCst);
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wishes.as_fd()
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        for signal in self.signals.drain(..) {
            signal_hook::low_level::unregister(signal);
        }
    }
}

impl Trigger {
    /// Fires an interrupt. Never blocks; it is dropped if thousands are pending.
    pub fn fire(&self) {
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.0, b"!")) {
            Ok(_) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::poll;
    use rustix::event::{PollFd, PollFlags};
    use std::time::Duration;

    #[test]
    fn each_interrupt_is_taken_once() {
        let (interrupts, trigger) = Interrupts::manual().unwrap();
        assert!(!interrupts.take());
        trigger.fire();
        trigger.fire();
        let mut fds = [PollFd::new(&interrupts, PollFlags::IN)];
        poll(&mut fds, Some(Instant::now() + Duration::from_secs(20))).unwrap();
        assert!(fds[0].revents().contains(PollFlags::IN));
        assert!(interrupts.take());
        assert!(interrupts.take());
        assert!(!interrupts.take());
    }

    #[test]
    fn unread_trigger_never_blocks() {
        let (interrupts, trigger) = Interrupts::manual().unwrap();
        for _ in 0..200_000 {
            trigger.fire();
        }
        assert!(interrupts.take());
    }

    #[test]
    fn signal_is_an_interrupt_and_its_echo_is_not() {
        let mut interrupts = Interrupts::on_signals().unwrap();
        let next = |interrupts: &Interrupts| {
            signal_hook::low_level::raise(SIGTERM).unwrap();
            let mut fds = [PollFd::new(interrupts, PollFlags::IN)];
            poll(&mut fds, Some(Instant::now() + Duration::from_secs(20))).unwrap();
            interrupts.take()
        };
        assert!(next(&interrupts));
        interrupts.echo = Duration::from_secs(3600);
        assert!(!next(&interrupts));
        interrupts.echo = Duration::ZERO;
        assert!(next(&interrupts));
    }
}
