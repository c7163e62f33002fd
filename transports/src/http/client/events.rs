//! Server-sent events from bytes, as the HTML standard reads them.

use std::mem::take;

use super::error::ResponseError;

/// Most bytes of an id, which is kept for the life of its stream and sent back in a header.
const ID_BYTES_MAX: usize = 8 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its id, if it has one of its own; empty if it takes back that of the events before it.
    pub id: Option<String>,
    /// Its type; empty for a plain message.
    pub kind: String,
    /// Its lines of data, with a line feed between two. UTF-8 unless the server errs.
    pub data: Vec<u8>,
}

/// Reads the events of one stream. Bytes may be cut anywhere.
#[derive(Debug)]
pub struct EventReader {
    bytes_max: usize,
    /// The line that has begun.
    line: Vec<u8>,
    is_first_line: bool,
    /// The line before ended with CR: an LF belongs to its end.
    after_cr: bool,
    data: Vec<u8>,
    has_data: bool,
    kind: String,
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<u64>,
}

impl EventReader {
    /// A reader of a stream whose events have at most this many bytes.
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            is_first_line: true,
            after_cr: false,
            data: Vec::new(),
            has_data: false,
            kind: String::new(),
            id: None,
            last_id: None,
            retry: None,
        }
    }

    /// The id behind which a stream is resumed; also of events without data.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Milliseconds to wait before the stream is resumed, if the server said so.
    #[must_use]
    pub const fn retry(&self) -> Option<u64> {
        self.retry
    }

    /// Bytes that are held of the event that has begun.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// Takes bytes, and hands over the events that they complete.
    ///
    /// # Errors
    /// When an event is longer than the limit. Events before it were handed over.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn FnMut(Event),
    ) -> Result<(), ResponseError> {
        let mut rest = bytes;
        while let [first, after @ ..] = rest {
            if take(&mut self.after_cr) && *first == b'\n' {
                rest = after;
                continue;
            }
            let Some(at) = memchr::memchr2(b'\r', b'\n', rest) else {
                return self.extend_line(rest);
            };
            let (line, end) = rest.split_at(at);
            self.extend_line(line)?;
            self.after_cr = end.first() == Some(&b'\r');
            rest = end.get(1..).unwrap_or_default();
            self.end_line(sink)?;
        }
        Ok(())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), ResponseError> {
        if self.line.len() + bytes.len() + self.data.len() > self.bytes_max {
            return Err(ResponseError::EventTooLarge { bytes_max: self.bytes_max });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), ResponseError> {
        let mut line = take(&mut self.line);
        if take(&mut self.is_first_line) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        if line.is_empty() {
            self.end_event(sink);
        } else {
            self.take_field(&line)?;
        }
        if line.capacity() <= KEPT {
            line.clear();
            self.line = line;
        }
        Ok(())
    }

    fn take_field(&mut self, line: &[u8]) -> Result<(), ResponseError> {
        let at = memchr::memchr(b':', line).unwrap_or(line.len());
        let (name, value) = line.split_at(at);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                if take(&mut self.has_data) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.kind = String::from_utf8_lossy(value).into_owned(),
            b"id" if value.len() > ID_BYTES_MAX => {
                let (bytes, bytes_max) = (value.len(), ID_BYTES_MAX);
                return Err(ResponseError::EventIdTooLong { bytes, bytes_max });
            }
            b"id" if !value.contains(&0) => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                self.retry = number.or(self.retry);
            }
            _ => {}
        }
        Ok(())
    }

    fn end_event(&mut self, sink: &mut dyn FnMut(Event)) {
        let (id, kind) = (self.id.take(), take(&mut self.kind));
        if id.is_some() {
            self.last_id.clone_from(&id);
        }
        if take(&mut self.has_data) {
            sink(Event { id, kind, data: take(&mut self.data) });
        }
    }
}

/// Bytes of room that the line keeps between two events.
const KEPT: usize = 4 * 1024;
