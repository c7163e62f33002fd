//! Identifiers: one type for each thing that has an id, so that none can stand for another.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

use crate::json::format::write_characters;
use crate::json::scan;
use crate::json::scan::TextPiece;
use crate::json::whole::WholeNumber;

/// Declares an id that is a number, counted by the engine or given by the host.
macro_rules! numbered {
    ($(#[$doc:meta])+ $name:ident, $letter:literal) => {
        $(#[$doc])+
        ///
        /// Kept as one more, so that an optional one takes no more room. No counter reaches the
        /// last one.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(core::num::NonZeroU64);

        impl $name {
            /// The one with this number.
            #[must_use]
            pub const fn new(number: u64) -> Self {
                Self(core::num::NonZeroU64::MIN.saturating_add(number))
            }

            /// Its number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0.get() - 1
            }
        }

        #[cfg(feature = "trace")]
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(self.get())
            }
        }

        #[cfg(feature = "trace")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <u64 as serde::Deserialize>::deserialize(from).map(Self::new)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!($letter, "{}"), self.get())
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(self, f)
            }
        }
    };
}

pub(crate) use numbered;

numbered! {
    /// A connection. Nullable by the host, never used twice in the life of an engine.
    ConnId, "c"
}

numbered! {
    /// A call with an idempotency key. Counted by the engine, never used twice.
    KeyedId, "k"
}

numbered! {
    /// A job: one run of a tool, or of a request at a server. Counted by the engine, never used
    /// twice, so that a reused or cancelled request id cannot reach the wrong job.
    JobId, "j"
}

numbered! {
    /// A question to the host for its data. Counted by the engine, never used twice.
    StatusId, "v"
}

numbered! {
    /// A request of ours to a peer. Counted by the engine from 1; its decimal is the JSON-RPC id.
    CallId, "k"
}

numbered! {
    /// Id that a job or the host gives to a question, to know the answer by. Never used twice
    /// by the same one.
    AskId, "q"
}

numbered! {
    /// An instance of an upstream server. Counted by the engine, never used twice.
    InstanceId, "u"
}

numbered! {
    /// A check whether a cancelled request of an upstream has ended. Counted by the engine, never
    /// used twice.
    CheckId, "x"
}

impl CallId {
    /// The call that an id in a message of a peer names: by its number, or by a text of the digits,
    /// which some peers make of each id.
    pub(crate) fn named(id: &RequestId) -> Option<Self> {
        let number = match id {
            RequestId::Number(number) => u64::try_from(*number).ok(),
            RequestId::Text(text) => {
                let number: Option<i64> = text.parse().ok();
                number
                    .filter(|number| id.is_digits_of(&RequestId::Number(*number)))?
                    .try_into()
                    .ok()
            }
            RequestId::Null | RequestId::Canonical(_) => None,
        };
        number.map(Self::new)
    }

    /// The call that a JSON token names, as [`CallId::named`].
    pub(crate) fn read(token: &str) -> Option<Self> {
        Self::named(&RequestId::parse(token)?)
    }
}

/// The id a peer gave its request. Exact: `1` and `"1"` are two ids (CAN-01), while `1`, `1.0` and
/// `1e0` are one, since they are one number.
///
/// Prints strings quoted, so that the two look different in a log as well.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestId {
    /// An integer of 64 bits, however it is spelled.
    Number(i64),
    /// A string, with escapes resolved.
    Text(Arc<str>),
    /// `null`, where a dialect takes it for an id.
    Null,
    /// An id that no other variant can hold, as the one JSON text that stands for all its
    /// spellings: an integer beyond 64 bits, or a string in which a surrogate stands alone.
    Canonical(Arc<str>),
}

impl RequestId {
    /// Whether this is a text of the digits of that number, in their shortest form: some peers make
    /// a text of each id that they answer.
    pub(crate) fn is_digits_of(&self, id: &Self) -> bool {
        match (self, id) {
            (Self::Text(text), Self::Number(number)) => **text == *alloc::format!("{number}"),
            (Self::Text(_) | Self::Number(_) | Self::Null | Self::Canonical(_), _) => false,
        }
    }

