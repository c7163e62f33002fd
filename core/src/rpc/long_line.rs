//! A long line that arrives in pieces: its encoding and its strings are checked as they come, while
//! the peer still writes, so that little is left to do at its end.
//!
//! Nearly all of a long message is one string or a few: a text, an image. Their ends are found in the
//! search for the end of the line, and the message is then parsed without their contents.

use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, str};

use memchr::{memchr, memchr2};

use crate::json::scan;

/// White space in bytes before the line: room for the start of another message, so that a relay can
/// send the rest of the line in the same buffer.
pub(super) const ROOM: usize = 128;
/// Length in bytes from which a string is remembered.
const LONG_STRING: usize = if cfg!(test) { 70 } else { 4096 };
/// Long strings that are remembered; the contents of further ones are parsed with the message.
const STRINGS_MAX: usize = 4;
/// Length in bytes from which a buffer grows by [`STEP`] at least. A page of it takes memory once it
/// is written to, while each doubling would copy the line.
const LARGE: usize = 64 * 1024;
const STEP: usize = (1 << 20) + LARGE;
/// Short strings after which the search for long ones ends: the line has another kind of content.
const SHORT_MAX: u32 = 64;

/// A line with white space around it, in a buffer that a receiver may keep.
pub struct LongLine {
    text: String,
    /// Bytes of a character that is not whole yet.
    begun: BegunResult,
    lexer: Lexer,
}

/// The first bytes of a character.
#[derive(Debug, Default, Clone, Copy)]
struct BegunResult {
    bytes: [u8; 3],
    count: u8,
}

/// How a piece was taken.
pub(super) enum TakenMember {
    /// The line goes on.
    All,
    /// The line ended; so many bytes of the piece were its last, with the line end.
    Last(usize),
    /// Nothing was taken: the line would be longer than its limit.
    TooLong,
    /// Nothing was taken: the line is no UTF-8.
    NotText,
}

impl LongLine {
    pub(super) fn new(bytes: usize) -> Self {
        let mut text = String::new();
        grow(&mut text, ROOM + bytes);
        text.extend(core::iter::repeat_n(' ', ROOM));
        Self { text, begun: BegunResult::default(), lexer: Lexer::default() }
    }

    /// Bytes so far.
    pub(super) const fn len(&self) -> usize {
        self.text.len() - ROOM + self.begun.count as usize
    }

    /// Takes a piece up to the end of the line, of which at most `room` bytes more may come.
    pub(super) fn take(&mut self, piece: &[u8], room: usize) -> TakenMember {
        let offset = self.text.len() + usize::from(self.begun.count);
        let end = self.lexer.read(piece, offset);
        let part = piece.get(..end.unwrap_or(piece.len())).unwrap_or_default();
        if part.len() > room {
            return TakenMember::TooLong;
        }
        let (length, begun) = (self.text.len(), self.begun);
        let is_text = self.push(part);
        match end {
            Some(end) if is_text && self.begun.count == 0 => {
                // A line that waits for a slow reader holds no more than twice its bytes.
                if self.text.capacity() / 2 > self.text.len() {
                    self.text.shrink_to(self.text.len() + ROOM);
                }
                TakenMember::Last(end + 1)
            }
            None if is_text => TakenMember::All,
            Some(_) | None => {
                self.text.truncate(length);
                self.begun = begun;
                TakenMember::NotText
            }
        }
    }

    /// Appends bytes; false if they are no UTF-8, in which case some may have been appended.
    fn push(&mut self, mut bytes: &[u8]) -> bool {
        while self.begun.count > 0
            && let Some((byte, rest)) = bytes.split_first()
        {
            bytes = rest;
            match self.begun.with(*byte) {
                Character::Whole(character) => {
                    self.text.push(character);
                    self.begun = BegunResult::default();
                }
                Character::Begun(begun) => self.begun = begun,
                Character::Invalid => return false,
            }
        }
        let (whole, tail) = bytes.split_at(bytes.len() - begun_at_the_end(bytes));
        let Ok(whole) = str::from_utf8(whole) else { return false };
        grow(&mut self.text, whole.len());
        self.text.push_str(whole);
        tail.iter().all(|byte| match self.begun.with(*byte) {
            Character::Begun(begun) => {
                self.begun = begun;
                true
            }
            Character::Whole(_) | Character::Invalid => false,
        })
    }

