//! Trace context of a request: `traceparent`, `tracestate` and `baggage` of its `_meta` (SEP-414),
//! read as W3C Trace Context has it.
//!
//! A context that breaks its format never fails a request: it counts as absent.

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt::Write as _;

use uuid::Uuid;

use crate::json::raw::Raw;

/// Keys of `_meta`, which are names of HTTP headers as well.
pub const KEYS: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// Bytes of a `tracestate` that is passed on; W3C asks for 512 at least.
const STATE_BYTES_MAX: usize = 4096;
/// Members of a `tracestate`.
const STATE_MEMBERS_MAX: usize = 32;
/// Bytes of a `baggage` that is passed on: the number of W3C Baggage.
const BAGGAGE_BYTES_MAX: usize = 8192;
/// Bytes of a `traceparent` of version 00.
const PARENT_BYTES: usize = 55;
/// Flag of a trace that is recorded.
const SAMPLED: u8 = 1;

/// Trace context of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// The span that the work of the request belongs to.
    pub span: Option<Span>,
    /// Its `tracestate`; none without a span of the sender.
    pub state: Option<Box<str>>,
    /// Its `baggage`.
    pub baggage: Option<Box<str>>,
}

/// One span of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Id of the trace.
    pub trace: [u8; 16],
    /// Id of the span: the sender's, or one of this hop.
    pub id: [u8; 8],
    /// The sender's span, for one of this hop that continues a trace.
    pub parent: Option<[u8; 8]>,
    /// Whether the span is of this hop.
    pub is_own: bool,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// The `traceparent` to pass on.
    pub text: Box<str>,
}

impl TraceContext {
    /// Reads the texts of `traceparent`, `tracestate` and `baggage`; `None` if none is valid.
    #[must_use]
    pub fn read(parent: Option<&str>, state: Option<&str>, baggage: Option<&str>) -> Option<Self> {
        let span = parent.and_then(Span::read);
        let state = state.filter(|state| span.is_some() && is_state(state));
        let baggage = baggage.filter(|baggage| is_baggage(baggage));
        let context = Self { span, state: state.map(Into::into), baggage: baggage.map(Into::into) };
        (context != Self::default()).then_some(context)
    }

    /// As [`TraceContext::read`], from members of `_meta`.
    pub(crate) fn of_members(members: [Option<Raw<'_>>; 3]) -> Option<Box<Self>> {
        if members.iter().all(Option::is_none) {
            return None;
        }
        let texts = members.map(|member| member.and_then(Raw::string));
        let [parent, state, baggage] =
            texts.each_ref().map(|text: &Option<Cow<'_, str>>| text.as_deref());
        Self::read(parent, state, baggage).map(Box::new)
    }

    /// Begins a span of this hop: in the trace of the sender, or in a new one.
    #[must_use]
    pub fn with_own_span(mut self, mut uuid: impl FnMut() -> Uuid) -> Self {
        let id = uuid();
        let [.., a, b, c, d, e, f, g, h] = *id.as_bytes();
        // The variant of a UUID makes it other than zero.
        let id = [a, b, c, d, e, f, g, h];
        let (trace, parent, is_sampled) = match self.span {
            Some(span) => (span.trace, Some(span.id), span.is_sampled),
            None => (*uuid().as_bytes(), None, true),
        };
        let flags = if is_sampled { "01" } else { "00" };
        let text = alloc::format!("00-{}-{}-{flags}", hex(&trace), hex(&id)).into();
        self.span = Some(Span { trace, id, parent, is_own: true, is_sampled, text });
        self
    }

    /// Bytes of its texts.
    pub(crate) fn bytes(&self) -> usize {
        let texts =
            [self.span.as_ref().map(|span| &span.text), self.state.as_ref(), self.baggage.as_ref()];
        texts.into_iter().flatten().map(|text| text.len()).sum()
    }
}

impl Span {
    /// Reads a `traceparent`.
    fn read(text: &str) -> Option<Self> {
        let version = octets::<1>(text.get(..2)?)?;
        let is_long_enough = match text.len().checked_sub(PARENT_BYTES)? {
            0 => true,
            _ => version != [0] && text.as_bytes().get(PARENT_BYTES) == Some(&b'-'),
        };
        let mut parts = text.get(2..PARENT_BYTES)?.split('-');
        let (start, trace, id, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (trace, id, [flags]) = (octets::<16>(trace)?, octets::<8>(id)?, octets::<1>(flags)?);
        let is_valid = is_long_enough
            && version != [0xff]
            && start.is_empty()
            && parts.next().is_none()
            && trace != [0; 16]
            && id != [0; 8]
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        let is_sampled = flags & SAMPLED != 0;
        let text = text.to_owned().into();
        is_valid.then_some(Self { trace, id, parent: None, is_own: false, is_sampled, text })
    }

    /// Id of the trace in hexadecimal digits.
    #[must_use]
    pub fn trace_hex(&self) -> String {
        hex(&self.trace)
    }

    /// Id of the span in hexadecimal digits.
    #[must_use]
    pub fn id_hex(&self) -> String {
        hex(&self.id)
    }
}

/// Bytes as hexadecimal digits in lower case.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Bytes of so many pairs of hexadecimal digits in lower case.
fn octets<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut octets = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (octet, pair) in octets.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *octet = digit(*high)? << 4 | digit(*low)?;
    }
    Some(octets)
}

/// Whether a text is a `tracestate`: at most 32 members with different keys, or empty ones.
fn is_state(text: &str) -> bool {
    let members = text.split(',').map(|member| member.trim_matches([' ', '\t']));
    let members: alloc::vec::Vec<&str> = members.filter(|member| !member.is_empty()).collect();
    let key_of = |member: &str| member.split_once('=').map(|(key, _)| key.len());
    let is_unique = |(at, member): (usize, &&str)| {
        let key = key_of(member).and_then(|end| member.get(..=end));
        let before = members.get(..at).unwrap_or_default();
        key.is_some_and(|key| !before.iter().any(|other| other.starts_with(key)))
    };
    (1..=STATE_MEMBERS_MAX).contains(&members.len())
        && text.len() <= STATE_BYTES_MAX
        && members.iter().all(|member| is_state_member(member))
        && members.iter().enumerate().all(is_unique)
}

fn is_state_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else { return false };
    let is_key_byte =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let is_start = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let parts = key.split('@');
    let is_part = |part: &str| part.as_bytes().first().is_some_and(is_start);
    (1..=256).contains(&key.len())
        && key.bytes().all(is_key_byte)
        && parts.clone().count() <= 2
        && parts.clone().all(is_part)
        && (1..=256).contains(&value.len())
        && value.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=' && byte != b',')
}

