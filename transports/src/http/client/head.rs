//! Heads of responses.

use std::mem::MaybeUninit;

use super::error::{ResponseError, shown};
use super::limits::ClientLimits;
use crate::http::body::Framing;
use crate::http::fields::{self, Fields, Version};
use crate::http::sse;

/// Most headers that a limit can permit; their places are on the stack.
const HEADERS_MAX: usize = 128;

/// Head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code.
    pub status: u16,
    /// Minor version.
    pub version: Version,
    fields: Fields,
}

impl ResponseHead {
    /// Value of the header with this name (lower case), if the response has it exactly once and it
    /// is ASCII.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.fields.header(name)
    }

    /// ASCII values of the header with this name (lower case), in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.all(name)
    }

    /// Media type of the body, without parameters; empty if the response names none.
    #[must_use]
    pub fn media_type(&self) -> &str {
        let value = self.fields.all("content-type").next().unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// Whether the body is a stream of events.
    #[must_use]
    pub fn is_event_stream(&self) -> bool {
        self.media_type().eq_ignore_ascii_case(sse::CONTENT_TYPE)
    }

    /// Whether the connection may carry another request behind this response, as far as the server
    /// says.
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        self.fields.keep_alive(self.version)
    }

    pub(super) const fn is_interim(&self) -> bool {
        matches!(self.status, 100..=199)
    }

    /// The one way in which the end of the body is told, of a response to a HEAD request or another.
    pub(super) fn framing(&self, to_head: bool) -> Result<Framing, ResponseError> {
        let length = self.length()?;
        let mut codings = self.fields.values("transfer-encoding");
        let coding = codings.next();
        if to_head || matches!(self.status, 204 | 304) {
            return Ok(Framing::Length(0));
        }
        match (length, coding) {
            (Some(_), Some(_)) => Err(ResponseError::LengthAndCoding),
            (Some(length), None) => Ok(Framing::Length(length)),
            (None, None) => Ok(Framing::UntilClose),
            (None, Some(coding))
                if coding.eq_ignore_ascii_case(b"chunked")
                    && codings.next().is_none()
                    && self.version == Version::Http11 =>
            {
                Ok(Framing::Chunked)
            }
            (None, Some(coding)) => Err(ResponseError::TransferEncoding { found: shown(coding) }),
        }
    }

    /// The length of the body. The same length said twice is one.
    fn length(&self) -> Result<Option<u64>, ResponseError> {
        let mut found = None;
        let values = self.fields.values("content-length");
        for value in values.flat_map(|value| value.split(|byte| *byte == b',')) {
            let value = value.trim_ascii();
            let length = fields::length(value)
                .ok_or_else(|| ResponseError::BadLength { found: shown(value) })?;
            match found {
                Some(first) if first != length => {
                    return Err(ResponseError::TwoLengths { first, other: length });
                }
                Some(_) | None => found = Some(length),
            }
        }
        Ok(found)
    }

    /// A content-encoding that is none.
    pub(super) fn check_encoding(&self) -> Result<(), ResponseError> {
        let mut values = self.fields.values("content-encoding");
        match values.find(|value| !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")) {
            Some(value) => Err(ResponseError::ContentEncoding { found: shown(value) }),
            None => Ok(()),
        }
    }
}

/// Reads a head from the front of `input`, of at most `bytes_max` bytes; the head, and the bytes it
/// took. `None` when it is not whole.
pub(super) fn parse(
    input: &[u8],
    bytes_max: usize,
    limits: &ClientLimits,
) -> Result<Option<(ResponseHead, usize)>, ResponseError> {
    let headers_max = limits.headers.min(HEADERS_MAX);
    let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let room = room.get_mut(..headers_max).unwrap_or_default();
    let mut response = httparse::Response::new(&mut []);
    let window = input.get(..bytes_max).unwrap_or(input);
    let parser = httparse::ParserConfig::default();
    match parser.parse_response_with_uninit_headers(&mut response, window, room) {
        Ok(httparse::Status::Complete(read)) => {
            let head = ResponseHead {
                status: response.code.unwrap_or_default(),
                version: Version::of(response.version),
                fields: Fields::copy(response.headers),
            };
            Ok(Some((head, read)))
        }
        Ok(httparse::Status::Partial) if window.len() >= bytes_max => {
            Err(ResponseError::HeadTooLarge { bytes_max: limits.head_bytes })
        }
        Ok(httparse::Status::Partial) => Ok(None),
        Err(httparse::Error::TooManyHeaders) => Err(ResponseError::TooManyHeaders { headers_max }),
        Err(why) => Err(ResponseError::NotHttp { why, begin: shown_line(input) }),
    }
}

/// The beginning of the first line, which tells another protocol.
fn shown_line(input: &[u8]) -> String {
    const LINE: usize = 16;
    let input = input.get(..LINE).unwrap_or(input);
    shown(input.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default())
}
