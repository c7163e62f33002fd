//! Reading and writing descriptors that may be in blocking mode, without blocking.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::Errno;

/// Bytes that a writable pipe accepts without blocking (PIPE_BUF).
const PIPE_BYTES: usize = 4096;

/// Waits until one of `fds` is ready or `deadline` has passed. A signal may end the wait early,
/// without a ready descriptor.
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

/// Whether an error means that the peer has disconnected.
#[must_use]
pub fn is_gone(why: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(why.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}

/// Reads available bytes; `None` if there are none yet, zero at end of file.
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

/// Method of writing without blocking to a descriptor in blocking mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonblockingWriter {
    /// Socket: MSG_DONTWAIT per call.
    Socket,
    /// Pipe: a writable one has room for one page.
    Pipe,
    /// Terminal or file: plain writes.
    File,
}

impl NonblockingWriter {
    /// Selects the method for `fd`.
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

    /// Writes a part of `bytes`; `None` if there is no room now.
    ///
    /// # Errors
    /// When the descriptor cannot be written.
    pub fn write(self, fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<Option<usize>> {
        let wrote = match self {
            Self::Socket => ceased_transports::send_now(fd, bytes),
            Self::Pipe => {
                let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
                poll(&mut fds, Some(Instant::now()))?;
                if fds.iter().all(|fd| fd.revents().is_empty()) {
                    return Ok(None);
                }
                let page = bytes.get(..PIPE_BYTES).unwrap_or(bytes);
                rustix::io::write(fd, page).map_err(io::Error::from)
            }
            Self::File => rustix::io::write(fd, bytes).map_err(io::Error::from),
        };
        match wrote {
            Ok(count) => Ok(Some(count)),
            Err(error) if is_passing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether there is no room now, or a signal came first.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
