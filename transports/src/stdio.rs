//! Standard input and output as one transport, whatever they are.
//!
//! `O_NONBLOCK` belongs to the open file description, which we share with the starting process and
//! with every other process that inherited it; setting it there breaks them. A file that can be
//! opened anew gets a description of our own; for others each call asks not to block:
//!
//! | it is | input | output |
//! |---|---|---|
//! | a pipe or fifo | opened anew through `/proc/self/fd` | the same |
//! | a terminal | the same | the same |
//! | one of these, but not ours to open (made by another user, no `/proc`) | `poll(2)` before each read | `poll(2)` before each write, at most [`PIPE_ATOMIC_BYTES`] at a time |
//! | a stream socket | `MSG_DONTWAIT` | `MSG_DONTWAIT` |
//! | anything else (a file, `/dev/null`), which epoll refuses | a thread that copies it into a socket pair | plain writes, which do not wait for anybody |
//!
//! The thread ends with its source or when the transport has gone; if neither happens (a device
//! that never answers) it ends with the process. A source that fails reads as one that ended.
//!
//! Input and output end on their own: the end of the input is the peer's half-close, and the peer
//! is lost when no process reads the output. The peer reads the end of our output when the last
//! description of it is closed, ours and whatever the process still has as descriptor 1:
//! [`Stdio::take_over`] leaves none behind, with [`Stdio::open`] it happens at exit.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, Stat, fcntl_getfl, fstat, major, minor, open};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{SocketType, sockopt};

use crate::error::StdioError;
use crate::socket;
use crate::system::{LOSS, QUIET, enlarge};
use crate::transport::{Peer, Readiness, Transport};

/// Bytes a pipe takes at once when `poll(2)` says that it is writable, so that a write of up to
/// this many does not block.
pub const PIPE_ATOMIC_BYTES: usize = 4096;

/// Least bytes that a pipe of standard output holds, so that a long message is written in few
/// pieces.
const OUTPUT_PIPE_BYTES: usize = 256 * 1024;

/// Standard input and output, or any two descriptors, as one transport.
#[derive(Debug)]
pub struct Stdio {
    input: Input,
    output: Output,
    peer: Peer,
    /// To take the registration back on drop: while another process has the same description open,
    /// epoll would go on announcing a descriptor that is closed.
    registry: Option<Registry>,
}

#[derive(Debug)]
enum Input {
    /// A description of our own, non-blocking.
    Own(File),
    /// A shared stream socket.
    Socket(OwnedFd),
    /// A shared description to be asked first.
    Asked(OwnedFd),
}

#[derive(Debug)]
enum Output {
    /// A description of our own, non-blocking.
    Own(File),
    /// A shared stream socket.
    Socket(OwnedFd),
    /// A shared description to be asked first.
    Asked(OwnedFd),
    /// A file: always takes all output, and epoll refuses it.
    Plain(OwnedFd),
    /// We have said that we write no more.
    Finished,
}

impl Stdio {
    /// Serves descriptors 0 and 1 and leaves them as they are.
    ///
    /// # Errors
    /// See [`Stdio::adopt`].
    pub fn open() -> Result<Self, StdioError> {
        let input = duplicate("stdin", rustix::stdio::stdin())?;
        let output = duplicate("stdout", rustix::stdio::stdout())?;
        Self::adopt(input, output)
    }

    /// Serves descriptors 0 and 1, then points descriptor 0 at `/dev/null` and descriptor 1 at
    /// standard error: a stray print becomes a log line instead of garbage between messages, a
    /// child that inherits them cannot take part in the conversation, and dropping the transport
    /// closes it.
    ///
    /// # Errors
    /// See [`Stdio::adopt`].
    pub fn take_over() -> Result<Self, StdioError> {
        let stdio = Self::open()?;
        let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed("stdin", "open /dev/null in place of"))?;
        rustix::stdio::dup2_stdin(null).map_err(failed("stdin", "replace"))?;
        rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(failed("stdout", "replace"))?;
        Ok(stdio)
    }

    /// Serves any two descriptors; they may be two of the same thing.
    ///
    /// # Errors
    /// [`StdioError`] when one of them cannot be read from or written to, or the system refuses.
    pub fn adopt(input: OwnedFd, output: OwnedFd) -> Result<Self, StdioError> {
        Ok(Self {
            input: Input::new(input)?,
            output: Output::new(output)?,
            peer: Peer::Stdio { uid: rustix::process::getuid().as_raw() },
            registry: None,
        })
    }

    fn deregister_both(&self, registry: &Registry) -> io::Result<()> {
        let input = registry.deregister(&mut SourceFd(&self.input.fd().as_raw_fd()));
        if let Some(output) = self.output.watched() {
            registry.deregister(&mut SourceFd(&output.as_raw_fd()))?;
        }
        input
    }
}

