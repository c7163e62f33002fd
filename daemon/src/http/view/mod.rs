//! The live view: a page at `/`, and at `/events` the stream of the data that the page shows.
//!
//! The page is four files of this folder. It loads nothing from elsewhere and has no inline script
//! or style. The stream repeats `ceased/status` of the engine connection of the caller, so that the
//! caller sees exactly the jobs, tasks and servers that it may know of (TSK-39). The page cancels
//! jobs by `ceased/cancel` at the endpoint of MCP, and tasks at other nodes of a fleet by `tasks/cancel`.

pub(crate) mod passes;

use std::time::Duration;

use ceased_transports::http::{Head, Method, Response, Status};

/// Path of the stream.
pub(crate) const EVENTS: &str = "/events";
/// Header with the token that a link of the view is exchanged for.
pub(crate) const TOKEN_HEADER: &str = "ceased-view-token";
/// The only methods that the page calls.
pub(crate) const METHODS: [&str; 2] = ["ceased/cancel", "tasks/cancel"];
/// Interval of the status on the stream: that of `ceased top`.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Scripts and styles from this origin alone, requests to this origin alone, no frame, no form
/// that the browser itself sends, and no text that becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// A file of the page.
#[derive(Debug)]
pub(crate) struct PageFile {
    path: &'static str,
    media_type: &'static str,
    text: &'static str,
}

const FILES: [PageFile; 4] = [
    PageFile {
        path: "/",
        media_type: "text/html; charset=utf-8",
        text: include_str!("index.html"),
    },
    PageFile {
        path: "/style.css",
        media_type: "text/css; charset=utf-8",
        text: include_str!("style.css"),
    },
    PageFile {
        path: "/view.js",
        media_type: "text/javascript; charset=utf-8",
        text: include_str!("view.js"),
    },
    PageFile { path: "/icon.svg", media_type: "image/svg+xml", text: include_str!("icon.svg") },
];

/// A part of the view.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    File(&'static PageFile),
    Events,
}

impl Part {
    /// The part at this path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        if path == EVENTS {
            return Some(Self::Events);
        }
        FILES.iter().find(|file| file.path == path).map(Self::File)
    }

    /// The response to a request for a file, or the refusal of one for the stream.
    /// `takes_events`: the client accepts a stream of events.
    ///
    /// # Errors
    /// The response.
    pub(crate) fn check(self, head: &Head, takes_events: bool) -> Result<(), Response> {
        let methods = match self {
            Self::File(_) => "GET, HEAD",
            Self::Events => "GET",
        };
        let is_head = head.method == Method::Head && matches!(self, Self::File(_));
        if head.method != Method::Get && !is_head {
            let response = Response::text(Status::MethodNotAllowed, "use GET");
            return Err(response.header("allow", methods));
        }
        match self {
            Self::File(file) => Err(file.response_to(head)),
            Self::Events => check_events(head, takes_events),
        }
    }
}

impl PageFile {
    /// The file, or `304 Not Modified` for a browser that has it.
    fn response_to(&self, head: &Head) -> Response {
        let tag = self.tag();
        let has = |known: &str| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag;
        let mut known = head.all("if-none-match").flat_map(|tags| tags.split(','));
        match known.any(|known| has(known.trim())) {
            true => self.head(Status::NotModified, tag),
            false => self.head(Status::Ok, tag).body(self.text),
        }
    }

    /// The entity tag: the text's FNV-1a hash, which differs between versions of the page.
    fn tag(&self) -> String {
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        format!("\"{:016x}\"", self.text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }

    fn head(&self, status: Status, tag: String) -> Response {
        Response::new(status)
            .header("content-type", self.media_type)
            .header("content-security-policy", POLICY)
            .header("x-content-type-options", "nosniff")
            .header("x-frame-options", "DENY")
            .header("referrer-policy", "no-referrer")
            .header("cross-origin-opener-policy", "same-origin")
            .header("cross-origin-resource-policy", "same-origin")
            // Another version of the daemon may have another page.
            .header("cache-control", "no-cache")
            .header("etag", tag)
    }
}

/// A page of another origin does not read the stream, not even one in `allow_origins`: it has the
/// methods of MCP.
fn check_events(head: &Head, takes_events: bool) -> Result<(), Response> {
    let is_own = match head.header("sec-fetch-site") {
        Some(site) => matches!(site, "same-origin" | "none"),
        None => !head.has("sec-fetch-site"),
    };
    if !is_own {
        let text = "this stream is for the page at / alone";
        return Err(Response::text(Status::Forbidden, text));
    }
    if !takes_events {
        let text = "this stream is text/event-stream: accept that";
        return Err(Response::text(Status::NotAcceptable, text));
    }
    Ok(())
}

/// Statuses from one with the ended calls to the next such one: they may be many.
const ENDED_EVERY: i64 = 5;

/// The request for the status, with this number as its id.
pub(crate) fn status_request(id: i64) -> String {
    let ended = id % ENDED_EVERY == 1;
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ceased/status\",\"params\":{{\
         \"detail\":true,\"ended\":{ended},\"_meta\":{{\
         \"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
         \"io.modelcontextprotocol/clientCapabilities\":{{}}}}}}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::envelope::Envelope;

    #[test]
    fn page_has_no_inline_script_style_or_foreign_address() {
        for file in &FILES {
            let text = file.text.to_ascii_lowercase();
            let names_of_formats = text.replace("http://www.w3.org/2000/svg", "");
            for word in ["http://", "https://", "//cdn", "javascript:", "innerhtml", "url("] {
                assert!(!names_of_formats.contains(word), "{}: {word}", file.path);
            }
            if file.path == "/" {
                for word in ["<style", " style=", " onclick", " onload", "<iframe", "<base"] {
                    assert!(!text.contains(word), "{}: {word}", file.path);
                }
                let scripts = text.matches("<script").count();
                assert_eq!(scripts, text.matches("<script src=").count());
            }
        }
    }

    #[test]
    fn status_request_is_a_request_of_the_revision_without_sessions() {
        let request = status_request(7);
        let Envelope::Request(request) = Envelope::read(request.as_bytes(), 64) else {
            panic!("{request}")
        };
        assert!(request.has_metadata() && request.method == "ceased/status");
    }
}
