//! Values of the configuration as they are written: texts, numbers, sizes, times.

use std::fmt;

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

/// A string and its place.
pub(super) type Text = Spanned<String>;

/// A duration as written.
#[derive(Debug)]
pub(super) struct Span(pub(super) String);

/// A size as written.
#[derive(Debug)]
pub(super) enum Size {
    /// With a unit.
    Text(String),
    /// A number of bytes.
    Bytes(u64),
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Wording("a duration with its unit, such as \"10s\"", Self))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64KiB\", or a whole number of bytes")
            }

            fn visit_str<E>(self, text: &str) -> Result<Size, E> {
                Ok(Size::Text(text.to_owned()))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Size, E> {
                u64::try_from(number)
                    .map(Size::Bytes)
                    .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// Takes a string, and names the expected kind when it gets something else.
pub(super) struct Wording<T>(pub(super) &'static str, pub(super) fn(String) -> T);

impl<T> Visitor<'_> for Wording<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok((self.1)(text.to_owned()))
    }
}
