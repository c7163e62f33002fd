//! JSON values as text that was checked before.

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use serde::de::IgnoredAny;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

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
#[derive(Clone, Copy)]
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
        if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::from_str::<String>(self.0).ok().map(Cow::Owned)
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
