//! Raw lines to and from a subject, over a pair of descriptors.
//!
//! Unlike [`ceased_client::Client`], it sends malformed input, chooses any id, keeps late answers,
//! and can leave its peer's output unread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use ceased_client::LINE_BYTES_MAX;
use ceased_client::io::{NonblockingWriter, is_gone, poll, read};
use rustix::event::{PollFd, PollFlags};
use serde_json::Value;

use super::room::Room;
use super::text;

const PIECE_BYTES: usize = 64 * 1024;
/// Lines kept that are no JSON object.
const GARBAGE_MAX: usize = 8;

/// Result of a wait.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message.
    Message(Value),
    /// The peer has closed its output.
    Closed,
    /// Nothing came in time.
    TimedOut,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    input: Option<OwnedFd>,
    output: Option<OwnedFd>,
    writer: NonblockingWriter,
    partial: Vec<u8>,
    ready: VecDeque<Value>,
    is_closed: bool,
    /// Bytes that may still be received.
    room: Room,
    /// Lines that are no JSON object or array.
    pub(crate) garbage: Vec<String>,
}

impl Pipe {
    /// A connection that counts as closed once more than `max` bytes were received.
    pub(crate) fn new(input: OwnedFd, output: OwnedFd, max: u64) -> io::Result<Self> {
        Ok(Self {
            writer: NonblockingWriter::of(output.as_fd())?,
            input: Some(input),
            output: Some(output),
            partial: Vec::new(),
            ready: VecDeque::new(),
            is_closed: false,
            room: Room::new(max),
            garbage: Vec::new(),
        })
    }

    /// Whether a message is there that was not taken yet.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The fact that the peer has written too much, if it has.
    pub(crate) fn flood(&self) -> Option<String> {
        self.room.flood()
    }

    /// Closes the direction to the peer.
    pub(crate) fn close_output(&mut self) {
        if let (NonblockingWriter::Socket, Some(socket)) = (self.writer, &self.output) {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
        self.output = None;
    }

    /// Closes both directions, as the kernel does when it kills a client.
    pub(crate) fn close(&mut self) {
        self.output = None;
        self.input = None;
        self.is_closed = true;
    }

    /// Sends bytes; meanwhile reads if `reads`. Returns the rest that the peer did not take in time.
    pub(crate) fn send<'b>(&mut self, bytes: &'b [u8], until: Instant, reads: bool) -> &'b [u8] {
        let mut unsent = bytes;
        while !unsent.is_empty() {
            let Some(output) = &self.output else { return unsent };
            match self.writer.write(output.as_fd(), unsent) {
                Ok(Some(count)) => {
                    unsent = unsent.get(count..).unwrap_or_default();
                    continue;
                }
                Ok(None) => {}
                Err(_) => return unsent,
            }
            if until <= Instant::now() || !self.turn(until, reads, true) {
                return unsent;
            }
        }
        unsent
    }

    /// The next message, until then.
    pub(crate) fn receive(&mut self, until: Instant) -> Received {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Received::Message(message);
            }
            if self.is_closed {
                return Received::Closed;
            }
            if until <= Instant::now() || !self.turn(until, true, false) {
                return Received::TimedOut;
            }
        }
    }

    /// Waits once for room or input, and reads. False if the descriptors fail.
    fn turn(&mut self, until: Instant, reads: bool, writes: bool) -> bool {
        let mut fds = Vec::new();
        let input = self.input.as_ref().filter(|_| reads && !self.is_closed);
        if let Some(input) = input {
            fds.push(PollFd::new(input, PollFlags::IN));
        }
        if let (true, Some(output)) = (writes, &self.output) {
            fds.push(PollFd::new(output, PollFlags::OUT));
        }
        if poll(&mut fds, Some(until)).is_err() {
            return false;
        }
        let is_readable = input.is_some() && fds.first().is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        if is_readable {
            self.read();
        }
        true
    }

    fn read(&mut self) {
        let mut piece = vec![0; PIECE_BYTES];
        let Some(input) = &self.input else { return };
        match read(input.as_fd(), &mut piece) {
            Ok(Some(0)) => self.is_closed = true,
            Ok(Some(count)) if self.room.take(count) => {
                self.take(piece.get(..count).unwrap_or_default());
            }
            Ok(Some(_)) => self.is_closed = true,
            Ok(None) => {}
            Err(why) => self.is_closed = is_gone(&why) || self.is_closed,
        }
    }

    fn take(&mut self, piece: &[u8]) {
        self.partial.extend_from_slice(piece);
        let Some(end) = memchr::memrchr(b'\n', &self.partial) else {
            if self.partial.len() > LINE_BYTES_MAX {
                self.refuse(&format!("a line longer than {LINE_BYTES_MAX} bytes"));
                self.partial.clear();
            }
            return;
        };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        for line in whole.split(|byte| *byte == b'\n') {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if !self.room.take_values(line) {
                self.is_closed = true;
                return;
            }
            match serde_json::from_slice::<Value>(line) {
                Ok(Value::Array(batch)) => self.ready.extend(batch),
                Ok(message @ Value::Object(_)) => self.ready.push_back(message),
                Ok(_) | Err(_) => self.refuse(&String::from_utf8_lossy(line)),
            }
        }
    }

    fn refuse(&mut self, line: &str) {
        if self.garbage.len() < GARBAGE_MAX {
            self.garbage.push(text::short(line));
        }
    }
}
