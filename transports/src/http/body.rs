//! Bodies of requests: a length, or chunks.

use super::head::{Framing, bad};
use super::limits::HttpLimits;
use super::response::{Response, Status};

/// Longest line with the size of a chunk, with its extensions, which are ignored.
const SIZE_LINE_BYTES: usize = 256;

/// A body that is being read.
#[derive(Debug)]
pub(super) struct Body {
    bytes: Vec<u8>,
    state: State,
    /// Bytes of trailers so far.
    trailer_bytes: usize,
}

/// The next bytes of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// This many more bytes of the body, which has a length.
    Length(u64),
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

/// Outcome of reading on in a body.
#[derive(Debug)]
pub(super) enum Progress {
    /// The body is whole.
    Whole(Vec<u8>),
    /// More bytes are needed.
    Partial,
    /// The request is refused, and the connection cannot be used any more.
    Refused(Response),
}

impl Body {
    /// A body of which no byte was read.
    ///
    /// # Errors
    /// The response, when its length is beyond the limit.
    pub(super) fn new(framing: Framing, limits: &HttpLimits) -> Result<Self, Response> {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) if length > limits.body_bytes as u64 => {
                return Err(too_large(limits));
            }
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
        };
        Ok(Self { bytes: Vec::new(), state, trailer_bytes: 0 })
    }

    /// Bytes of the body so far.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes bytes of the body from the front of `input`, whose first `read` bytes are done with.
    pub(super) fn take(&mut self, input: &[u8], read: &mut usize, limits: &HttpLimits) -> Progress {
        loop {
            let rest = input.get(*read..).unwrap_or_default();
            match self.state {
                State::Done => return Progress::Whole(std::mem::take(&mut self.bytes)),
                State::Length(left) => match self.copy(rest, left, read) {
                    0 => self.state = State::Done,
                    left => {
                        self.state = State::Length(left);
                        return Progress::Partial;
                    }
                },
                State::Chunk(left) => match self.copy(rest, left, read) {
                    0 => self.state = State::ChunkEnd,
                    left => {
                        self.state = State::Chunk(left);
                        return Progress::Partial;
                    }
                },
                State::ChunkEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        *read += 2;
                        self.state = State::Size;
                    }
                    [] | [b'\r'] => return Progress::Partial,
                    [..] => return Progress::Refused(bad("a chunk ends with CR LF")),
                },
                State::Size => match self.take_size(rest, read, limits) {
                    Ok(true) => {}
                    Ok(false) => return Progress::Partial,
                    Err(response) => return Progress::Refused(response),
                },
                State::Trailers => match self.take_trailer(rest, read, limits) {
                    Ok(true) => {}
                    Ok(false) => return Progress::Partial,
                    Err(response) => return Progress::Refused(response),
                },
            }
        }
    }

    /// Copies up to `left` bytes of the body; returns how many are still missing.
    fn copy(&mut self, rest: &[u8], left: u64, read: &mut usize) -> u64 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        self.bytes.extend_from_slice(rest.get(..count).unwrap_or_default());
        *read += count;
        left - count as u64
    }

    /// Reads the size of a chunk; false when the line is not there yet.
    fn take_size(
        &mut self,
        rest: &[u8],
        read: &mut usize,
        limits: &HttpLimits,
    ) -> Result<bool, Response> {
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
        let size = size.ok_or_else(|| bad("the size of a chunk is a hexadecimal number"))?;
        if size > limits.body_bytes as u64 - self.bytes.len() as u64 {
            return Err(too_large(limits));
        }
        self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
        Ok(true)
    }

    /// Reads a trailer, which is ignored; false when the line is not there yet.
    fn take_trailer(
        &mut self,
        rest: &[u8],
        read: &mut usize,
        limits: &HttpLimits,
    ) -> Result<bool, Response> {
        let left = limits.head_bytes.saturating_sub(self.trailer_bytes);
        let Some(line) = take_line(rest, left, "the trailers of a request")? else {
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
    max: usize,
    subject: &'static str,
) -> Result<Option<&'a [u8]>, Response> {
    match rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        Some(at) if at > max => Err(bad(&format!("{subject}: more than {max} bytes"))),
        Some(at) => match rest.get(at..).unwrap_or_default() {
            [b'\r', b'\n', ..] => Ok(rest.get(..at)),
            [b'\r'] => Ok(None),
            _ => Err(bad(&format!("{subject}: a line ends with CR LF"))),
        },
        None if rest.len() > max => Err(bad(&format!("{subject}: more than {max} bytes"))),
        None => Ok(None),
    }
}

fn too_large(limits: &HttpLimits) -> Response {
    let text = format!("a body has at most {} bytes", limits.body_bytes);
    Response::text(Status::ContentTooLarge, &text)
}