    /// The bytes of the line so far.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.text.into_bytes();
        bytes.drain(..ROOM);
        bytes.extend(self.begun.bytes.iter().take(usize::from(self.begun.count)));
        bytes
    }

    /// The line, without the white space around it.
    #[must_use]
    pub fn get(&self) -> &str {
        self.text.trim_ascii()
    }

    /// The line with the white space around it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The buffer.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Offsets of the quotes of long strings, which are valid, and behind them.
    pub(super) fn strings(&self) -> &[(usize, usize)] {
        let lexer = &self.lexer;
        lexer.strings.get(..lexer.count).unwrap_or_default()
    }

    /// The text with empty strings in place of the long ones; `None` without a long one. It is valid
    /// JSON exactly if the line is.
    pub(super) fn skeleton(&self) -> Option<String> {
        let (_, last) = *self.strings().last()?;
        let mut skeleton = String::new();
        let mut from = 0;
        for (start, end) in self.strings() {
            skeleton.push_str(self.text.get(from..start + 1)?);
            from = end - 1;
        }
        skeleton.push_str(self.text.get(last - 1..)?);
        Some(skeleton)
    }

    /// The offset in the text for one in the skeleton, which is not inside a string.
    pub(super) fn offset(&self, in_skeleton: usize) -> usize {
        let mut at = in_skeleton;
        for (start, end) in self.strings() {
            if at > start + 1 {
                at += end - start - 2;
            }
        }
        at
    }
}

/// Makes room for so many bytes more.
fn grow(text: &mut String, bytes: usize) {
    if text.capacity() - text.len() < bytes {
        let is_large = text.len() + bytes >= LARGE;
        text.reserve(if is_large { bytes.max(STEP) } else { bytes });
    }
}

/// A line that was read by another decoder.
impl From<&str> for LongLine {
    fn from(line: &str) -> Self {
        let mut long = Self::new(line.len());
        long.lexer.read(line.as_bytes(), ROOM);
        long.text.push_str(line);
        long
    }
}

impl fmt::Debug for LongLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

/// The start of a character with another byte.
enum Character {
    Whole(char),
    Begun(BegunResult),
    Invalid,
}

impl BegunResult {
    fn with(self, byte: u8) -> Character {
        let count = usize::from(self.count);
        let mut bytes = [0; 4];
        for (to, from) in bytes.iter_mut().zip(self.bytes.iter().take(count).chain([&byte])) {
            *to = *from;
        }
        match str::from_utf8(bytes.get(..=count).unwrap_or_default()) {
            Ok(text) => text.chars().next().map_or(Character::Invalid, Character::Whole),
            Err(error) if error.error_len().is_none() => {
                let [a, b, c, _] = bytes;
                Character::Begun(Self { bytes: [a, b, c], count: self.count + 1 })
            }
            Err(_) => Character::Invalid,
        }
    }
}

/// Number of bytes at the end of a text that begin a character and do not end it.
fn begun_at_the_end(bytes: &[u8]) -> usize {
    let is_first = |byte: &u8| byte & 0b1100_0000 != 0b1000_0000;
    let Some(behind) = bytes.iter().rev().take(3).position(is_first) else { return 0 };
    let count = behind + 1;
    let length = match bytes.iter().rev().nth(behind) {
        Some(0xf0..) => 4,
        Some(0xe0..) => 3,
        Some(0xc0..) => 2,
        Some(_) | None => 1,
    };
    if length > count { count } else { 0 }
}

