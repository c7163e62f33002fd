//! Messages between the supervisor and its guards over a socket pair.
//!
//! The socket keeps message boundaries (`SOCK_SEQPACKET`), so a message arrives completely or not
//! at all. End of file means that the other side is dead.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::isolation::Isolation;
use crate::launch::Prepared;
use crate::proc::boot_clock::boot_time;
use crate::sys::Fault;

/// Maximum message size: a path and its tag.
const MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// The launch and the tool's four descriptors.
const DESCRIPTORS: usize = 5;

/// A message to a guard.
pub(crate) enum ToGuard {
    /// Run this command with these four descriptors.
    Run(Prepared, [OwnedFd; 4]),
    /// Copy yourself; the copy is a guard with this socket and isolation.
    Fork(OwnedFd, Isolation),
    /// Act as the keeper of this control group: when the supervisor dies, end everything in it and
    /// the processes on the roll, if any.
    Keep(PathBuf, Option<OwnedFd>),
    /// Without another word by this time, send SIGKILL until no process of the job is left; the keeper, to
    /// these control groups.
    Lease(Lease),
    /// Send SIGTERM and SIGCONT to every process of the job.
    Terminate,
    /// Send SIGKILL until no process of the job is left.
    Kill,
}

/// A deadline for jobs that may not outlast a silent supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Lease {
    /// The deadline, since the boot of the machine: this clock runs while the machine sleeps. `None` for
    /// none.
    pub(crate) until: Option<Duration>,
    /// Names of the control groups below the keeper's; all of them if it is empty.
    pub(crate) groups: Vec<String>,
}

/// Longest sleep before a look at the clock, whose timers stop while the machine sleeps.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Lease {
    /// Time to the next look; `None` without a deadline, zero when it is over.
    pub(crate) fn look_in(&self) -> Option<Duration> {
        Some(self.until?.saturating_sub(boot_time()).min(LOOK_EVERY))
    }

    /// Whether the deadline is over.
    pub(crate) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= boot_time())
    }

    fn encode(&self) -> Vec<u8> {
        let nanos = self.until.map_or(0, |until| until.as_nanos());
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        let names = self.groups.join("\n");
        // More names than a message has room for: all groups, then.
        let names = if names.len() + 9 <= MESSAGE_BYTES_MAX { names } else { String::new() };
        [b"L".as_slice(), &nanos.to_le_bytes(), names.as_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (nanos, names) = bytes.split_first_chunk()?;
        let nanos = u64::from_le_bytes(*nanos);
        let names = std::str::from_utf8(names).ok()?;
        Some(Self {
            until: (nanos > 0).then(|| Duration::from_nanos(nanos)),
            groups: names.lines().map(str::to_owned).collect(),
        })
    }
}

/// A message from a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FromGuard {
    /// It runs as process `pid` and is a guard.
    Ready { pid: i32 },
    /// The command is process `leader`, which leads a process group and session with that id.
    Started { leader: i32 },
    /// The command, or the copy for it, could not be started.
    Failed(Fault),
    /// The command has exited; `others` of the job may be alive.
    Exited { status: Status, others: bool },
    /// No process of the job is left; `signalled` of them were signalled.
    Gone { signalled: u32 },
}

/// Exit status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
    /// Another process reaped it.
    Unknown,
}

impl FromGuard {
    const BYTES: usize = 8;

