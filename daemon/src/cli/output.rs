//! Standard output of a command, which whoever started us need not read.
//!
//! It is written as [`crate::stderr`] is: in the mode it came in, and never without hearing a
//! signal. The result is written there, so the write waits for room as long as that takes.

use std::cell::OnceCell;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::stdio::stdout;

use ceased_client::Error;
use ceased_client::io::{NonblockingWriter, poll};

/// Standard output, without a buffer.
#[derive(Debug)]
pub(super) struct Output<'a> {
    /// Readable once there is a wish to stop; empty as long as signals end the process by
    /// themselves.
    pub(super) wishes: &'a OnceCell<OwnedFd>,
}

impl Write for Output<'_> {
    /// # Errors
    /// [`Error::Interrupted`] in an [`io::Error`] when there is a wish to stop and no room.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let nozzle = NonblockingWriter::of(stdout())?;
        loop {
            if let Some(count) = nozzle.write(stdout(), bytes)? {
                return Ok(count);
            }
            let wishes = self.wishes.get().map(|fd| PollFd::new(fd, PollFlags::IN));
            let mut fds: Vec<PollFd<'_>> = wishes.into_iter().collect();
            let told = fds.len();
            fds.push(PollFd::from_borrowed_fd(stdout(), PollFlags::OUT));
            poll(&mut fds, None)?;
            // The wish is left where it is: whatever else is written, such as the rest of a buffer
            // at the end, is not to wait either.
            if fds.iter().take(told).any(|fd| !fd.revents().is_empty()) {
                return Err(io::Error::other(Error::Interrupted));
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
