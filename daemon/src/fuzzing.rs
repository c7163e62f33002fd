//! Readers of this crate for its fuzz targets, which are in another package. No part of the interface.

use std::path::Path;

use crate::host_files::{Binary, Change, Format, Outcome, adopt, undo};
use crate::probe::HttpResponse as Response;

/// A response of HTTP/1.1 as a client reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status, once there is a head.
    pub status: Option<u16>,
    /// The body, or the data of each event.
    pub texts: Vec<String>,
    /// Whether its end was received.
    pub is_over: bool,
    /// Whether it breaks the rules of HTTP.
    pub is_wrong: bool,
}

/// A response, read in pieces of this size up to its first error.
#[must_use]
pub fn http_response(bytes: &[u8], size: usize) -> HttpResponse {
    let mut response = Response::default();
    let is_wrong = bytes.chunks(size).any(|piece| response.take(piece).is_err());
    let is_over = response.is_over();
    if !is_wrong {
        response.close();
    }
    let status = response.head().map(|head| head.status);
    HttpResponse { status, texts: response.take_texts(), is_over, is_wrong }
}

/// A host's file with this name whose servers were adopted, adopted again, and undone; `None` if the
/// text is no file of a host, cannot be edited, or has a server that runs behind ceased already.
#[must_use]
pub fn host_file_round_trip(name: &str, text: &str) -> Option<[String; 3]> {
    let (format, binary) = (Format::of(Path::new(name)), Binary::at("/usr/bin/ceased"));
    let is_changed = |(_, change): &(_, Change)| matches!(change, Change::Changed);
    if undo(text, format).ok()?.entries.iter().any(is_changed) {
        return None;
    }
    let once = adopt(text, format, &binary).ok()?.apply(text);
    // An edit writes only files that can be read.
    let applied = |it: Outcome| it.apply(&once);
    let twice = adopt(&once, format, &binary).map(applied).unwrap_or_default();
    let undone = undo(&once, format).map(applied).unwrap_or_default();
    Some([once, twice, undone])
}