/// Whether a text may be a `baggage`: visible ASCII, spaces and tabs, with a member at least.
fn is_baggage(text: &str) -> bool {
    text.len() <= BAGGAGE_BYTES_MAX
        && text.contains('=')
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte) || byte == b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(parent: &str) -> Option<Span> {
        TraceContext::read(Some(parent), None, None)?.span
    }

    /// OBS-01: only a `traceparent` that is valid by W3C counts.
    #[test]
    fn parents_are_read_strictly() {
        let span = read(PARENT).expect("a valid traceparent");
        assert_eq!(span.trace_hex(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((span.id_hex().as_str(), span.is_sampled), ("b7ad6b7169203331", true));
        assert_eq!(&*span.text, PARENT);
        for good in [
            PARENT.replace("-01", "-00"),
            PARENT.replace("-01", "-ff"),
            PARENT.replacen("00-", "cc-", 1),
            PARENT.replacen("00-", "cc-", 1) + "-what the future brings".replace(' ', ".").as_str(),
        ] {
            assert!(read(&good).is_some(), "{good}");
        }
        for bad in [
            String::new(),
            PARENT.to_uppercase(),
            PARENT.replacen("00-", "ff-", 1),
            PARENT.replacen("00-", "0-", 1),
            alloc::format!("{PARENT}-"),
            alloc::format!("{PARENT}-00"),
            alloc::format!("{PARENT} "),
            alloc::format!(" {PARENT}"),
            PARENT.replacen("00-", "cc-", 1) + ".x",
            PARENT.replacen("00-", "cc-", 1) + "-\n",
            PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            PARENT.replace("b7ad6b7169203331", "b7ad6b716920333g"),
            PARENT.replace('-', "_"),
            PARENT.replace("b7ad6b7169203331-01", "b7ad6b71692033-0101"),
            "é".repeat(28),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }

    /// OBS-01: a `tracestate` counts beside a valid `traceparent` alone, baggage by itself.
    #[test]
    fn states_and_baggage_are_bounded() {
        let state = |text: &str| {
            TraceContext::read(Some(PARENT), Some(text), None).and_then(|context| context.state)
        };
        let many = |count: usize| {
            let members: alloc::vec::Vec<_> =
                (0..count).map(|n| alloc::format!("k{n}=v")).collect();
            members.join(",")
        };
        for good in ["rojo=00f067aa0ba902b7", "a=1, b=2\t,,", "t61rcwkgmze@el=x y", &many(32)] {
            assert_eq!(state(good).as_deref(), Some(good), "{good}");
        }
        let long = alloc::format!("a={}", "x".repeat(257));
        for bad in
            ["", ",", "a", "A=1", "a=", "a=1,a=2", "a@b@c=1", "@a=1", "a=\u{e9}", &many(33), &long]
        {
            assert_eq!(state(bad), None, "{bad}");
        }
        assert_eq!(TraceContext::read(None, Some("a=1"), None), None);
        assert_eq!(TraceContext::read(Some("x"), Some("a=1"), None), None);
        let baggage = |text: &str| TraceContext::read(None, None, Some(text)).is_some();
        assert!(baggage("user=ann;p=1, x=%20"));
        assert!(
            !baggage("") && !baggage("a=\n") && !baggage(&("a=".to_owned() + &"x".repeat(8192)))
        );
    }

    /// OBS-01: a span of this hop continues the trace of the sender, or begins one.
    #[test]
    fn own_span_continues_the_trace() {
        let mut number = 0;
        let mut uuid = || {
            number += 1;
            uuid::Builder::from_random_bytes([number; 16]).into_uuid()
        };
        let sender = TraceContext::read(Some(PARENT), Some("a=1"), None).unwrap_or_default();
        let own = sender.clone().with_own_span(&mut uuid);
        let (span, parent) = (own.span.unwrap(), sender.span.unwrap());
        assert_eq!((span.trace, span.parent, span.is_own), (parent.trace, Some(parent.id), true));
        assert_eq!(own.state, sender.state);
        assert_eq!(read(&span.text).map(|read| (read.trace, read.id)), Some((span.trace, span.id)));
        let root = TraceContext::default().with_own_span(&mut uuid).span.unwrap();
        assert!(root.parent.is_none() && root.is_sampled && read(&root.text).is_some());
    }
}