    /// Reads one JSON token as an id; `None` for anything but an integer or a string (RPC-02). A
    /// fraction is no id, and neither is an integer whose exponent is beyond 64 bits. A caller that
    /// accepts `null` as an id compares with that first.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        let bytes = token.as_bytes();
        if bytes.first() == Some(&b'"') {
            return (scan::string(bytes, 0)? == bytes.len()).then(|| Self::text(token));
        }
        // So few digits are in range and, without a leading zero, a number's usual spelling.
        if (1..=18).contains(&bytes.len()) && (bytes[0] != b'0' || bytes.len() == 1) {
            let digit = |number: i64, byte: &u8| {
                let digit = byte.wrapping_sub(b'0');
                (digit < 10).then(|| number * 10 + i64::from(digit))
            };
            if let Some(number) = bytes.iter().try_fold(0, digit) {
                return Some(Self::Number(number));
            }
        }
        let whole = WholeNumber::read(token)?;
        let number = whole.to_i64().map(Self::Number);
        Some(number.unwrap_or_else(|| Self::Canonical(whole.canonical().into())))
    }

    /// Bytes of its text.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Canonical(text) => text.len(),
            Self::Number(_) | Self::Null => 0,
        }
    }

    /// The id that a string is, which was checked.
    fn text(token: &str) -> Self {
        let inner = token.get(1..token.len() - 1).unwrap_or_default();
        if let Some(text) = scan::unescaped(inner) {
            return Self::Text(text.into());
        }
        let mut canonical = String::from("\"");
        scan::pieces(inner, |piece| match piece {
            TextPiece::Plain(plain) => write_characters(&mut canonical, plain),
            TextPiece::Char(character) => {
                write_characters(&mut canonical, character.encode_utf8(&mut [0; 4]));
            }
            TextPiece::Lone(unit) => canonical.push_str(&format!("\\u{unit:04x}")),
        });
        canonical.push('"');
        Self::Canonical(canonical.into())
    }
}

impl fmt::Display for RequestId {
    /// With a precision, so many characters of a string at most.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => {
                let most = f.precision().unwrap_or(usize::MAX);
                let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
                let cut = if end < text.len() { "…" } else { "" };
                write!(f, "{:?}{cut}", text.get(..end).unwrap_or_default())
            }
            Self::Canonical(token) => {
                let most = f.precision().unwrap_or(usize::MAX);
                let end = token.char_indices().nth(most).map_or(token.len(), |(at, _)| at);
                let cut = if end < token.len() { "…" } else { "" };
                write!(f, "{}{cut}", token.get(..end).unwrap_or_default())
            }
            Self::Null => f.write_str("null"),
        }
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A task: a random version 4 UUID, hyphenated on the wire (TSK-08).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct TaskId(Uuid);

impl TaskId {
    /// Wraps an id the host's generator made.
    #[must_use]
    pub const fn new(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// Reads an id in the form this crate writes; `None` for every other form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // Uuid::try_parse takes four spellings, each of another length, in either case; only one
        // of them may name a task, or two texts would be one id.
        let ours =
            text.len() == Hyphenated::LENGTH && !text.bytes().any(|b| b.is_ascii_uppercase());
        Uuid::try_parse(text).ok().filter(|_| ours).map(Self)
    }

    /// The UUID inside.
    #[must_use]
    pub const fn uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

/// The `requestState` of a call that waits for input: it names the call and cannot be guessed
/// (MOD-07).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestState(Uuid);

impl RequestState {
    /// Wraps an id the host's generator made.
    #[must_use]
    pub const fn new(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// Reads a state in the form this crate writes; `None` for every other form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        TaskId::parse(text).map(|id| Self(id.uuid()))
    }
}

impl fmt::Debug for RequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A peer that knows it can answer the call; a log shows enough to tell two apart.
        write!(f, "s{:08x}…", self.0.as_fields().0)
    }
}

impl fmt::Display for RequestState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

