//! JSON values as text that was validated before.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use serde::de::IgnoredAny;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::scan;

/// One JSON value as text.
///
/// Unlike [`RawValue`], construction does not parse the text again when it is known to be JSON.
pub struct Json(JsonText);

/// Storage of a text.
enum JsonText {
    Own(Box<str>),
    Result(Box<RelayedText>),
}

/// Every waiting job has one.
const _: () = assert!(size_of::<Json>() == size_of::<Box<str>>());

/// The result of a relayed request.
struct RelayedText {
    text: Box<str>,
    is_bare: bool,
}

impl Json {
    /// Returns the JSON text.
    #[must_use]
    pub fn get(&self) -> &str {
        match &self.0 {
            JsonText::Own(text) => text,
            JsonText::Result(result) => &result.text,
        }
    }

    /// Whether this is known to be an object without the members that describe the hop of a result,
    /// in any spelling: `resultType` and `_meta`.
    pub(crate) fn is_bare(&self) -> bool {
        matches!(&self.0, JsonText::Result(result) if result.is_bare)
    }

    /// Wraps the output of a serializer without reading it again.
    ///
    /// `text` must be exactly one JSON value; anything else breaks the message that contains it.
    #[must_use]
    pub fn written(text: String) -> Self {
        debug_assert!(serde_json::from_str::<IgnoredAny>(&text).is_ok(), "no JSON: {text}");
        Self::own(text.into())
    }

    const fn own(text: Box<str>) -> Self {
        Self(JsonText::Own(text))
    }

    /// Wraps a text that was validated before, or that a serializer wrote.
    pub(crate) fn from_checked(text: Cow<'_, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::own(text.into()),
            Cow::Owned(text) => Self::written(text),
        }
    }

    /// As [`Json::from_checked`], for a text of which [`Json::is_bare`] is known. It holds no more memory
    /// than the text takes, since it may be kept.
    pub(crate) fn of_result(text: Cow<'_, str>, is_bare: bool) -> Self {
        let json = Self(JsonText::Result(RelayedText { text: text.into(), is_bare }.into()));
        debug_assert!(serde_json::from_str::<IgnoredAny>(json.get()).is_ok(), "no JSON: {json:?}");
        json
    }
}

impl Clone for Json {
    fn clone(&self) -> Self {
        match &self.0 {
            JsonText::Own(text) => Self::own(text.clone()),
            JsonText::Result(result) => Self::of_result(self.get().into(), result.is_bare),
        }
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self::own(raw.into())
    }
}

impl Serialize for Json {
    /// Serializes the contained value, not its text as a string.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(self.get()).map_err(S::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

/// One JSON value inside a validated text.
#[derive(Debug, Clone, Copy)]
pub struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// Wraps the text of one value inside a validated text.
    pub(crate) const fn checked(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns the JSON text.
    #[must_use]
    pub const fn get(self) -> &'a str {
        self.0
    }

    /// The value on its own, for a host. It is read once more.
    pub(crate) fn to_value(self) -> Box<RawValue> {
        // The text is valid, so the default is never used.
        RawValue::from_string(self.0.into()).unwrap_or_default()
    }

