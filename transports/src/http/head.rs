//! Heads of requests: request line and headers, refused where two servers could read them in two
//! ways.

use std::mem::MaybeUninit;
use std::str;

use super::body::Framing;
use super::fields::{self, Fields, Version};
use super::limits::HttpLimits;
use super::response::{Response, Status};

/// Method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 9110")]
pub enum Method {
    Get,
    Head,
    Post,
    Delete,
    Options,
    /// Any other method.
    Other,
}

/// Head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Method.
    pub method: Method,
    /// Minor version.
    pub version: Version,
    /// Path and query, starting with `/`; `*` for OPTIONS.
    pub target: String,
    /// Host that the client named, with its port: from the target if that has one, else from the
    /// header. Empty when an HTTP/1.0 client named none.
    pub host: String,
    fields: Fields,
    pub(super) framing: Framing,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
}

impl Head {
    /// Path without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Values of the header with this name (lower case), in order, as far as they are visible
    /// ASCII, spaces and tabs.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.all(name)
    }

    /// Value of the header with this name (lower case), if the request has it exactly once.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.fields.header(name)
    }

    /// Whether the request has the header with this name (lower case), readable or not.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.fields.values(name).next().is_some()
    }

    /// Names of all headers, in lower case and in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.names()
    }

    /// Whether the connection may serve another request after this one, as far as the client says.
    #[must_use]
    pub const fn keeps_alive(&self) -> bool {
        self.keep_alive
    }

    /// Length of the body that the client announced; `None` for chunks.
    #[must_use]
    pub const fn announced_length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        }
    }
}

/// Outcome of reading a head.
#[derive(Debug)]
pub(super) enum Parsed {
    /// The head, and how many bytes it took.
    Whole(Box<Head>, usize),
    /// More bytes are needed.
    Partial,
    /// The request is refused, and the connection cannot be used any more: its end is unknown.
    Refused(Response),
}

/// Most headers that a limit can permit; their places are on the stack.
pub(super) const HEADERS_MAX: usize = 128;

/// Reads a head from the front of `input`.
pub(super) fn parse(input: &[u8], limits: &HttpLimits) -> Parsed {
    if let Err(response) = check_line_ends(input.get(..limits.head_bytes).unwrap_or(input)) {
        return Parsed::Refused(response);
    }
    let mut room = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let room = room.get_mut(..headers_max(limits)).unwrap_or_default();
    let mut request = httparse::Request::new(&mut []);
    let read = match request.parse_with_uninit_headers(input, room) {
        Ok(httparse::Status::Complete(read)) => read,
        Ok(httparse::Status::Partial) if input.len() >= limits.head_bytes => {
            return Parsed::Refused(too_large(limits));
        }
        Ok(httparse::Status::Partial) => return Parsed::Partial,
        Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(too_large(limits)),
        Err(httparse::Error::Version) => {
            let text = "this server speaks HTTP/1.1";
            return Parsed::Refused(Response::text(Status::VersionNotSupported, text));
        }
        Err(error) => return Parsed::Refused(bad(&format!("not a request of HTTP/1.1: {error}"))),
    };
    if read > limits.head_bytes {
        return Parsed::Refused(too_large(limits));
    }
    match Head::read(&request) {
        Ok(head) => Parsed::Whole(Box::new(head), read),
        Err(response) => Parsed::Refused(response),
    }
}

/// Maximum number of headers.
fn headers_max(limits: &HttpLimits) -> usize {
    limits.headers.min(HEADERS_MAX)
}

fn too_large(limits: &HttpLimits) -> Response {
    let (bytes, headers) = (limits.head_bytes, headers_max(limits));
    let text = format!("a head has at most {bytes} bytes and {headers} headers");
    Response::text(Status::HeadTooLarge, &text)
}

pub(super) fn bad(text: &str) -> Response {
    Response::text(Status::BadRequest, text)
}

