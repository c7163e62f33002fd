//! Standard error, which whoever started us need not read: nothing waits for that for ever.
//!
//! A pipe that nobody reads is full some day. The thread of the log may wait for room then, as it
//! has nothing else to do; the loop may not, and neither may the end of the program. Standard error
//! stays in the mode it came in, and is written without the lock of the standard library, which
//! whoever waits for room would hold.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::stdio::stderr;

use crate::tools::cancel_token::CancelToken;
use ceased_client::io::{NonblockingWriter, poll};

/// How long a line waits for room that is not the log's, or that is written at the end. Less than
/// the end waits for the log's thread to take its order.
const ROOM_WITHIN: Duration = Duration::from_millis(20);

/// How long a command waits for room once it has something to say.
const COMMAND_WITHIN: Duration = Duration::from_secs(1);

/// Writes all of it, or as much as there is room for.
pub(crate) fn write(mut bytes: &[u8]) {
    let until = Instant::now() + ROOM_WITHIN;
    while !bytes.is_empty() {
        match write_part(bytes, Some(until), None) {
            Ok(Some(count)) => bytes = bytes.get(count..).unwrap_or_default(),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Standard error for a thread that has nothing else to do: it waits for room until it is told that
/// the end has come. What there is no room for then is lost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patient {
    leaving: CancelToken,
}

impl Patient {
    /// From now on nobody is waited for for long.
    pub(crate) fn leave(&self) {
        self.leaving.cancel();
    }
}

impl Write for Patient {
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

/// Standard error for a command, which must hear a signal whoever reads: what there is no room for
/// within a second is lost, and what follows is, too, until there is room.
#[derive(Debug, Default)]
pub(crate) struct Brief {
    is_full: bool,
}

impl Write for Brief {
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

/// Writes a part as soon as there is room; `None` when there is none by then, or before that is
/// not to be waited for any more.
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
