//! Standard output of a command, which its parent process may not read.
//!
//! Written as [`crate::stderr`]: in its blocking mode, and interruptible by signals. Results are
//! written there, so a write waits for room without a time limit.

use std::cell::OnceCell;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::stdio::stdout;

use ceased_client::Error;
use ceased_client::io::{NonblockingWriter, poll};

/// Unbuffered standard output.
#[derive(Debug)]
pub(super) struct Output<'a> {
    /// Readable after an interrupt; empty while signals still end the process.
    pub(super) interrupts: &'a OnceCell<OwnedFd>,
}

impl Write for Output<'_> {
    /// # Errors
    /// [`Error::Interrupted`] in an [`io::Error`] after an interrupt without room for output.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let nozzle = NonblockingWriter::of(stdout())?;
        loop {
            if let Some(count) = nozzle.write(stdout(), bytes)? {
                return Ok(count);
            }
            let interrupts = self.interrupts.get().map(|fd| PollFd::new(fd, PollFlags::IN));
            let mut fds: Vec<PollFd<'_>> = interrupts.into_iter().collect();
            let told = fds.len();
            fds.push(PollFd::from_borrowed_fd(stdout(), PollFlags::OUT));
            poll(&mut fds, None)?;
            // The interrupt is not consumed: later writes, such as flushing a buffer at the end,
            // must not block either.
            if fds.iter().take(told).any(|fd| !fd.revents().is_empty()) {
                return Err(io::Error::other(Error::Interrupted));
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
