//! The two ends of a byte stream, cut into lines: read when there is something, written when there
//! is room, and never a moment longer.
//!
//! Descriptors are left in the mode they came in: O_NONBLOCK belongs to the open file, which a
//! standard stream shares with the shell that started us.

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

/// Longest line sent or taken, in bytes: what a ceased daemon takes by default.
pub const LINE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most bytes that may wait to be sent. One longest line and room for answers to the server.
const OUTBOX_BYTES_MAX: usize = LINE_BYTES_MAX + 1024 * 1024;
/// Read at once; a progress line needs some hundred bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// How long a peer that takes no more bytes may still be silent before it counts as gone.
const LAST_WORDS: Duration = Duration::from_secs(1);

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

    /// Appends one line to what is to be sent.
    pub(crate) fn push(&mut self, line: &[u8]) -> Result<(), Error> {
        if line.len() > LINE_BYTES_MAX {
            return Err(Refusal::TooLong { bytes: line.len(), limit: LINE_BYTES_MAX }.into());
        }
        if self.outbox.len() - self.sent + line.len() > OUTBOX_BYTES_MAX {
            return Err(Error::Protocol(format!(
                "it does not read what it is sent; {} bytes wait already",
                self.outbox.len() - self.sent
            )));
        }
        self.outbox.drain(..self.sent);
        self.sent = 0;
        self.outbox.extend_from_slice(line);
        self.outbox.push(b'\n');
        Ok(())
    }

    /// True while something waits to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.output_broken && self.sent < self.outbox.len()
    }

    /// Waits once, also for a wish to stop, then sends and reads what is possible now.
    ///
    /// # Errors
    /// [`Error::Closed`] once everything the server sent was handed to `sink`.
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
        let last_words = self.output_broken.then(|| Instant::now() + LAST_WORDS);
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

    /// Sends as much as there is room for. A peer that reads no more may still have said something,
    /// so that is no error yet.
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
                    // A server that died in the middle of a line has said nothing with it.
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
        // Without a reader this must return, with a part of it sent.
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
    fn a_full_socket_in_blocking_mode_does_not_block() {
        let (read, write) = UnixStream::pair().unwrap();
        whole_transfer(read.into(), write.into(), NonblockingWriter::Socket);
    }

    #[test]
    fn a_full_pipe_in_blocking_mode_does_not_block() {
        let (read, write) = io::pipe().unwrap();
        whole_transfer(read.into(), write.into(), NonblockingWriter::Pipe);
    }

    #[test]
    fn what_a_peer_said_before_it_closed_is_heard() {
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
    fn a_line_too_long_is_refused_and_an_outbox_is_bounded() {
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
