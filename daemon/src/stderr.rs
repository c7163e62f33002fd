//! Writes to standard error with bounded waiting, since the parent process may not read it.
//!
//! An unread pipe fills up. The thread of the log may block on it; the loop and the shutdown may
//! not. Standard error keeps its blocking mode, and is written without the lock of the standard
//! library, which a blocked writer would hold.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::stdio::stderr;

use crate::tools::cancel_token::CancelToken;
use ceased_client::io::{NonblockingWriter, poll};

/// Time that a line outside the log, or any line during the shutdown, waits for room. Shorter than
/// the time that the shutdown waits for the log's thread to take its order.
const ROOM_WITHIN: Duration = Duration::from_millis(20);

/// Time that the output of a command waits for room.
const COMMAND_WITHIN: Duration = Duration::from_secs(1);

/// Writes as much as there is room for within the time limit.
pub(crate) fn write(mut bytes: &[u8]) {
    let until = Instant::now() + ROOM_WITHIN;
    while !bytes.is_empty() {
        match write_part(bytes, Some(until), None) {
            Ok(Some(count)) => bytes = bytes.get(count..).unwrap_or_default(),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Standard error for the log's thread: blocks until there is room or the shutdown has begun; drops
/// the remaining output then.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlockingStderr {
    leaving: CancelToken,
}

impl BlockingStderr {
    /// Limits all further waiting to [`ROOM_WITHIN`].
    pub(crate) fn stop_waiting(&self) {
        self.leaving.cancel();
    }
}

impl Write for BlockingStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.leaving.check().is_ok()
            && let Some(count) = write_part(bytes, None, Some(&self.leaving))?
        {
            return Ok(count);
        }
        let until = Instant::now() + ROOM_WITHIN;
        Ok(write_part(bytes, Some(until), None)?.unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error for a command, which must react to signals even if its output is not read: output
/// is dropped after a second without room, until there is room again.
#[derive(Debug, Default)]
pub(crate) struct TimedStderr {
    is_full: bool,
}

impl Write for TimedStderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let within = if self.is_full { Duration::ZERO } else { COMMAND_WITHIN };
        let written = write_part(bytes, Some(Instant::now() + within), None)?;
        self.is_full = written.is_none();
        Ok(written.unwrap_or(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a part as soon as there is room; `None` at the deadline, or once waiting is no longer
/// allowed.
fn write_part(
    bytes: &[u8],
    until: Option<Instant>,
    leaving: Option<&CancelToken>,
) -> io::Result<Option<usize>> {
    let nozzle = NonblockingWriter::of(stderr())?;
    loop {
        if let Some(count) = nozzle.write(stderr(), bytes)? {
            return Ok(Some(count));
        }
        let mut fds = vec![PollFd::from_borrowed_fd(stderr(), PollFlags::OUT)];
        let told = leaving.map(CancelToken::descriptor).transpose()?;
        fds.extend(told.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        poll(&mut fds, until)?;
        let is_told = leaving.is_some_and(CancelToken::is_cancelled);
        if is_told || until.is_some_and(|until| until <= Instant::now()) {
            return Ok(None);
        }
    }
}