/// Finds the strings of a JSON text that comes in pieces, and the end of its line.
#[derive(Debug, Default)]
struct Lexer {
    state: LexerState,
    /// Offset of the quote of the string that has begun.
    start: usize,
    strings: [(usize, usize); STRINGS_MAX],
    count: usize,
    /// Short strings since the last long one.
    short: u32,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum LexerState {
    #[default]
    Outside,
    String,
    /// Behind a backslash.
    Escape,
    /// So many digits of an escape are missing.
    Digits(u8),
    /// Looks for the end of the line alone: the text is no JSON, or has no more long strings.
    Over,
}

impl Lexer {
    /// Reads a piece that starts at an offset; returns the place of the line end in it.
    fn read(&mut self, piece: &[u8], offset: usize) -> Option<usize> {
        let mut at = 0;
        loop {
            match self.state {
                LexerState::Over => return memchr(b'\n', piece.get(at..)?).map(|end| at + end),
                LexerState::Outside => at += memchr2(b'"', b'\n', piece.get(at..)?)?,
                LexerState::String => at = scan::special(piece, at),
                LexerState::Escape | LexerState::Digits(_) => {}
            }
            let byte = *piece.get(at)?;
            if byte == b'\n' {
                // Inside a string it is an error, which the parser words.
                return Some(at);
            }
            self.step(byte, offset + at);
            at += 1;
        }
    }

