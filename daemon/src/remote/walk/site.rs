//! Scripted servers of a walk: their connections, sessions and requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ceased_core::identity::Identity;
use ceased_core::ids::InstanceId;
use ceased_core::time::Instant;
use serde_json::Value;

use crate::remote::SlotId;

/// A connection of an instance.
pub(super) type Place = (InstanceId, SlotId);

/// One connection.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) is_connected: bool,
    pub(super) to_site: Vec<u8>,
    pub(super) to_client: VecDeque<u8>,
    /// The server closes it behind the bytes to the client.
    pub(super) is_cut: bool,
    pub(super) serving: Option<Serving>,
}

/// A call that a server works on.
pub(super) struct Serving {
    pub(super) id: u64,
    pub(super) marker: String,
    pub(super) session: String,
    pub(super) has_head: bool,
    pub(super) is_cancelled: bool,
    /// It is answered after its cancel alone.
    pub(super) is_long: bool,
    /// Last event with an id.
    pub(super) event: Option<String>,
    /// Time of the last bytes.
    pub(super) since: Instant,
}

/// A server.
pub(super) struct Site {
    pub(super) is_modern: bool,
    pub(super) has_tokens: bool,
    /// Calls that were begun, by session.
    pub(super) sessions: BTreeMap<String, BTreeSet<u64>>,
    /// Requests that have arrived, refused ones among them, and those that were cancelled.
    pub(super) arrived: BTreeSet<(String, u64)>,
    pub(super) cancelled: BTreeSet<(String, u64)>,
    /// Sessions that were begun, with the owners of their instances.
    pub(super) issued: BTreeMap<String, String>,
    /// Tokens with a lower number are refused.
    pub(super) tokens_from: u64,
    /// Streams that were cut, by their last event.
    pub(super) kept: BTreeMap<String, Serving>,
    /// Requests without a session.
    pub(super) seen: BTreeSet<(InstanceId, u64)>,
}

impl Site {
    pub(super) fn new(is_modern: bool, has_tokens: bool) -> Self {
        Self {
            is_modern,
            has_tokens,
            sessions: BTreeMap::new(),
            arrived: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            issued: BTreeMap::new(),
            tokens_from: 0,
            kept: BTreeMap::new(),
            seen: BTreeSet::new(),
        }
    }
}

/// A request over HTTP.
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Value,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Takes the first whole request from bytes.
    pub(super) fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n")? + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let mut words = lines.next().unwrap().split(' ').map(str::to_owned);
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length = headers.get("content-length").map_or(0, |it| it.parse().unwrap());
        if bytes.len() < end + length {
            return None;
        }
        let body = serde_json::from_slice(&bytes[end..end + length]).unwrap_or_default();
        bytes.drain(..end + length);
        Some(Self { method: words.next().unwrap(), path: words.next().unwrap(), headers, body })
    }
}

/// The part of a token that says for which identity it is.
pub(super) fn owner_text(owner: Option<&Identity>) -> String {
    owner.map_or_else(|| "all".to_owned(), ToString::to_string)
}

/// Head of a stream of events.
pub(super) const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

pub(super) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// The marker of a call.
pub(super) fn marker(body: &Value) -> &str {
    body["params"]["arguments"]["m"].as_str().unwrap_or_default()
}