/// HTTP-10: a line ends with CR LF. A bare CR or LF is a line end for some servers and not for
/// others, so that a request could hide in a header. Looks at the head alone.
fn check_line_ends(input: &[u8]) -> Result<(), Response> {
    let byte = |at: Option<usize>| at.and_then(|at| input.get(at));
    let mut line_start = 0;
    let mut is_first = true;
    for at in memchr::memchr2_iter(b'\r', b'\n', input) {
        if byte(Some(at)) == Some(&b'\r') {
            if byte(Some(at + 1)).is_some_and(|next| *next != b'\n') {
                return Err(bad("a head has a CR that no LF follows"));
            }
            continue;
        }
        if byte(at.checked_sub(1)) != Some(&b'\r') {
            return Err(bad("a line of a head ends with CR LF, not with LF alone"));
        }
        // The end of the head; empty lines before the request line are passed over.
        let is_empty = at - line_start == 1;
        if is_empty && !is_first {
            return Ok(());
        }
        is_first = is_first && is_empty;
        line_start = at + 1;
    }
    Ok(())
}

impl Head {
    fn read(request: &httparse::Request<'_, '_>) -> Result<Self, Response> {
        let version = Version::of(request.version);
        let method = match request.method.unwrap_or_default() {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            _ => Method::Other,
        };
        let mut head = Self {
            method,
            version,
            target: String::new(),
            host: String::new(),
            fields: Fields::copy(request.headers),
            framing: Framing::Length(0),
            keep_alive: true,
            expects_continue: false,
        };
        head.read_target(request.path.unwrap_or_default())?;
        head.framing = head.read_framing()?;
        head.keep_alive = head.fields.keep_alive(version);
        head.expects_continue = head.read_expectation()?;
        Ok(head)
    }

    fn read_target(&mut self, target: &str) -> Result<(), Response> {
        let hosts = {
            let mut hosts = self.fields.values("host");
            (hosts.next(), hosts.next())
        };
        let host = match hosts {
            (Some(host), None) => str::from_utf8(host)
                .ok()
                .filter(|host| host.bytes().all(|byte| byte.is_ascii_graphic()))
                .ok_or_else(|| bad("the host header is not a host"))?,
            (None, _) if self.version == Version::Http10 => "",
            (None, _) => return Err(bad("a request of HTTP/1.1 has a host header")),
            (Some(_), Some(_)) => return Err(bad("a request has one host header")),
        };
        let absolute = ["http://", "https://"].iter().find_map(|scheme| {
            target.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme))?;
            target.get(scheme.len()..)
        });
        let (host, target) = match absolute {
            Some(rest) => match rest.find(['/', '?']) {
                Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at..).unwrap_or("/")),
                None => (rest, "/"),
            },
            None => (host, target),
        };
        let is_path = target.starts_with('/') || target == "*" && self.method == Method::Options;
        if !is_path {
            return Err(bad("the target of a request is a path that starts with /"));
        }
        let host = host.to_owned();
        (self.host, self.target) = (host, target.to_owned());
        Ok(())
    }

    /// HTTP-10: the one length of the body; refused where servers disagree about it.
    fn read_framing(&self) -> Result<Framing, Response> {
        let mut lengths = self.fields.values("content-length");
        let mut codings = self.fields.values("transfer-encoding");
        match (lengths.next(), codings.next()) {
            (Some(_), Some(_)) => {
                Err(bad("a request has content-length or transfer-encoding, not both"))
            }
            (Some(_), None) if lengths.next().is_some() => {
                Err(bad("a request has one content-length"))
            }
            (Some(length), None) => fields::length(length)
                .map(Framing::Length)
                .ok_or_else(|| bad("content-length is not a number")),
            (None, Some(_)) if self.version == Version::Http10 => {
                Err(bad("HTTP/1.0 has no transfer-encoding"))
            }
            (None, Some(coding))
                if coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none() =>
            {
                Ok(Framing::Chunked)
            }
            (None, Some(_)) => {
                let text = "the one transfer-encoding of this server is chunked";
                Err(Response::text(Status::NotImplemented, text))
            }
            (None, None) => Ok(Framing::Length(0)),
        }
    }

    fn read_expectation(&self) -> Result<bool, Response> {
        match self.header("expect") {
            None if self.has("expect") => Err(bad("a request has one expect header")),
            None => Ok(false),
            Some(value) if value.eq_ignore_ascii_case("100-continue") => {
                Ok(self.version == Version::Http11)
            }
            Some(_) => {
                let text = "the one expectation of this server is 100-continue";
                Err(Response::text(Status::ExpectationFailed, text))
            }
        }
    }
}