    /// The string value; `None` for another type, and for a string with an unpaired surrogate.
    pub(crate) fn string(self) -> Option<Cow<'a, str>> {
        scan::unescaped(self.quoted()?)
    }

    /// The string value with U+FFFD for each unpaired surrogate; `None` for another type.
    pub(crate) fn cleaned_string(self) -> Option<Cow<'a, str>> {
        let replace = |text: &mut String, _| text.push(char::REPLACEMENT_CHARACTER);
        Some(scan::unescaped_with(self.quoted()?, replace))
    }

    /// Text between the quotes of a string.
    fn quoted(self) -> Option<&'a str> {
        self.0.strip_prefix('"')?.strip_suffix('"')
    }

    /// True for an object.
    pub(crate) fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// The boolean value.
    pub(crate) fn flag(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// Finds the members of an object with these names, in one pass. `None` for another type.
    pub(crate) fn members<const N: usize>(
        self,
        names: [&'static str; N],
    ) -> Option<FoundMembers<'a, N>> {
        let mut found = FoundMembers { members: [None; N], twice: None };
        let mut seen = [false; N];
        scan::object(self.0.as_bytes(), scan::DEPTH_MAX, |name, value| {
            let wanted = |name: &[u8]| names.iter().position(|wanted| wanted.as_bytes() == name);
            let Some(slot) = scan::named(name, wanted) else { return Some(()) };
            if core::mem::replace(&mut seen[slot], true) {
                found.twice = Some(names[slot]);
            }
            if let Some(value) = Self(self.0.get(value)?).non_null() {
                found.members[slot] = Some(value);
            }
            Some(())
        })?;
        Some(found)
    }

    /// The same value; `None` for `null`.
    pub(crate) fn non_null(self) -> Option<Self> {
        (self.0 != "null").then_some(self)
    }
}

/// Members of an object; `null` counts as absent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundMembers<'a, const N: usize> {
    /// One entry for each name, in the order of the names. The last of several members counts.
    pub(crate) members: [Option<Raw<'a>>; N],
    /// A name that occurs twice.
    pub(crate) twice: Option<&'static str>,
}

impl<'a> From<&'a RawValue> for Raw<'a> {
    fn from(raw: &'a RawValue) -> Self {
        Self(raw.get())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::scan::tests::mutants;
    use alloc::collections::BTreeMap;

    /// The one-pass reader agrees with serde_json.
    #[test]
    fn members_agree_with_serde_json() {
        const NAMES: [&str; 4] = ["a", "b/c", "\u{e4}", ""];
        let objects = [
            r#"{"a":1,"b/c":{"a":[2,{}]},"d":null,"ä":"x","e":"y"}"#,
            r#"{ "d" : "a" , "" : {} , "a" : true , "\u0061b" : -1.5e3 }"#,
            r#"{"a":1,"\u0061":2,"":null,"":{},"ä":7,"\u00e4":[]}"#,
        ];
        let (mut read, mut twice) = (0, 0);
        for object in objects {
            mutants(object, 20_000, |text| {
                let Ok(value) = serde_json::from_str::<&RawValue>(text) else { return };
                let found = Raw::from(value).members(NAMES);
                let all = serde_json::from_str::<BTreeMap<String, &RawValue>>(value.get());
                let Ok(all) = all else {
                    // Not an object, or a name with an unpaired surrogate.
                    return assert!(found.is_none() || text.contains(r"\u"), "{text}");
                };
                let FoundMembers { members, twice: again } = found.expect("the text is an object");
                read += 1;
                twice += usize::from(again.is_some());
                for (name, member) in NAMES.iter().zip(members) {
                    let expected = all.get(*name).map(|value| value.get());
                    let expected = expected.filter(|value| *value != "null");
                    if again.is_none() {
                        assert_eq!(member.map(Raw::get), expected, "{name} of {text}");
                    }
                }
            });
        }
        assert!(read > 500 && twice > 50, "{read} {twice}");
        let found = Raw::checked(r#"{"a":1,"\u0061":2,"a":null}"#)
            .members(NAMES)
            .expect("the text is an object");
        assert_eq!((found.members[0].map(Raw::get), found.twice), (Some("2"), Some("a")));
        assert!(Raw::checked("[]").members(NAMES).is_none());
    }

    /// CAN-14: a text cut inside a surrogate pair is read with a replacement character.
    #[test]
    fn unpaired_surrogates_are_replaced() {
        let read = |text: &'static str| Raw::checked(text);
        assert_eq!(read(r#""a\ud83e""#).string(), None);
        assert_eq!(read(r#""a\ud83e""#).cleaned_string().as_deref(), Some("a\u{fffd}"));
        assert_eq!(read(r#""\ud83e\udd80""#).string().as_deref(), Some("\u{1f980}"));
        for other in ["null", "7", "[\"a\"]", "{}"] {
            assert_eq!(read(other).cleaned_string(), None);
        }
    }
}