    /// Encodes the message without allocating.
    pub(crate) fn encode(self) -> [u8; Self::BYTES] {
        let pack = |tag: u8, flag: u8, number: i32| {
            let [a, b, c, d] = number.to_le_bytes();
            [tag, flag, 0, 0, a, b, c, d]
        };
        match self {
            Self::Ready { pid } => pack(b'r', 0, pid),
            Self::Started { leader } => pack(b's', 0, leader),
            Self::Failed(fault) => {
                let [step, a, b, c, d] = fault.encode();
                [b'f', step, 0, 0, a, b, c, d]
            }
            Self::Exited { status, others } => match status {
                Status::Code(code) => pack(b'c', others.into(), code),
                Status::Signal(signal) => pack(b'k', others.into(), signal),
                Status::Unknown => pack(b'u', others.into(), 0),
            },
            Self::Gone { signalled } => pack(b'g', 0, signalled.cast_signed()),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let &[tag, flag, _, _, a, b, c, d] = bytes else { return None };
        let number = i32::from_le_bytes([a, b, c, d]);
        let exited = |status| Self::Exited { status, others: flag != 0 };
        Some(match tag {
            b'r' => Self::Ready { pid: number },
            b's' => Self::Started { leader: number },
            b'f' => Self::Failed(Fault::decode(&[flag, a, b, c, d])?),
            b'c' => exited(Status::Code(number)),
            b'k' => exited(Status::Signal(number)),
            b'u' => exited(Status::Unknown),
            b'g' => Self::Gone { signalled: number.cast_unsigned() },
            _ => return None,
        })
    }
}

/// The supervisor's end of the socket to a guard; never blocks.
#[derive(Debug)]
pub(crate) struct ToGuardSocket(OwnedFd);

/// The guard's end of the socket.
#[derive(Debug)]
pub(crate) struct ToSupervisorSocket(OwnedFd);

/// Creates a connected pair: the supervisor's end, and the guard's, which becomes its standard
/// input.
pub(crate) fn pair() -> io::Result<(ToGuardSocket, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    ioctl_fionbio(&ours, true)?;
    Ok((ToGuardSocket(ours), theirs))
}

impl ToGuardSocket {
    /// Hands over a command and its four descriptors. The command travels in a memory file, so that
    /// its size is not limited by the socket.
    pub(crate) fn run(&self, prepared: &Prepared, tool: &[OwnedFd; 4]) -> io::Result<()> {
        let mut file = crate::nameless_file::nameless_file()?;
        file.write_all(&prepared.encode())?;
        let [stdin, stdout, stderr, progress] = tool.each_ref().map(AsFd::as_fd);
        send(self.0.as_fd(), b"R", &[file.as_fd(), stdin, stdout, stderr, progress])
    }

    /// Orders an idle guard to copy itself with this socket.
    pub(crate) fn fork(&self, theirs: &OwnedFd, isolation: Isolation) -> io::Result<()> {
        let order = match isolation {
            Isolation::None => b"F",
            Isolation::Pid => b"P",
        };
        send(self.0.as_fd(), order, &[theirs.as_fd()])
    }

    /// Orders the guard to act as the keeper of a control group.
    pub(crate) fn keep(&self, path: &Path, roll: Option<BorrowedFd<'_>>) -> io::Result<()> {
        send(self.0.as_fd(), &[b"B", path.as_os_str().as_bytes()].concat(), roll.as_slice())
    }

    /// Sets or clears a deadline.
    pub(crate) fn lease(&self, lease: &Lease) -> io::Result<()> {
        send(self.0.as_fd(), &lease.encode(), &[])
    }

    /// Orders SIGTERM.
    pub(crate) fn terminate(&self) -> io::Result<()> {
        send(self.0.as_fd(), b"T", &[])
    }

    /// Orders SIGKILL.
    pub(crate) fn kill(&self) -> io::Result<()> {
        send(self.0.as_fd(), b"K", &[])
    }

    /// The next message; `None` if the guard is dead, `WouldBlock` if there is none yet.
    pub(crate) fn receive(&self) -> io::Result<Option<FromGuard>> {
        let mut bytes = [0; FromGuard::BYTES];
        let mut fds = Vec::new();
        match receive(self.0.as_fd(), &mut bytes, &mut fds)? {
            0 => Ok(None),
            n => {
                let message = bytes.get(..n).and_then(FromGuard::decode);
                message.map(Some).ok_or_else(|| garbled("a guard"))
            }
        }
    }
}

impl AsFd for ToGuardSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl ToSupervisorSocket {
    /// The socket a guard was started with.
    pub(crate) const fn new(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Makes [`ToSupervisorSocket::receive`] non-blocking.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        Ok(ioctl_fionbio(&self.0, true)?)
    }

    /// Sends to the supervisor; a dead supervisor is reported by the next `receive`.
    pub(crate) fn send(&self, message: FromGuard) {
        let _ = send(self.0.as_fd(), &message.encode(), &[]);
    }

