//! Requests as bytes.

use std::fmt;

/// A request. The connection adds `host` unless it is among the headers, `content-length` and
/// `accept-encoding`.
#[derive(Debug, Clone, Copy)]
pub struct ClientRequest<'a> {
    /// Method, such as `POST`.
    pub method: &'a str,
    /// Path and query, or the whole `http://` URL for a proxy.
    pub target: &'a str,
    /// Host and port, for the host header.
    pub authority: &'a str,
    /// Other headers.
    pub headers: &'a [(&'a str, &'a str)],
    /// Body.
    pub body: &'a [u8],
    /// Whether the connection may carry another request afterwards.
    pub keep_alive: bool,
}

/// Why a request cannot be sent: a part of it would end that part, or add another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The method is no word.
    Method(String),
    /// The target does not begin with `/` or `http://`, or has other than visible ASCII characters.
    Target(String),
    /// The host has other than visible ASCII characters.
    Authority(String),
    /// The name of a header is no word.
    HeaderName(String),
    /// The value of a header has a control character.
    HeaderValue {
        /// The name of the header. Its value may be secret.
        name: String,
    },
    /// A header that the connection writes itself.
    OwnHeader(String),
    /// The connection waits for a response, or is over.
    Busy,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(found) => write!(f, "the method {found:?} is no word"),
            Self::Target(found) => {
                write!(f, "the target {found:?} is no path of visible ASCII characters")
            }
            Self::Authority(found) => {
                write!(f, "the host {found:?} has other than visible ASCII characters")
            }
            Self::HeaderName(found) => write!(f, "the name {found:?} of a header is no word"),
            Self::HeaderValue { name } => {
                write!(f, "the value of the header {name:?} has a control character")
            }
            Self::OwnHeader(name) => {
                write!(f, "the header {name:?} is written by the connection itself")
            }
            Self::Busy => f.write_str("the connection takes no request now"),
        }
    }
}

impl std::error::Error for RequestError {}

/// Headers of the framing: one of them from elsewhere could hide a second request in a body.
const OWN: [&str; 4] = ["connection", "content-length", "te", "transfer-encoding"];

impl ClientRequest<'_> {
    /// Writes the request.
    ///
    /// # Errors
    /// When a part of it would not stay in its place; nothing is written then.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), RequestError> {
        self.check()?;
        let has =
            |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut line = |parts: &[&str]| {
            parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
            out.extend_from_slice(b"\r\n");
        };
        line(&[self.method, " ", self.target, " HTTP/1.1"]);
        if !has("host") {
            line(&["host: ", self.authority]);
        }
        for (name, value) in self.headers {
            line(&[name, ": ", value]);
        }
        if !has("accept-encoding") {
            line(&["accept-encoding: identity"]);
        }
        let is_bodiless = matches!(self.method, "GET" | "HEAD" | "DELETE" | "OPTIONS");
        if !(self.body.is_empty() && is_bodiless) {
            line(&["content-length: ", &self.body.len().to_string()]);
        }
        if !self.keep_alive {
            line(&["connection: close"]);
        }
        line(&[]);
        out.extend_from_slice(self.body);
        Ok(())
    }

    fn check(&self) -> Result<(), RequestError> {
        let is_visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token(self.method) {
            return Err(RequestError::Method(self.method.to_owned()));
        }
        let is_target = self.target.starts_with('/') || self.target.starts_with("http://");
        if !is_target || !is_visible(self.target) {
            return Err(RequestError::Target(self.target.to_owned()));
        }
        if self.authority.is_empty() || !is_visible(self.authority) {
            return Err(RequestError::Authority(self.authority.to_owned()));
        }
        self.headers.iter().try_for_each(|(name, value)| check_header(name, value))
    }
}

/// Checks that a request can have this header beside those that the connection writes.
///
/// # Errors
/// When it cannot.
pub fn check_header(name: &str, value: &str) -> Result<(), RequestError> {
    if !is_token(name) {
        return Err(RequestError::HeaderName(name.to_owned()));
    }
    if OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return Err(RequestError::OwnHeader(name.to_owned()));
    }
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err(RequestError::HeaderValue { name: name.to_owned() });
    }
    Ok(())
}

/// Whether a text is a token of RFC 9110.
fn is_token(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_word)
}
