//! A line-oriented, non-blocking connection over two descriptors.
//!
//! The descriptors keep their blocking modes: O_NONBLOCK belongs to the open file description,
//! which a standard stream shares with the parent shell.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::{Frame, Inbox};
use rustix::event::{PollFd, PollFlags};

use crate::error::{Error, Refusal};
use crate::io::{NonblockingWriter, is_gone, poll, read};
use crate::wait::Interrupts;

/// Maximum length of a line in bytes: the default limit of a ceased daemon.
pub const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum number of bytes waiting to be sent: one line of maximum length and answers to the
/// server.
const OUTBOX_BYTES_MAX: usize = LINE_BYTES_MAX + 1024 * 1024;
/// Read buffer size; a progress line needs some hundred bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Time that a peer with a closed receive side may be silent before it counts as disconnected.
const SILENT_AFTER_CLOSE: Duration = Duration::from_secs(1);

/// A connection: lines in, lines out.
pub(crate) struct Wire {
    input: OwnedFd,
    output: OwnedFd,
    nozzle: NonblockingWriter,
    inbox: Inbox,
    piece: Box<[u8]>,
    outbox: Vec<u8>,
    sent: usize,
    input_ended: bool,
    output_broken: bool,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wire {:?} {:?}", self.input, self.output)
    }
}

impl Wire {
    pub(crate) fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            nozzle: NonblockingWriter::of(output.as_fd())?,
            input,
            output,
            inbox: Inbox::new(FrameLimits { frame_bytes_max: LINE_BYTES_MAX }),
            piece: vec![0; PIECE_BYTES].into(),
            outbox: Vec::new(),
            sent: 0,
            input_ended: false,
            output_broken: false,
        })
    }

    /// Appends one line to the send buffer.
    pub(crate) fn push(&mut self, line: &[u8]) -> Result<(), Error> {
        if line.len() > LINE_BYTES_MAX {
            return Err(Refusal::TooLong { bytes: line.len(), limit: LINE_BYTES_MAX }.into());
        }
        if self.outbox.len() - self.sent + line.len() > OUTBOX_BYTES_MAX {
            return Err(Error::Protocol(format!(
                "the server does not read; {} bytes are pending",
                self.outbox.len() - self.sent
            )));
        }
        self.outbox.drain(..self.sent);
        self.sent = 0;
        self.outbox.extend_from_slice(line);
        self.outbox.push(b'\n');
        Ok(())
    }

    /// Whether bytes wait to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.output_broken && self.sent < self.outbox.len()
    }

    /// Waits once, also for an interrupt, then sends and reads without blocking.
    ///
    /// # Errors
    /// [`Error::Closed`] after everything the server sent was passed to `sink`.
    pub(crate) fn turn(
        &mut self,
        deadline: Option<Instant>,
        interrupts: Option<&Interrupts>,
        sink: &mut dyn FnMut(Frame<'_>),
    ) -> Result<(), Error> {
        if self.input_ended {
            return Err(Error::Closed);
        }
        let mut fds = vec![PollFd::new(&self.input, PollFlags::IN)];
        if self.has_unsent() {
            fds.push(PollFd::new(&self.output, PollFlags::OUT));
        }
        if let Some(interrupts) = interrupts {
            fds.push(PollFd::new(interrupts, PollFlags::IN));
        }
        let last_words = self.output_broken.then(|| Instant::now() + SILENT_AFTER_CLOSE);
        poll(&mut fds, deadline.into_iter().chain(last_words).min()).map_err(Error::Io)?;
        let readable = fds.first().is_some_and(|fd| !fd.revents().is_empty());
        if !readable && last_words.is_some_and(|at| at <= Instant::now()) {
            self.input_ended = true;
        }
        if self.has_unsent() {
            self.send()?;
        }
        if readable {
            self.receive(sink)?;
        }
        Ok(())
    }

    /// Sends without blocking. A peer that stopped reading may still have sent messages, so a
    /// broken pipe is not an error yet.
    pub(crate) fn send(&mut self) -> Result<(), Error> {
        while self.has_unsent() {
            let unsent = self.outbox.get(self.sent..).unwrap_or_default();
            match self.nozzle.write(self.output.as_fd(), unsent) {
                Ok(None) => break,
                Ok(Some(count)) => self.sent += count,
                Err(why) if is_gone(&why) => self.output_broken = true,
                Err(why) => return Err(Error::Io(why)),
            }
        }
        if !self.has_unsent() {
            self.outbox = Vec::new();
            self.sent = 0;
        }
        Ok(())
    }

    fn receive(&mut self, sink: &mut dyn FnMut(Frame<'_>)) -> Result<(), Error> {
        match read(self.input.as_fd(), &mut self.piece) {
            Ok(None) => {}
            Ok(Some(0)) => {
                self.input_ended = true;
                self.inbox.finish(&mut |last| {
                    // An incomplete last line is dropped.
                    if matches!(last, Frame::Line(line) if is_json(line)) {
                        sink(last);
                    }
                });
            }
            Ok(Some(count)) => self.inbox.feed(self.piece.get(..count).unwrap_or_default(), sink),
            Err(why) if is_gone(&why) => self.input_ended = true,
            Err(why) => return Err(Error::Io(why)),
        }
        Ok(())
    }
}

fn is_json(line: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn whole_transfer(read: OwnedFd, write: OwnedFd, expected: NonblockingWriter) {
        let spare = UnixStream::pair().unwrap();
        let mut wire = Wire::new(spare.0.into(), write).unwrap();
        assert_eq!(wire.nozzle, expected);
        let line = vec![b'x'; 3_000_000];
        wire.push(&line).unwrap();
        // Must return with a partial write although there is no reader.
        wire.send().unwrap();
        assert!(wire.has_unsent());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            std::fs::File::from(read).read_to_end(&mut all).unwrap();
            all
        });
        while wire.has_unsent() {
            wire.turn(None, None, &mut |_| {}).unwrap();
        }
        drop(wire);
        assert_eq!(reader.join().unwrap().len(), line.len() + 1);
    }

    #[test]
    fn full_blocking_socket_does_not_block() {
        let (read, write) = UnixStream::pair().unwrap();
        whole_transfer(read.into(), write.into(), NonblockingWriter::Socket);
    }

    #[test]
    fn full_blocking_pipe_does_not_block() {
        let (read, write) = io::pipe().unwrap();
        whole_transfer(read.into(), write.into(), NonblockingWriter::Pipe);
    }

    #[test]
    fn messages_before_a_disconnect_are_received() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(ours.try_clone().unwrap().into(), ours.into()).unwrap();
        rustix::io::write(&theirs, b"{\"a\":1}\n{\"b\":2}\n").unwrap();
        drop(theirs);
        wire.push(b"{}").unwrap();
        let mut lines = Vec::new();
        let end = loop {
            let mut sink = |frame: Frame<'_>| lines.push(format!("{frame:?}"));
            match wire.turn(None, None, &mut sink) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(end, Error::Closed), "{end}");
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn overlong_line_is_rejected_and_outbox_is_bounded() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::new(ours.try_clone().unwrap().into(), ours.into()).unwrap();
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        let refused = wire.push(&long).unwrap_err().to_string();
        assert!(refused.contains("16777217") && refused.contains("16777216"), "{refused}");
        wire.push(&long[1..]).unwrap();
        let full = wire.push(&long[1..]).unwrap_err();
        assert!(matches!(full, Error::Protocol(_)), "{full}");
    }
}
