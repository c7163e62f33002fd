//! Results of responses: their text, and the members that a server without sessions adds to each.

use alloc::borrow::Cow;
use core::ops::Range;

use crate::json::raw::Raw;
use crate::json::scan;

/// The result of a response: validated JSON text.
///
/// One pass finds both the end of the result and the members that describe its hop alone: its type,
/// and `_meta`.
#[derive(Debug, Clone, Copy)]
pub struct ResultText<'a> {
    text: &'a str,
    hop: HopMembers,
}

/// Places of the members of a result that describe its hop (MOD-02).
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct HopMembers {
    kind: Option<ResultPlace>,
    meta: Option<ResultPlace>,
    /// One of them occurs twice, in which case the last one counts, or is too far away.
    is_odd: bool,
}

/// Place of a member in the text of a result, in 12 bytes: every frame is read with room for two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResultPlace {
    /// Offset of the quote before the name.
    start: u32,
    /// Offset of the value.
    value: u32,
    /// Offset behind the value.
    end: u32,
}

impl ResultPlace {
    fn new(start: usize, value: usize, end: usize) -> Option<Self> {
        let short = |offset: usize| u32::try_from(offset).ok();
        Some(Self { start: short(start)?, value: short(value)?, end: short(end)? })
    }

    /// The name and the value.
    pub(crate) const fn member(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The value.
    pub(crate) const fn value(self) -> Range<usize> {
        self.value as usize..self.end as usize
    }
}

impl HopMembers {
    /// Reads the value at an offset of a text, and returns its end. Places count from `at`. `self`
    /// must be empty.
    pub(crate) fn read(&mut self, text: &[u8], at: usize, depth_max: usize) -> Option<usize> {
        if text.get(at) != Some(&b'{') {
            return scan::value(text, at, depth_max);
        }
        scan::object_at(text, at, depth_max, |name, value, depth_max| {
            let end = scan::value(text, value, depth_max)?;
            let slot = scan::named(name, |name| match name {
                b"resultType" => Some(true),
                b"_meta" => Some(false),
                _ => None,
            });
            if let Some(is_kind) = slot {
                let start = start_of(text, name, value)? - at;
                let place = ResultPlace::new(start, value - at, end - at);
                let slot = if is_kind { &mut self.kind } else { &mut self.meta };
                self.is_odd |= slot.is_some() || place.is_none();
                *slot = place;
            }
            Some(end)
        })
    }

    /// Place of the type.
    pub(crate) const fn kind(&self) -> Option<ResultPlace> {
        self.kind
    }

    /// Place of `_meta`.
    pub(crate) const fn meta(&self) -> Option<ResultPlace> {
        self.meta
    }
}

/// Offset of the quote before the name of a member, by the offset of its value.
fn start_of(text: &[u8], name: &[u8], value: usize) -> Option<usize> {
    let trimmed = |end: usize| text.get(..end).map(|text| text.trim_ascii_end().len());
    let colon = trimmed(value)?.checked_sub(1)?;
    trimmed(colon)?.checked_sub(name.len() + 2)
}

impl<'a> ResultText<'a> {
    /// A result whose members were found while it was scanned.
    pub(crate) const fn seen(text: Raw<'a>, hop: HopMembers) -> Self {
        Self { text: text.get(), hop }
    }

    /// Finds the members of a text that was validated before.
    pub(crate) fn of(text: &'a str) -> Self {
        let text = text.trim_ascii();
        let mut hop = HopMembers::default();
        if hop.read(text.as_bytes(), 0, scan::DEPTH_MAX).is_none() {
            hop = HopMembers::default();
        }
        Self { text, hop }
    }

    /// Returns the JSON text.
    #[must_use]
    pub const fn get(&self) -> &'a str {
        self.text
    }

    /// The same text as a value.
    pub(crate) const fn raw(&self) -> Raw<'a> {
        Raw::checked(self.text)
    }

    /// Whether the result has neither a type nor `_meta`.
    pub(crate) const fn is_bare(&self) -> bool {
        self.hop.kind.is_none() && self.hop.meta.is_none() && !self.hop.is_odd
    }

    /// Type of the result, for revisions that name it.
    pub(crate) fn kind(&self) -> Option<Cow<'a, str>> {
        let value = self.hop.kind()?.value();
        Raw::checked(self.text.get(value)?).string()
    }

    /// The members that describe the hop, each at most once; `None` if one occurs twice, or its place
    /// is not known.
    pub(crate) fn hop(&self) -> Option<&HopMembers> {
        (!self.hop.is_odd).then_some(&self.hop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MOD-02: the members are found in every spelling, those of nested objects are not.
    #[test]
    fn members_of_the_hop_are_found() {
        for (text, kind, meta) in [
            ("{}", None, None),
            ("7", None, None),
            (r#"{"a":{"resultType":"x","_meta":{}}}"#, None, None),
            (r#"{"resultType":"task","a":1}"#, Some(r#""resultType":"task""#), None),
            (
                r#"{ "a":1 , "result\u0054ype" : "x" , "_meta" :{"k":[ ]} }"#,
                Some(r#""result\u0054ype" : "x""#),
                Some(r#""_meta" :{"k":[ ]}"#),
            ),
        ] {
            let result = ResultText::of(text);
            let hop = result.hop().expect("no member occurs twice");
            let shown = |place: Option<ResultPlace>| place.map(|place| &text[place.member()]);
            assert_eq!((shown(hop.kind()), shown(hop.meta())), (kind, meta), "{text}");
            assert_eq!(result.is_bare(), kind.is_none() && meta.is_none());
        }
        let task = ResultText::of(r#"{"resultType":"complete","resultType":"t\u0061sk"}"#);
        assert_eq!(task.kind().as_deref(), Some("task"));
        assert!(task.hop().is_none() && !task.is_bare());
        assert_eq!(ResultText::of(r#"{"resultType":null}"#).kind(), None);
    }
}
