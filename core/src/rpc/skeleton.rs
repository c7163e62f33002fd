//! The first level of a message that passes a limit, so that its kind and its id can be read.
//!
//! Many writers put the id behind the long member: the lexer reads on after the limit, and keeps a
//! few kilobytes of the line.

use alloc::vec::Vec;
use core::str;

use crate::json::scan;
use crate::policy::account::NAME_BYTES_MAX;
use crate::rpc::message::{Members, Message};

/// Bytes that are kept of a line; one with more at its first level is no message.
const BYTES_MAX: usize = 4 * NAME_BYTES_MAX;
/// White space at the first level in a row; a line with more is no message.
const SPACE_MAX: usize = 1024;
/// Place of a value that is not kept: no id, and no method.
const CUT: &[u8] = b"{}";

/// The first level of a JSON object that comes in pieces. Objects, arrays and long strings in it
/// are `{}`, which is no id.
#[derive(Debug, Default)]
pub(crate) struct Skeleton {
    text: Vec<u8>,
    depth: u64,
    quote: Quote,
    /// Place of the last string at the first level.
    string_at: usize,
    /// Whether that string is too long to be kept.
    is_cut: bool,
    /// White space since the last other byte at the first level.
    space: usize,
    /// Bytes that are read at most.
    room: usize,
    /// Whether the line is no message.
    is_over: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Quote {
    #[default]
    Outside,
    Inside,
    Escape,
}

impl Skeleton {
    /// The skeleton of a line of which at most so many bytes are read.
    pub(super) fn within(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// The skeleton of a whole line.
    pub(crate) fn of(line: &[u8]) -> Self {
        let mut skeleton = Self::within(line.len());
        skeleton.read(line);
        skeleton
    }

    /// Whether the line is known to be no message.
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The text; empty for a line that is no message.
    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.text).unwrap_or_default()
    }

    /// Reads the next piece of the line.
    pub(super) fn read(&mut self, piece: &[u8]) {
        let rest = self.room.checked_sub(piece.len());
        self.is_over |= rest.is_none();
        self.room = rest.unwrap_or_default();
        let mut at = 0;
        while !self.is_over {
            if self.quote == Quote::Inside && !self.is_kept() {
                at = scan::special(piece, at);
            }
            let Some(byte) = piece.get(at) else { return };
            self.step(*byte);
            self.is_over |= self.text.len() > BYTES_MAX || self.space > SPACE_MAX;
            at += 1;
        }
        self.text.clear();
    }

    /// Ends the message within the value that is read, if its kind and its id have come before.
    pub(super) fn end_early(&mut self) -> bool {
        if self.depth < 2 && !self.is_cut {
            return false;
        }
        self.text.push(b'}');
        let mut seen = Members::default();
        let is_known = match Message::parse_text(self.text(), scan::DEPTH_MAX, &mut seen) {
            Message::Request { .. } | Message::Response { id: Some(_), .. } => true,
            Message::Response { id: None, .. }
            | Message::Notification { .. }
            | Message::Batch(_)
            | Message::Invalid { .. } => false,
        };
        if !is_known {
            self.text.pop();
        }
        is_known
    }

    /// Whether the string at hand is kept.
    const fn is_kept(&self) -> bool {
        self.depth < 2 && !self.is_cut
    }

    fn step(&mut self, byte: u8) {
        match (self.quote, byte) {
            (Quote::Outside, _) => return self.step_outside(byte),
            (Quote::Inside, b'\\') => self.quote = Quote::Escape,
            (Quote::Inside, b'"') => self.quote = Quote::Outside,
            (Quote::Inside | Quote::Escape, _) => self.quote = Quote::Inside,
        }
        if self.is_kept() {
            self.text.push(byte);
            if self.text.len() - self.string_at > NAME_BYTES_MAX {
                self.text.truncate(self.string_at);
                self.text.extend_from_slice(CUT);
                self.is_cut = true;
            }
        }
        self.is_cut &= self.quote != Quote::Outside;
    }