/// Where fresh random ids come from: the operating system in a daemon, a counter in a test.
///
/// The engine has no randomness of its own (DET-01).
pub trait IdSource: Send {
    /// A fresh version 4 UUID (TSK-08).
    fn uuid(&mut self) -> Uuid;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RPC-01, RPC-02: valid and invalid ids.
    #[test]
    fn request_ids() {
        assert_eq!(RequestId::parse("7"), Some(RequestId::Number(7)));
        assert_eq!(RequestId::parse("-7"), Some(RequestId::Number(-7)));
        assert_eq!(
            RequestId::parse("9223372036854775807"),
            Some(RequestId::Number(9_223_372_036_854_775_807))
        );
        assert_eq!(RequestId::parse(r#""7""#), Some(RequestId::Text("7".into())));
        assert_eq!(RequestId::parse(r#""""#), Some(RequestId::Text("".into())));
        assert_eq!(RequestId::parse(r#""\u0041\n""#), Some(RequestId::Text("A\n".into())));
        for bad in ["1.5", "1e-1", "1e99999999999999999999", "null", "true", "[1]", "{}", "+1"] {
            assert_eq!(RequestId::parse(bad), None, "{bad}");
        }
        for bad in ["", "\"", "\"a", "\"a\" ", "\"\\x\"", "01", "-", "1.", "1 "] {
            assert_eq!(RequestId::parse(bad), None, "{bad}");
        }
    }

    /// A text of the digits of a number names the same call; another spelling names none.
    #[test]
    fn calls_are_named_by_numbers_and_their_digits() {
        for token in ["7", "7.0", "\"7\"", r#""\u0037""#] {
            assert_eq!(CallId::read(token), Some(CallId::new(7)), "{token}");
        }
        for other in ["-7", "\"07\"", "\"+7\"", "\"7.0\"", "\" 7\"", "\"\"", "null", "7.5", "[7]"] {
            assert_eq!(CallId::read(other), None, "{other}");
        }
    }

    /// CAN-01, RPC-01: equal numbers are one id, in whatever spelling, and unequal ones are not.
    #[test]
    fn spellings_of_an_id_are_equal() {
        let read = |token: &str| RequestId::parse(token).expect(token);
        for (spellings, id) in [
            (&["41", "41.0", "4.1e1", "410E-1"][..], RequestId::Number(41)),
            (&["0", "-0", "0.0", "-0e7"], RequestId::Number(0)),
            (
                &["18446744073709551616", "18446744073709551616.0", "1844674407370955161.6e1"],
                RequestId::Canonical("18446744073709551616".into()),
            ),
            (&["1e400", "10e399"], RequestId::Canonical("1e400".into())),
            (&["\"i1\"", r#""\u0069\u0031""#], RequestId::Text("i1".into())),
            (
                &[r#""a\\\ud800\"""#, r#""\u0061\u005c\uD800\u0022""#],
                RequestId::Canonical(r#""a\\\ud800\"""#.into()),
            ),
        ] {
            for spelling in spellings {
                assert_eq!(read(spelling), id, "{spelling}");
            }
        }
        let apart = ["1", "\"1\"", "9223372036854775807", "9223372036854775808", "1e19", "1e20"];
        let halves = [r#""\ud800""#, r#""\ud801""#, r#""\\ud800""#, "\"\u{fffd}\""];
        let all: alloc::vec::Vec<RequestId> = apart.into_iter().chain(halves).map(read).collect();
        for (at, id) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| other != id), "{id}");
        }
    }

    #[test]
    fn long_ids_can_be_shown_short() {
        let id = RequestId::Text("äöü\"x".into());
        assert_eq!(alloc::format!("{id}"), "\"äöü\\\"x\"");
        assert_eq!(alloc::format!("{id:.2}"), "\"äö\"…");
        assert_eq!(alloc::format!("{:.1}", RequestId::Number(77)), "77");
    }

    #[test]
    fn task_ids_have_one_spelling() {
        let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        assert_eq!(TaskId::parse(id).map(|t| alloc::format!("{t}")).as_deref(), Some(id));
        assert_eq!(TaskId::parse(&id.to_uppercase()), None);
        assert_eq!(TaskId::parse(&id.replace('-', "")), None);
        assert_eq!(TaskId::parse("urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8"), None);
    }
}
