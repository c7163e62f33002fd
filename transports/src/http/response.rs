//! Responses: status, headers, body.

use std::borrow::Cow;

/// Status codes that this server sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 9110")]
pub enum Status {
    Ok,
    Accepted,
    NoContent,
    NotModified,
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    RequestTimeout,
    Conflict,
    ContentTooLarge,
    UnsupportedMediaType,
    ExpectationFailed,
    TooManyRequests,
    HeadTooLarge,
    InternalError,
    NotImplemented,
    Unavailable,
    VersionNotSupported,
}

impl Status {
    /// The code and its phrase, as in a status line.
    #[must_use]
    pub const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::Accepted => "202 Accepted",
            Self::NoContent => "204 No Content",
            Self::NotModified => "304 Not Modified",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::NotAcceptable => "406 Not Acceptable",
            Self::RequestTimeout => "408 Request Timeout",
            Self::Conflict => "409 Conflict",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::UnsupportedMediaType => "415 Unsupported Media Type",
            Self::ExpectationFailed => "417 Expectation Failed",
            Self::TooManyRequests => "429 Too Many Requests",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::InternalError => "500 Internal Server Error",
            Self::NotImplemented => "501 Not Implemented",
            Self::Unavailable => "503 Service Unavailable",
            Self::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }

    /// Whether a response of this status has neither a body nor a length.
    pub(super) const fn is_bodiless(self) -> bool {
        matches!(self, Self::NoContent | Self::NotModified)
    }
}

/// A response whose body is known, or the head of a response whose body is a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status.
    pub status: Status,
    /// Headers besides those of the framing, which the connection adds. A value that contains a
    /// line end or another control character is left out: it would end the head.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    /// Body; empty for the head of a stream.
    pub body: Vec<u8>,
}

impl Response {
    /// A response without a body.
    #[must_use]
    pub const fn new(status: Status) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    /// A response with a JSON body, for one request alone.
    #[must_use]
    pub fn json(status: Status, body: impl Into<Vec<u8>>) -> Self {
        let response = Self::new(status).header("content-type", "application/json");
        response.header("cache-control", "no-store").body(body)
    }

    /// A response with a text for people, on one line, for one request alone.
    #[must_use]
    pub fn text(status: Status, text: &str) -> Self {
        let response = Self::new(status).header("content-type", "text/plain; charset=utf-8");
        response.header("cache-control", "no-store").body(format!("{text}\n"))
    }

    /// The same with this header added.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The same with this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Writes the status line and the headers, without the empty line that ends the head.
    pub(super) fn write_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(self.status.line().as_bytes());
        out.extend_from_slice(b"\r\n");
        for (name, value) in &self.headers {
            if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
                continue;
            }
            for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
}
