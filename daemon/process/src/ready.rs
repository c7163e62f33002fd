//! A wait for one descriptor.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// Waits until a descriptor is readable; false when it is not within the time.
pub(crate) fn ready(fd: BorrowedFd<'_>, within: Duration) -> io::Result<bool> {
    let within = Timespec::try_from(within).ok();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    Ok(retry_on_intr(|| poll(&mut fds, within.as_ref()))? > 0)
}