impl Transport for Stdio {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.input {
            Input::Own(file) => file.read(buf),
            Input::Socket(fd) => socket::receive(fd.as_fd(), buf),
            Input::Asked(fd) => {
                if ask(fd.as_fd(), PollFlags::IN)?.is_empty() {
                    return Err(Errno::AGAIN.into());
                }
                Ok(rustix::io::read(fd, buf)?)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.output {
            Output::Own(file) => file.write(bytes),
            Output::Socket(fd) => socket::send(fd.as_fd(), bytes),
            Output::Asked(fd) => {
                if ask(fd.as_fd(), PollFlags::OUT)?.is_empty() {
                    return Err(Errno::AGAIN.into());
                }
                let atomic = bytes.get(..PIPE_ATOMIC_BYTES).unwrap_or(bytes);
                Ok(rustix::io::write(fd, atomic)?)
            }
            Output::Plain(fd) => Ok(rustix::io::write(fd, bytes)?),
            Output::Finished => Err(Errno::PIPE.into()),
        }
    }

    fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let ours = registry.try_clone()?;
        let input = self.input.fd().as_raw_fd();
        registry.register(&mut SourceFd(&input), token, Interest::READABLE)?;
        if let Some(output) = self.output.watched() {
            let source = &mut SourceFd(&output.as_raw_fd());
            if let Err(error) = registry.register(source, token, LOSS) {
                registry.deregister(&mut SourceFd(&input))?;
                return Err(error);
            }
        }
        self.registry = Some(ours);
        Ok(())
    }

    fn await_room(&mut self, registry: &Registry, token: Token, awaited: bool) -> io::Result<()> {
        let Some(output) = self.output.watched() else { return Ok(()) };
        let interests = if awaited { Interest::WRITABLE } else { LOSS };
        registry.reregister(&mut SourceFd(&output.as_raw_fd()), token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.registry = None;
        self.deregister_both(registry)
    }

    fn finish(&mut self) -> io::Result<()> {
        if let Output::Socket(fd) = &self.output {
            // Input may be the same socket, so closing ours would not end it.
            socket::finish(fd.as_fd())?;
        }
        if let (Some(registry), Some(output)) = (&self.registry, self.output.watched()) {
            registry.deregister(&mut SourceFd(&output.as_raw_fd()))?;
        }
        self.output = Output::Finished;
        Ok(())
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn readiness(&self, event: &Event) -> Readiness {
        let plain = Readiness::of(event);
        // Both descriptors share a token, so an event does not tell whose hang-up it is; the end
        // of the input looks the same as the loss of the output.
        Readiness { peer_gone: plain.peer_gone && self.output.is_gone(), ..plain }
    }

    fn short_read_drains(&self) -> bool {
        // A terminal gives a line a read, a pipe in packet mode a packet.
        matches!(self.input, Input::Socket(_))
    }

    fn short_write_fills(&self) -> bool {
        matches!(self.output, Output::Own(_))
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.take() {
            // Nothing can be done about a failure.
            let _ = self.deregister_both(&registry);
        }
    }
}

impl Input {
    fn new(fd: OwnedFd) -> Result<Self, StdioError> {
        let kind = Kind::of("stdin", &fd, OFlags::WRONLY)?;
        match kind {
            Kind::Openable => Ok(match open_anew(&fd, OFlags::RDONLY) {
                Some(own) => Self::Own(own),
                None => Self::Asked(fd),
            }),
            Kind::Askable => Ok(Self::Asked(fd)),
            Kind::Socket => Ok(Self::Socket(fd)),
            Kind::Unwatchable => copied(fd).map(Self::Socket).map_err(failed("stdin", "copy")),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Own(file) => file.as_fd(),
            Self::Socket(fd) | Self::Asked(fd) => fd.as_fd(),
        }
    }
}

impl Output {
    fn new(fd: OwnedFd) -> Result<Self, StdioError> {
        let kind = Kind::of("stdout", &fd, OFlags::RDONLY)?;
        Ok(match kind {
            Kind::Openable => match open_anew(&fd, OFlags::WRONLY) {
                Some(own) => {
                    enlarge(&own, OUTPUT_PIPE_BYTES);
                    Self::Own(own)
                }
                None => Self::Asked(fd),
            },
            Kind::Askable => Self::Asked(fd),
            Kind::Socket => Self::Socket(fd),
            Kind::Unwatchable => Self::Plain(fd),
        })
    }

    /// Interest for epoll.
    fn watched(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Own(file) => Some(file.as_fd()),
            Self::Socket(fd) | Self::Asked(fd) => Some(fd.as_fd()),
            Self::Plain(_) | Self::Finished => None,
        }
    }

    /// True when no process can read our output any more.
    fn is_gone(&self) -> bool {
        let dead = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        self.watched()
            .and_then(|fd| ask(fd, PollFlags::OUT).ok())
            .is_some_and(|found| found.intersects(dead))
    }
}

/// Kind of a descriptor, which decides how it is served.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// May be opened anew.
    Openable,
    /// Would be something else if opened anew, but poll and epoll work.
    Askable,
    Socket,
    /// Epoll refuses it, for it is always ready.
    Unwatchable,
}

