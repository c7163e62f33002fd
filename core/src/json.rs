//! JSON values as text that was checked before.

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use memchr::memchr;
use serde::de::IgnoredAny;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::scan;

/// One JSON value as text.
///
/// [`RawValue`] is the same, and reads its text wherever one is made; this is made without where it
/// is known that the text is JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Box<str>);

impl Json {
    /// Its text.
    #[must_use]
    pub const fn get(&self) -> &str {
        &self.0
    }

    /// What a serializer wrote, which is not read again. Whoever hands in anything but one JSON
    /// value breaks the message that it is put into.
    #[must_use]
    pub fn written(text: String) -> Self {
        debug_assert!(serde_json::from_str::<IgnoredAny>(&text).is_ok(), "no JSON: {text}");
        Self(text.into())
    }

    /// An object without members.
    pub(crate) fn empty_object() -> Self {
        Self("{}".into())
    }
}

impl From<Box<RawValue>> for Json {
    fn from(raw: Box<RawValue>) -> Self {
        Self(raw.into())
    }
}

impl Serialize for Json {
    /// As the value it is.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
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
        f.write_str(&self.0)
    }
}

/// One JSON value in a text that was checked as a whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a>(&'a str);

impl<'a> Raw<'a> {
    /// The value that was found there.
    pub(crate) const fn checked(text: &'a str) -> Self {
        Self(text)
    }

    /// Its text.
    pub(crate) const fn get(self) -> &'a str {
        self.0
    }

    /// The string it is; `None` for anything but a string.
    pub(crate) fn string(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        // It was checked: without a backslash it has no escapes.
        if memchr(b'\\', inner.as_bytes()).is_none() {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::from_str::<String>(self.0).ok().map(Cow::Owned)
    }

    /// The members of an object that have these names, in one pass. `None` when it is no object, or
    /// not as plain as nearly everybody writes one: a name has an escape, or one of these is there
    /// twice. What is in it is for a general reader to say then.
    pub(crate) fn members<const N: usize>(self, names: [&str; N]) -> Option<[Option<Self>; N]> {
        let mut found = [None; N];
        let end = scan::object(self.0.as_bytes(), usize::MAX, |name, value| {
            if memchr(b'\\', name).is_some() {
                return None;
            }
            let Some(slot) = names.iter().position(|wanted| wanted.as_bytes() == name) else {
                return Some(());
            };
            let was_there = found[slot].replace(Self(self.0.get(value)?)).is_some();
            (!was_there).then_some(())
        })?;
        (end == self.0.len()).then_some(found)
    }

    /// The same value, unless it is `null`.
    pub(crate) fn non_null(self) -> Option<Self> {
        (self.0 != "null").then_some(self)
    }

    /// A copy of its own.
    pub(crate) fn to_json(self) -> Json {
        Json(self.0.to_owned().into())
    }
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
    use crate::scan::tests::mutants;
    use alloc::collections::BTreeMap;

    /// What is read in one pass is what the general reader reads.
    #[test]
    fn members_are_what_they_are() {
        const NAMES: [&str; 4] = ["a", "b/c", "\u{e4}", ""];
        let objects = [
            r#"{"a":1,"b/c":{"a":[2,{}]},"d":null,"ä":"x","e":"y"}"#,
            r#"{ "d" : "a" , "" : {} , "a" : true , "\u0061b" : -1.5e3 }"#,
        ];
        let (mut plain, mut odd) = (0, 0);
        for object in objects {
            mutants(object, 20_000, |text| {
                let Ok(value) = serde_json::from_str::<&RawValue>(text) else { return };
                let Some(members) = Raw::from(value).members(NAMES) else { return odd += 1 };
                plain += 1;
                let all: BTreeMap<String, &RawValue> =
                    serde_json::from_str(value.get()).expect("it is an object");
                for (name, member) in NAMES.iter().zip(members) {
                    let expected = all.get(*name).map(|value| value.get());
                    assert_eq!(member.map(Raw::get), expected, "{name} of {text}");
                }
            });
        }
        assert!(plain > 500 && odd > 500, "{plain} {odd}");
        assert!(Raw::checked(r#"{"a":1,"a":1}"#).members(NAMES).is_none());
        assert!(Raw::checked(r#"{"\u0061":1}"#).members(NAMES).is_none());
        assert!(Raw::checked("[]").members(NAMES).is_none());
    }
}
