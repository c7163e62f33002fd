//! Pipes for a command whose standard input and output belong to the caller.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::ioctl_fionbio;
use rustix::pipe::{PipeFlags, pipe_with};

/// The caller's ends of the pipes of a command. Both are non-blocking.
#[derive(Debug)]
pub struct OwnPipes {
    /// Write end of the command's standard input. Dropping it is the end of file that the command
    /// reads.
    pub stdin: OwnedFd,
    /// Read end of the command's standard output. It ends when the last process that holds the
    /// other end has closed it.
    pub stdout: OwnedFd,
}

/// The command's ends of the pipes, for [`Launch::pipes`](crate::Launch::pipes).
///
/// The supervisor closes them once the command has them. A clone that is kept elsewhere prevents
/// the end of file of [`OwnPipes::stdout`].
#[derive(Debug, Clone)]
pub struct CommandPipes(Arc<[OwnedFd; 2]>);

impl CommandPipes {
    /// Copies of the command's standard input and output.
    pub(crate) fn copies(&self) -> io::Result<[OwnedFd; 2]> {
        let [stdin, stdout] = &*self.0;
        Ok([stdin.try_clone()?, stdout.try_clone()?])
    }
}

/// Creates the pipes of a command that talks with the caller over standard input and output.
///
/// # Errors
///
/// If the process is out of descriptors.
pub fn stdio_pipes() -> io::Result<(OwnPipes, CommandPipes)> {
    let (their_stdin, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    // Each end has a file description of its own, so that the command's ends stay blocking.
    ioctl_fionbio(&stdin, true)?;
    ioctl_fionbio(&stdout, true)?;
    Ok((OwnPipes { stdin, stdout }, CommandPipes(Arc::new([their_stdin, their_stdout]))))
}