impl Kind {
    fn of(stream: &'static str, fd: &OwnedFd, wrong: OFlags) -> Result<Self, StdioError> {
        let unsuitable = |what| Err(StdioError::Unsuitable { stream, what });
        let stat = fstat(fd).map_err(failed(stream, "inspect"))?;
        let flags = fcntl_getfl(fd).map_err(failed(stream, "inspect"))?;
        if flags & OFlags::RWMODE == wrong {
            return unsuitable(if wrong == OFlags::WRONLY {
                "open for writing only"
            } else {
                "open for reading only"
            });
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => Ok(Self::Openable),
            FileType::Socket => {
                match sockopt::socket_type(fd).map_err(failed(stream, "inspect"))? {
                    SocketType::STREAM => Ok(Self::Socket),
                    _ => unsuitable("a socket of another type"),
                }
            }
            FileType::CharacterDevice if rustix::termios::isatty(fd) => {
                Ok(if is_multiplexer(&stat) { Self::Askable } else { Self::Openable })
            }
            FileType::Directory => unsuitable("a directory"),
            FileType::RegularFile
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Symlink
            | FileType::Unknown => Ok(Self::Unwatchable),
        }
    }
}

/// True for the controlling side of a pseudo-terminal, `/dev/ptmx`, device 5:2: opening it anew
/// would make another terminal.
fn is_multiplexer(stat: &Stat) -> bool {
    (major(stat.st_rdev), minor(stat.st_rdev)) == (5, 2)
}

/// A non-blocking description of our own of the file of `fd`; `None` when it is not ours to open.
fn open_anew(fd: &OwnedFd, access: OFlags) -> Option<File> {
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path, flags, Mode::empty()).ok().map(File::from)
}

/// Current events among `wanted`, and errors.
fn ask(fd: BorrowedFd<'_>, wanted: PollFlags) -> rustix::io::Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(fd, wanted)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    let [asked] = fds;
    Ok(asked.revents())
}

/// A socket that gives the bytes of `source`, by means of a thread.
fn copied(source: OwnedFd) -> io::Result<OwnedFd> {
    let (ours, theirs) = UnixStream::pair()?;
    thread::Builder::new().name("ceased-stdin".to_owned()).spawn(move || copy(&source, &theirs))?;
    Ok(ours.into())
}

/// Copies until the source ends or the receiving end is closed.
fn copy(source: &OwnedFd, sink: &UnixStream) {
    let mut buf = vec![0; crate::SCRATCH_BYTES];
    loop {
        let count = match rustix::io::read(source, &mut buf) {
            Ok(0) => return,
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(_) => return,
        };
        let mut rest = buf.get(..count).unwrap_or_default();
        while !rest.is_empty() {
            match rustix::net::send(sink, rest, QUIET) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

fn duplicate(stream: &'static str, fd: BorrowedFd<'_>) -> Result<OwnedFd, StdioError> {
    // Above the three standard descriptors, which have meanings of their own.
    fcntl_dupfd_cloexec(fd, 3).map_err(failed(stream, "duplicate"))
}

fn failed<E: Into<io::Error>>(
    stream: &'static str,
    doing: &'static str,
) -> impl FnOnce(E) -> StdioError {
    move |error| StdioError::Os { stream, doing, error: error.into() }
}