    fn step_outside(&mut self, byte: u8) {
        let is_space = self.depth < 2 && matches!(byte, b' ' | b'\t' | b'\r');
        self.space = if is_space { self.space + 1 } else { 0 };
        match (byte, self.depth) {
            (b'"', depth) => {
                self.quote = Quote::Inside;
                if depth < 2 {
                    self.string_at = self.text.len();
                    self.text.push(byte);
                }
            }
            (b'{', 0) => {
                self.text.push(byte);
                self.depth = 1;
            }
            (b'[', 0) => self.is_over = true,
            (b'{' | b'[', depth) => {
                if depth == 1 {
                    self.text.extend_from_slice(CUT);
                }
                self.depth += 1;
            }
            (b'}' | b']', 2..) => self.depth -= 1,
            _ if is_space && self.space > 1 => {}
            _ if is_space => self.text.push(b' '),
            (_, 0 | 1) => {
                self.text.push(byte);
                self.depth -= u64::from(self.depth == 1 && matches!(byte, b'}' | b']'));
            }
            (_, 2..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    /// The first level is found however the line is cut, with the id wherever it stands.
    #[test]
    fn first_level_is_kept_however_the_line_is_cut() {
        let long = r#"{"id":7,"result":[{"method":"\\\"}"}],"x":"}\\"}"#;
        let text = "ä\\\"".repeat(NAME_BYTES_MAX);
        for (line, wanted) in [
            (
                format!(r#"{{"id":1,"method":"m","params":{long}}}"#),
                r#"{"id":1,"method":"m","params":{}}"#,
            ),
            (
                format!(r#" {{ "params" :  {long} , "\u0069d":"a\"\n" , "method":"m" }} "#),
                r#" { "params" : {} , "\u0069d":"a\"\n" , "method":"m" } "#,
            ),
            (format!(r#"{{"result":"{text}","id":1.0}}"#), r#"{"result":{},"id":1.0}"#),
            (format!(r#"{{"{text}":"{text}","id":"{text}"}}"#), r#"{{}:{},"id":{}}"#),
            (format!(r#"{{"id":[{long}],"error":{long}"#), r#"{"id":{},"error":{}"#),
            (format!(r#"{{"result":{long}]}}}}"#), r#"{"result":{}]}}"#),
            (format!(r#"[{{"id":1,"method":"m","params":{long}}}]"#), ""),
            (format!(r#"{{"id":{}}}"#, "1".repeat(BYTES_MAX)), ""),
        ] {
            for size in [1, 2, 3, 7, 64, 1000, line.len()] {
                let mut skeleton = Skeleton::within(line.len());
                for piece in line.as_bytes().chunks(size) {
                    skeleton.read(piece);
                    assert!(skeleton.text.len() <= BYTES_MAX + 2);
                }
                assert_eq!(skeleton.text(), wanted, "{size}");
            }
        }
        for line in [format!("{{{}}}", " ".repeat(SPACE_MAX + 1)), format!(r#"{{"a":"{text}"}}"#)] {
            let mut skeleton = Skeleton::within(line.len() - 1);
            line.as_bytes().chunks(100).for_each(|piece| skeleton.read(piece));
            assert!(skeleton.is_over() && skeleton.text().is_empty());
        }
        let deep = String::from("{\"a\":") + &"[".repeat(1 << 16);
        assert_eq!(Skeleton::of(deep.as_bytes()).text(), "{\"a\":{}");
    }

    #[test]
    fn known_message_is_ended_early() {
        for (line, text) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":["#,
                Some(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{}}"#),
            ),
            (
                r#"{"id":1,"jsonrpc":"2.0","result":{"a":"#,
                Some(r#"{"id":1,"jsonrpc":"2.0","result":{}}"#),
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1]}"#, None),
            (r#"{"jsonrpc":"2.0","id":1,"params":{"a":["#, None),
            (r#"{"jsonrpc":"2.0","method":"m","params":{"a":["#, None),
            (r#"{"jsonrpc":"2.0","result":{"a":["#, None),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m","params":{"a":["#, None),
        ] {
            let mut skeleton = Skeleton::of(line.as_bytes());
            let before = String::from(skeleton.text());
            assert_eq!(skeleton.end_early(), text.is_some(), "{line}");
            assert_eq!(skeleton.text(), text.unwrap_or(&before));
        }
    }
}
