//! Identifiers: one type for each thing that has an id, so that none can stand for another.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use core::fmt;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// Declares an id that is a number: of what is counted, or of what the host gives numbers to.
macro_rules! numbered {
    ($(#[$doc:meta])+ $name:ident, $letter:literal) => {
        $(#[$doc])+
        ///
        /// Kept as one more, so that an optional one takes no more room; nobody counts to the last
        /// number.
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
    /// A connection. Given by the host, never used twice in the life of an engine.
    ConnId, "c"
}

numbered! {
    /// A call with an idempotency key. Counted by the engine, never used twice.
    KeyedId, "k"
}

numbered! {
    /// A piece of work the host runs. Counted by the engine, never used twice, so that a reused or
    /// cancelled request id can never reach the wrong work.
    JobId, "j"
}

numbered! {
    /// A question to the host for what only it knows. Counted by the engine, never used twice.
    SurveyId, "v"
}

numbered! {
    /// A request of ours to a peer. Counted by the engine from 1; its decimal is the JSON-RPC id.
    CallId, "k"
}

numbered! {
    /// What a job or the host calls one of its questions, to know the answer by. Never used twice
    /// by the same one.
    AskId, "q"
}

/// The id a peer gave its request. Exact: `1` and `"1"` are two ids (CAN-01).
///
/// Prints strings quoted, so that the two look different in a log as well.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestId {
    /// An integer. Fractions, exponents and integers beyond 64 bits are refused, not rounded.
    Number(i64),
    /// A string, with escapes resolved.
    Text(Box<str>),
    /// `null`, where a dialect takes it for an id.
    Null,
}

impl RequestId {
    /// Reads one JSON token as an id; `None` for anything but an integer or a string (RPC-02).
    /// Whoever takes `null` for an id asks for it.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        if token.starts_with('"') {
            let text: Cow<'_, str> = serde_json::from_str::<Text<'_>>(token).ok()?.0;
            return Some(Self::Text(text.into()));
        }
        let digits = token.strip_prefix('-').unwrap_or(token);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        token.parse().ok().map(Self::Number)
    }
}

/// `Cow<str>` alone would always be deserialised as owned; this borrows where it can.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

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
        // Whoever knows it can answer the call; a log shows enough to tell two apart.
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
pub trait Mint: Send {
    /// A fresh version 4 UUID (TSK-08).
    fn uuid(&mut self) -> Uuid;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RPC-01, RPC-02: what is an id and what is not.
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
        for bad in
            ["1.0", "1e0", "9223372036854775808", "null", "true", "[1]", "{}", r#""\ud800""#, "+1"]
        {
            assert_eq!(RequestId::parse(bad), None, "{bad}");
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
