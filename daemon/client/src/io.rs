//! Reading and writing descriptors that may be in blocking mode, without blocking.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::SendFlags;

/// What a pipe that polls as writable takes without blocking.
const PIPE_BYTES: usize = 4096;

/// Waits until one of `fds` has something or `deadline` has passed. A signal may end the wait
/// early, with nothing to see on any descriptor.
///
/// # Errors
/// When the system refuses to poll.
pub fn poll(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    let timeout = deadline.map(|at| {
        let left = at.saturating_duration_since(Instant::now());
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        }
    });
    match rustix::event::poll(fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// True when the peer is gone, as opposed to something being wrong here.
#[must_use]
pub fn is_gone(why: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(why.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}

/// Reads what is there; `None` when there is nothing yet, zero at the end.
///
/// # Errors
/// When the descriptor cannot be read.
pub fn read(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<Option<usize>> {
    match rustix::io::read(fd, into) {
        Ok(count) => Ok(Some(count)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// How to write to a descriptor that may be in blocking mode, without blocking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonblockingWriter {
    /// A socket is asked not to wait, call by call.
    Socket,
    /// A pipe that polls as writable has room for one page.
    Pipe,
    /// A terminal or a file: writing is as quick as it can be.
    File,
}

impl NonblockingWriter {
    /// The way to write to `fd`.
    ///
    /// # Errors
    /// When the kind of the descriptor cannot be told.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
        Ok(match kind {
            FileType::Socket => Self::Socket,
            FileType::Fifo => Self::Pipe,
            FileType::RegularFile
            | FileType::Directory
            | FileType::Symlink
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Self::File,
        })
    }

    /// Writes a part of `bytes`; `None` when there is no room now.
    ///
    /// # Errors
    /// When the descriptor cannot be written.
    pub fn write(self, fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
        let wrote = match self {
            Self::Socket => rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Self::Pipe => {
                let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                poll(&mut fds, Some(Instant::now()))?;
                if fds.iter().all(|fd| fd.revents().is_empty()) {
                    return Ok(None);
                }
                let page = bytes.get(..PIPE_BYTES).unwrap_or(bytes);
                rustix::io::write(fd, page)
            }
            Self::File => rustix::io::write(fd, bytes),
        };
        match wrote {
            Ok(count) => Ok(Some(count)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}