    /// The next message; `None` if the supervisor is dead.
    pub(crate) fn receive(&self) -> io::Result<Option<ToGuard>> {
        let mut bytes = [0; MESSAGE_BYTES_MAX];
        let mut fds = Vec::new();
        let n = receive(self.0.as_fd(), &mut bytes, &mut fds)?;
        let Some((tag, rest)) = bytes.get(..n).and_then(<[u8]>::split_first) else {
            return Ok(None);
        };
        let isolation = match (tag, fds.len()) {
            (b'F', 1) => Some(Isolation::None),
            (b'P', 1) => Some(Isolation::Pid),
            _ => None,
        };
        if let Some(isolation) = isolation {
            return Ok(fds.pop().map(|socket| ToGuard::Fork(socket, isolation)));
        }
        if *tag == b'B' {
            let path = Path::new(OsStr::from_bytes(rest)).to_owned();
            return Ok(Some(ToGuard::Keep(path, fds.pop())));
        }
        if *tag == b'L' {
            let lease = Lease::decode(rest).ok_or_else(|| garbled("the supervisor"))?;
            return Ok(Some(ToGuard::Lease(lease)));
        }
        Ok(Some(match (tag, <[OwnedFd; DESCRIPTORS]>::try_from(fds)) {
            (b'R', Ok([launch, stdin, stdout, stderr, progress])) => {
                let mut launch = File::from(launch);
                let mut bytes = Vec::new();
                launch.rewind()?;
                launch.read_to_end(&mut bytes)?;
                ToGuard::Run(Prepared::decode(&bytes)?, [stdin, stdout, stderr, progress])
            }
            (b'T', _) => ToGuard::Terminate,
            (b'K', _) => ToGuard::Kill,
            (_, Ok(_) | Err(_)) => return Err(garbled("the supervisor")),
        }))
    }
}

impl AsFd for ToSupervisorSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn garbled(from: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("invalid message from {from}"))
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "the buffer has room for every descriptor of a launch");
    }
    rustix::io::retry_on_intr(|| {
        sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    let received = match received {
        Ok(received) => received,
        // The other side died with unread messages.
        Err(Errno::CONNRESET) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Step;

    #[test]
    fn answers_are_decoded_as_sent() {
        let (ours, theirs) = pair().unwrap();
        let theirs = ToSupervisorSocket::new(theirs);
        assert_eq!(ours.receive().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let exited = |status, others| FromGuard::Exited { status, others };
        for message in [
            FromGuard::Ready { pid: 4_194_303 },
            FromGuard::Started { leader: 4_194_303 },
            FromGuard::Failed(Fault { step: Step::Cwd, errno: 2 }),
            exited(Status::Code(255), true),
            exited(Status::Signal(9), false),
            exited(Status::Unknown, true),
            FromGuard::Gone { signalled: u32::MAX },
        ] {
            theirs.send(message);
            assert_eq!(ours.receive().unwrap(), Some(message));
        }
        drop(theirs);
        assert_eq!(ours.receive().unwrap(), None);
    }

    #[test]
    fn orders_are_decoded_as_sent() {
        let (ours, theirs) = pair().unwrap();
        let theirs = ToSupervisorSocket::new(theirs);
        theirs.set_nonblocking().unwrap();
        ours.keep(Path::new("/a b"), None).unwrap();
        ours.keep(Path::new("/c"), Some(ours.as_fd())).unwrap();
        let (answered, socket) = pair().unwrap();
        ours.fork(&socket, Isolation::Pid).unwrap();
        ours.terminate().unwrap();
        ours.kill().unwrap();
        for (want, has_roll) in [("/a b", false), ("/c", true)] {
            let Ok(Some(ToGuard::Keep(path, roll))) = theirs.receive() else { panic!("{want}") };
            assert_eq!((path.as_path(), roll.is_some()), (Path::new(want), has_roll));
        }
        drop(socket);
        let Ok(Some(ToGuard::Fork(socket, Isolation::Pid))) = theirs.receive() else {
            panic!("no order to fork")
        };
        ToSupervisorSocket::new(socket).send(FromGuard::Ready { pid: 7 });
        assert_eq!(answered.receive().unwrap(), Some(FromGuard::Ready { pid: 7 }));
        assert!(matches!(theirs.receive(), Ok(Some(ToGuard::Terminate))));
        assert!(matches!(theirs.receive(), Ok(Some(ToGuard::Kill))));
        drop(ours);
        // A process that another test is starting holds a copy of the socket for a moment.
        let until = std::time::Instant::now() + Duration::from_secs(30);
        while !matches!(theirs.receive(), Ok(None)) {
            assert!(std::time::Instant::now() < until, "the end of the socket is not seen");
            std::thread::yield_now();
        }
    }
}