    /// Takes the next byte that matters, which is at an offset.
    fn step(&mut self, byte: u8, offset: usize) {
        self.state = match (self.state, byte) {
            (LexerState::Outside, _) => {
                self.start = offset;
                LexerState::String
            }
            (LexerState::String, b'"') => {
                self.end_string(offset + 1);
                let is_over = self.short > SHORT_MAX || self.count == STRINGS_MAX;
                if is_over { LexerState::Over } else { LexerState::Outside }
            }
            (LexerState::String, b'\\') => LexerState::Escape,
            (LexerState::Escape, b'u') => LexerState::Digits(4),
            (LexerState::Escape, b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
            | (LexerState::Digits(1), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                LexerState::String
            }
            (LexerState::Digits(left), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                LexerState::Digits(left - 1)
            }
            (
                LexerState::String | LexerState::Escape | LexerState::Digits(_) | LexerState::Over,
                _,
            ) => LexerState::Over,
        };
    }

    fn end_string(&mut self, end: usize) {
        match self.strings.get_mut(self.count) {
            Some(place) if end - self.start >= LONG_STRING => {
                *place = (self.start, end);
                self.count += 1;
                self.short = 0;
            }
            Some(_) | None => self.short += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::scan::tests::mutants;
    use crate::rpc::answered::LongResult;
    use crate::rpc::message::{Members, Message};
    use alloc::format;

    /// A line in pieces that end at these offsets; `None` for one that is no UTF-8.
    fn gathered(line: &[u8], cuts: &[usize]) -> Option<LongLine> {
        let mut long = LongLine::new(0);
        let mut from = 0;
        for to in cuts.iter().copied().chain([line.len()]) {
            match long.take(&line[from..to], usize::MAX) {
                TakenMember::All => assert_eq!(long.len(), to),
                TakenMember::NotText => {
                    let bytes = long.into_bytes();
                    assert_eq!(bytes, line[..from], "a refused piece leaves nothing");
                    return None;
                }
                TakenMember::Last(_) | TakenMember::TooLong => {
                    panic!("neither a line end nor a limit")
                }
            }
            from = to;
        }
        matches!(long.take(b"\nmore", 0), TakenMember::Last(1)).then_some(long)
    }

    /// The parts of a response: id, result, type and `_meta`, each as text.
    fn read(line: LongLine) -> Option<String> {
        let (id, result) = LongResult::read(line, 64).ok()?;
        Some(format!("{id:?} {result:?}"))
    }

    fn read_whole(line: &str) -> Option<String> {
        let mut seen = Members::default();
        match Message::parse_text(line, 64, &mut seen) {
            // One with line breaks is copied.
            Message::Response { outcome: Ok(result), .. } if result.get().contains('\r') => None,
            Message::Response { id, outcome: Ok(result) } => {
                let part = |range| result.get().get(range);
                let hop = result.place().1;
                let [kind, meta] = [hop.kind(), hop.meta()].map(|place| part(place?.member()));
                Some(format!("{id:?} {:?} {kind:?} {meta:?}", result.get()))
            }
            Message::Response { .. }
            | Message::Request { .. }
            | Message::Notification { .. }
            | Message::Batch(_)
            | Message::Invalid { .. } => None,
        }
    }

    /// A response is read without its long strings as it is with them, however it is cut.
    #[test]
    fn long_strings_do_not_change_the_reading() {
        let long = r#"long \"text\" with \\ and \u00e4 \ud83e, ä🦀 and \n. "#.repeat(4);
        let lines = [
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":["{long}"],"x":"{long}"}}}}"#),
            format!(
                r#"{{"result" : {{ "resultType":"{long}" , "_meta":{{"a":"{long}"}}, "{long}":[] }} ,
                 "id":"a","jsonrpc":"2.0"}}"#
            )
            .replace('\n', ""),
            format!(r#"{{"id":"{long}","result":{{"_meta":{{}},"a":"{long}"}},"jsonrpc":"2.0"}}"#),
            format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":["{long}","{long}","{long}","{long}","{long}",
                {{}}]}}"#
            )
            .replace('\n', ""),
            format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":1,"message":"{long}"}}}}"#),
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"a\":\r\"{long}\"}}}}"),
        ];
        let (mut count, mut cut_out) = (0, 0);
        for line in &lines {
            let mut at = 0;
            mutants(line, 3000, |text| {
                if text.contains('\n') {
                    return;
                }
                at = (at + 37) % text.len().max(1);
                let cuts = [at / 3, at / 2, at];
                let line = gathered(text.as_bytes(), &cuts).expect("the text is UTF-8");
                assert_eq!(line.text()[ROOM..], *text);
                cut_out += usize::from(!line.strings().is_empty());
                let found = read(line);
                assert_eq!(found, read_whole(text), "{text} at {cuts:?}");
                assert_eq!(found, read(LongLine::from(text)));
                count += usize::from(found.is_some());
            });
        }
        assert!(count > 1000 && cut_out > 10_000, "{count} {cut_out}");
    }

    /// Characters are put together at every place where they are cut, and wrong ones are refused.
    #[test]
    fn encoding_is_checked_in_pieces() {
        let pieces: [&[u8]; 8] = [
            "aé€🦀".as_bytes(),
            b"\xff",
            b"\xc3",
            b"\xe2\x82",
            b"\x80",
            b"\xed\xa0\x80",
            b"\xf0\x9f\xa6",
            b"x",
        ];
        for first in pieces {
            for second in pieces {
                let line = [first, second].concat();
                for a in 0..=line.len() {
                    for b in a..=line.len() {
                        let found = gathered(&line, &[a, b]);
                        let is_text = str::from_utf8(&line).is_ok();
                        assert_eq!(found.is_some(), is_text, "{line:?} at {a} and {b}");
                    }
                }
            }
        }
    }

    /// A line of many short strings is no longer searched for long ones.
    #[test]
    fn search_ends_in_a_line_without_long_strings() {
        let short = r#""short","#.repeat(100);
        let long = format!("\"{}\"", "x".repeat(100));
        let of = |text: &str| LongLine::from(text).strings().len();
        assert_eq!((of(&long), of(&format!("[{short}{long}]"))), (1, 0));
        assert_eq!(of(&format!("[{}]", format!("{long},").repeat(9))), STRINGS_MAX);
    }
}
