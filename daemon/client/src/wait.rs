//! Waiting for several things at once: descriptors, a deadline, and a wish to stop.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

/// A point in time, and how it was asked for.
pub(crate) struct Deadline {
    pub(crate) at: Option<Instant>,
    pub(crate) after: Duration,
}

impl Deadline {
    /// One that is `timeout` away; never when there is none.
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
    /// When the last wish was taken, and for how long another one is the same.
    last: Cell<Option<Instant>>,
    echo: Duration,
}

/// The other end of an [`Interrupts`]: what fires it from another thread.
#[derive(Debug)]
pub struct Trigger(OwnedFd);

/// One Ctrl-C reaches a program twice when its terminal and a wrapper around it (`timeout`, a
/// package runner) both send it; nobody presses it again that fast.
const SIGNAL_ECHO: Duration = Duration::from_millis(200);

/// What a shell reports for a program ended by SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

impl Interrupts {
    /// One wish for every SIGINT (Ctrl-C) and SIGTERM this process gets from now on, except that
    /// those within 200 ms of a wish that was taken are part of it.
    ///
    /// While it lives, and after, those signals no longer end the process by themselves.
    ///
    /// # Errors
    /// When the process is out of descriptors or the signals cannot be caught.
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

    /// One wish for every call of [`Trigger::fire`]; for programs with their own idea of Ctrl-C.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn manual() -> io::Result<(Self, Trigger)> {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (wishes, trigger) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
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

    /// Takes one wish, if there is one.
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

    /// From now on the next signal ends the process at once, with exit code 130: for somebody who
    /// was told what is still being waited for and does not want to wait.
    pub fn leave_at_next(&self) {
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
    /// Wishes that whatever waits on the [`Interrupts`] stops. Never blocks; when thousands of
    /// wishes are unread one more would change nothing and is dropped.
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
    fn each_wish_is_taken_once() {
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
    fn a_trigger_nobody_listens_to_never_blocks() {
        let (interrupts, trigger) = Interrupts::manual().unwrap();
        for _ in 0..200_000 {
            trigger.fire();
        }
        assert!(interrupts.take());
    }

    #[test]
    fn a_signal_is_a_wish_and_its_echo_is_not() {
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
