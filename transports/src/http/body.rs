//! Bodies of messages: a length, chunks, or every byte up to the end of the connection.

use std::fmt;

/// Longest line with the size of a chunk, with its extensions, which are ignored.
const SIZE_LINE_BYTES: usize = 256;

/// The way in which the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// This many bytes; 0 for none.
    Length(u64),
    /// Chunks, up to one of no bytes.
    Chunked,
    /// Every byte up to the end of the connection; for responses alone.
    UntilClose,
}

/// Bounds of a body, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// The decoded body.
    pub(super) body: u64,
    /// Trailers.
    pub(super) trailers: usize,
}

/// A body that is being read.
#[derive(Debug)]
pub(super) struct Body {
    state: State,
    /// Bytes of the body so far.
    taken: u64,
    /// Bytes of trailers so far.
    trailer_bytes: usize,
    bounds: Bounds,
}

/// The next bytes of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// This many more bytes of the body, which has a length.
    Length(u64),
    /// Bytes of a body without a length.
    UntilClose,
    /// A line with the size of the next chunk.
    Size,
    /// This many more bytes of a chunk.
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    /// Lines up to an empty one.
    Trailers,
    Done,
}

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// It is longer than the limit.
    TooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// The size of a chunk is no number.
    ChunkSize {
        /// The text in its place, with escapes.
        found: String,
    },
    /// No line end follows a chunk.
    ChunkEnd,
    /// A line is longer than the limit.
    LongLine {
        /// Its place: "the size of a chunk".
        subject: &'static str,
        /// The limit.
        bytes_max: usize,
    },
    /// A line does not end with CR LF.
    LineEnd {
        /// Its place: "the size of a chunk".
        subject: &'static str,
    },
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes_max } => write!(f, "a body has at most {bytes_max} bytes"),
            Self::ChunkSize { found } => {
                write!(f, "the size of a chunk is a hexadecimal number, not \"{found}\"")
            }
            Self::ChunkEnd => f.write_str("a chunk ends with CR LF"),
            Self::LongLine { subject, bytes_max } => {
                write!(f, "{subject}: more than {bytes_max} bytes")
            }
            Self::LineEnd { subject } => write!(f, "{subject}: a line ends with CR LF"),
        }
    }
}

impl std::error::Error for BodyError {}

impl Body {
    /// A body of which no byte was read.
    ///
    /// # Errors
    /// When its length is beyond the limit.
    pub(super) const fn new(framing: Framing, bounds: Bounds) -> Result<Self, BodyError> {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) if length > bounds.body => {
                return Err(BodyError::TooLarge { bytes_max: bounds.body });
            }
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
            Framing::UntilClose => State::UntilClose,
        };
        Ok(Self { state, taken: 0, trailer_bytes: 0, bounds })
    }

    /// Bytes of the body so far.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether the end of the connection is the end of the body.
    pub(super) const fn ends_with_connection(&self) -> bool {
        matches!(self.state, State::UntilClose)
    }

    /// Takes bytes of the body from the front of `input`, whose first `read` bytes are done with,
    /// and puts the decoded ones into `out`. True when the body is whole.
    ///
    /// # Errors
    /// When the connection cannot be used any more. Bytes before the error are in `out`.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        read: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, BodyError> {
        loop {
            let rest = input.get(*read..).unwrap_or_default();
            match self.state {
                State::Done => return Ok(true),
                State::UntilClose if self.room() < rest.len() as u64 => {
                    return Err(self.too_large());
                }
                State::UntilClose => {
                    self.copy(rest, u64::MAX, read, out);
                    return Ok(false);
                }
                State::Length(left) => match self.copy(rest, left, read, out) {
                    0 => self.state = State::Done,
                    left => {
                        self.state = State::Length(left);
                        return Ok(false);
                    }
                },
                State::Chunk(left) => match self.copy(rest, left, read, out) {
                    0 => self.state = State::ChunkEnd,
                    left => {
                        self.state = State::Chunk(left);
                        return Ok(false);
                    }
                },
                State::ChunkEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        *read += 2;
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => return Ok(false),
                    [..] => return Err(BodyError::ChunkEnd),
                },
                State::Size => match self.take_size(rest, read)? {
                    true => {}
                    false => return Ok(false),
                },
                State::Trailers => match self.take_trailer(rest, read)? {
                    true => {}
                    false => return Ok(false),
                },
            }
        }
    }

    /// Bytes that the body may still have.
    const fn room(&self) -> u64 {
        self.bounds.body.saturating_sub(self.taken)
    }

    const fn too_large(&self) -> BodyError {
        BodyError::TooLarge { bytes_max: self.bounds.body }
    }

    /// Copies up to `left` bytes of the body; returns how many are still missing.
    fn copy(&mut self, rest: &[u8], left: u64, read: &mut usize, out: &mut Vec<u8>) -> u64 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        out.extend_from_slice(rest.get(..count).unwrap_or_default());
        *read += count;
        self.taken += count as u64;
        left - count as u64
    }

    /// Reads the size of a chunk; false when the line is not there yet.
    fn take_size(&mut self, rest: &[u8], read: &mut usize) -> Result<bool, BodyError> {
        let Some(line) = take_line(rest, SIZE_LINE_BYTES, "the size of a chunk")? else {
            return Ok(false);
        };
        *read += line.len() + 2;
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let digits = digits.trim_ascii_end();
        let is_size =
            !digits.is_empty() && digits.len() <= 15 && digits.iter().all(u8::is_ascii_hexdigit);
        let size = std::str::from_utf8(digits).ok().filter(|_| is_size);
        let size = size.and_then(|size| u64::from_str_radix(size, 16).ok());
        let size =
            size.ok_or_else(|| BodyError::ChunkSize { found: digits.escape_ascii().to_string() })?;
        if size > self.room() {
            return Err(self.too_large());
        }
        self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
        Ok(true)
    }

    /// Reads a trailer, which is ignored; false when the line is not there yet.
    fn take_trailer(&mut self, rest: &[u8], read: &mut usize) -> Result<bool, BodyError> {
        let left = self.bounds.trailers.saturating_sub(self.trailer_bytes);
        let Some(line) = take_line(rest, left, "the trailers of a message")? else {
            return Ok(false);
        };
        *read += line.len() + 2;
        self.trailer_bytes += line.len() + 2;
        if line.is_empty() {
            self.state = State::Done;
        }
        Ok(true)
    }
}

/// The first line of `rest` without its line end; `None` when it is not whole.
fn take_line<'a>(
    rest: &'a [u8],
    bytes_max: usize,
    subject: &'static str,
) -> Result<Option<&'a [u8]>, BodyError> {
    match memchr::memchr2(b'\r', b'\n', rest) {
        Some(at) if at > bytes_max => Err(BodyError::LongLine { subject, bytes_max }),
        Some(at) => match rest.get(at..).unwrap_or_default() {
            [b'\r', b'\n', ..] => Ok(rest.get(..at)),
            [b'\r'] => Ok(None),
            _ => Err(BodyError::LineEnd { subject }),
        },
        None if rest.len() > bytes_max => Err(BodyError::LongLine { subject, bytes_max }),
        None => Ok(None),
    }
}
