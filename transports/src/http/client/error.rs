//! Why a response cannot be read.

use std::fmt;

use crate::http::body::BodyError;

/// Why a response cannot be read. Its connection is of no use then.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponseError {
    /// The bytes are no head of HTTP/1.
    NotHttp {
        /// Their error.
        why: httparse::Error,
        /// The first of them, with escapes.
        begin: String,
    },
    /// A head is longer than the limit, with the interim responses before it.
    HeadTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// A head has more headers than the limit.
    TooManyHeaders {
        /// The limit.
        headers_max: usize,
    },
    /// The server switches to another protocol, for which no request asked.
    Switched,
    /// A length is no number.
    BadLength {
        /// The value, with escapes.
        found: String,
    },
    /// Two lengths of one body differ.
    TwoLengths {
        /// The first one.
        first: u64,
        /// The other one.
        other: u64,
    },
    /// One body has a length and a transfer-encoding.
    LengthAndCoding,
    /// A transfer-encoding other than chunked.
    TransferEncoding {
        /// The value, with escapes.
        found: String,
    },
    /// A content-encoding, for which no request asked.
    ContentEncoding {
        /// The value, with escapes.
        found: String,
    },
    /// The body cannot be read.
    Body(BodyError),
    /// An event is longer than the limit.
    EventTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The id of an event is longer than the limit.
    EventIdTooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The server closed the connection without a response.
    NoResponse,
    /// The server closed the connection inside a head.
    CutHead {
        /// Bytes of the head that were received.
        received: usize,
    },
    /// The server closed the connection before the end of a body.
    CutBody {
        /// Bytes of the body that were received.
        received: u64,
    },
}

impl fmt::Display for ResponseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttp { why, begin } => {
                write!(f, "the answer \"{begin}\" is no response of HTTP/1.1: {why}")?;
                // The alert of a server to which a request is no TLS.
                let is_tls = begin.starts_with(r"\x15\x03");
                if is_tls { f.write_str("; it speaks TLS: use https://") } else { Ok(()) }
            }
            Self::HeadTooLarge { bytes_max } => {
                write!(f, "the head of the response has more than {bytes_max} bytes")
            }
            Self::TooManyHeaders { headers_max } => {
                write!(f, "the response has more than {headers_max} headers")
            }
            Self::Switched => f.write_str(
                "the response has status 101, and no request asked for another protocol",
            ),
            Self::BadLength { found } => {
                write!(f, "the content-length \"{found}\" of the response is no number")
            }
            Self::TwoLengths { first, other } => {
                write!(f, "the response has two lengths, {first} and {other}")
            }
            Self::LengthAndCoding => {
                f.write_str("the response has both content-length and transfer-encoding")
            }
            Self::TransferEncoding { found } => write!(
                f,
                "the response has the transfer-encoding \"{found}\"; chunked of HTTP/1.1 is the one \
                 that is read"
            ),
            Self::ContentEncoding { found } => write!(
                f,
                "the response has the content-encoding \"{found}\"; identity is the one that was \
                 asked for"
            ),
            Self::Body(why) => write!(f, "the body of the response: {why}"),
            Self::EventTooLarge { bytes_max } => {
                write!(f, "an event of the response has more than {bytes_max} bytes")
            }
            Self::EventIdTooLong { bytes, bytes_max } => {
                write!(f, "the id of an event has {bytes} bytes, at most {bytes_max} are kept")
            }
            Self::NoResponse => f.write_str("the server closed the connection without a response"),
            Self::CutHead { received } => {
                write!(f, "the server closed the connection after {received} bytes of a head")
            }
            Self::CutBody { received } => {
                write!(f, "the server closed the connection after {received} bytes of a body")
            }
        }
    }
}

impl std::error::Error for ResponseError {}

impl From<BodyError> for ResponseError {
    fn from(why: BodyError) -> Self {
        Self::Body(why)
    }
}

/// Bytes of a wrong value that are shown.
const SHOWN: usize = 64;

/// The beginning of a wrong value, with escapes.
pub(super) fn shown(value: &[u8]) -> String {
    value.get(..SHOWN).unwrap_or(value).escape_ascii().to_string()
}
