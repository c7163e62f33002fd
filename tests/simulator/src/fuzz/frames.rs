//! Bytes to frames to messages: cut anywhere, a stream gives the same frames as a naive reading of
//! it, and each frame has the meaning that the [slow reader](crate::slow) gives it.

use ceased_core::ids::RequestId;
use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::{Frame, Inbox};
use ceased_core::rpc::message::{Members, Message};

use crate::slow::{Id, Said, classify};

/// Small, so that a fuzzer exceeds it.
const FRAME_BYTES_MAX: usize = 200;
const DEPTH_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cut {
    Line(Vec<u8>),
    Overlong,
    Alien,
}

/// Checks a stream; the first byte is the size of its pieces.
///
/// # Panics
/// When the fast and the slow reader differ.
pub fn check(data: &[u8]) {
    let Some((size, stream)) = data.split_first() else { return };
    let wanted = naive(stream);
    assert_eq!(cut(stream, stream.len().max(1)), wanted, "in one piece");
    assert_eq!(cut(stream, usize::from(*size).max(1)), wanted, "in pieces of {size}");
    assert_eq!(cut(stream, 1), wanted, "byte by byte");
    for line in wanted {
        if let Cut::Line(line) = line {
            compare(&line);
        }
    }
    compare(stream.trim_ascii());
}

fn cut(stream: &[u8], size: usize) -> Vec<Cut> {
    let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: FRAME_BYTES_MAX });
    let mut cuts = Vec::new();
    let mut sink = |frame: Frame<'_>| {
        cuts.push(match frame {
            Frame::Line(line) => Cut::Line(line.to_vec()),
            Frame::TooLong(_) => Cut::Overlong,
            Frame::NotJsonRpc(_) => Cut::Alien,
        });
    };
    stream.chunks(size).for_each(|piece| inbox.feed(piece, &mut sink));
    inbox.finish(&mut sink);
    cuts
}

fn naive(stream: &[u8]) -> Vec<Cut> {
    let first = |from: usize| {
        let found = stream[from..].iter().position(|byte| !b" \t\r\n".contains(byte));
        found.map(|at| from + at)
    };
    let marked = first(0).filter(|at| stream[*at..].starts_with("\u{feff}".as_bytes()));
    let Some(start) = first(marked.map_or(0, |at| at + 3)) else { return Vec::new() };
    // An incomplete byte order mark may still become complete.
    if marked.is_none() && "\u{feff}".as_bytes().starts_with(&stream[start..]) {
        return Vec::new();
    }
    if !matches!(stream[start], b'{' | b'[') {
        return vec![Cut::Alien];
    }
    let lines = stream[start..].split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| match line.trim_ascii() {
            _ if line.len() > FRAME_BYTES_MAX => Some(Cut::Overlong),
            [] => None,
            trimmed => Some(Cut::Line(trimmed.to_vec())),
        })
        .collect()
}

fn compare(line: &[u8]) {
    let slow = classify(line, DEPTH_MAX);
    let fast = said(&Message::parse(line, DEPTH_MAX, &mut Members::default()));
    assert_eq!(fast, slow, "{}", String::from_utf8_lossy(line));
}

fn id_of(id: &RequestId) -> Id {
    match id {
        RequestId::Number(number) => Id::Number(*number),
        RequestId::Text(text) => Id::Text(text.to_string()),
        RequestId::Canonical(text) => Id::Canonical(text.to_string()),
        RequestId::Null => Id::Null,
    }
}

fn said(message: &Message<'_>) -> Said {
    match message {
        Message::Request { id, method, params } => Said::Request {
            id: id_of(&id.id),
            token: id.token.to_owned(),
            method: method.to_string(),
            params: params.map(|raw| raw.get().to_owned()),
        },
        Message::Notification { method, params } => Said::Notification {
            method: method.to_string(),
            params: params.map(|raw| raw.get().to_owned()),
        },
        Message::Response { id, outcome } => {
            Said::Response { id: id.as_ref().map(id_of), result: outcome.is_ok() }
        }
        Message::Batch(messages) => {
            Said::Batch(messages.iter().map(|text| (*text).to_owned()).collect())
        }
        Message::Invalid { id, error } => {
            Said::Invalid { token: id.as_ref().map(|id| id.token.to_owned()), code: error.code }
        }
    }
}
