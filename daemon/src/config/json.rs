//! JSON written as TOML: a tree that keeps the order of the file.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::Spanned;

/// The entries of a table in the order of the file, each key with its position.
#[derive(Debug, Clone)]
pub(super) struct Ordered<T>(pub(super) Vec<(Spanned<String>, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Pairs<T> {
            type Value = Ordered<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(key) = map.next_key::<Spanned<String>>()? {
                    pairs.push((key, map.next_value()?));
                }
                // The TOML parser sorts keys by name; the spans have the order of the file.
                pairs.sort_by_key(|(key, _)| key.span().start);
                Ok(Ordered(pairs))
            }
        }

        deserializer.deserialize_map(Pairs(PhantomData))
    }
}

/// A JSON value without null, which TOML does not have.
#[derive(Debug, Clone)]
pub(super) enum Json {
    /// A boolean.
    Flag(bool),
    /// An integer.
    Whole(i64),
    /// Any other number; always finite.
    Float(f64),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Self>),
    /// An object.
    Object(Vec<(String, Self)>),
}

impl Json {
    /// An object with these members.
    pub(super) fn object<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self::Object(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// A string.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

impl fmt::Display for Json {
    /// Writes compact JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Whole(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(list) => {
                let mut seq = serializer.serialize_seq(Some(list.len()))?;
                for item in list {
                    seq.serialize_element(item)?;
                }
                seq.end()
            }
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (key, value) in members {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Json;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value that JSON has: a string, number, boolean, array or table")
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Json, E> {
                Ok(Json::Flag(flag))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
                Ok(Json::Whole(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Json, E> {
                if number.is_finite() {
                    Ok(Json::Float(number))
                } else {
                    Err(E::invalid_value(serde::de::Unexpected::Float(number), &self))
                }
            }

            fn visit_str<E>(self, text: &str) -> Result<Json, E> {
                Ok(Json::text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = seq.next_element()? {
                    list.push(item);
                }
                Ok(Json::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
                let mut pairs = Vec::new();
                while let Some(key) = map.next_key::<Spanned<String>>()? {
                    pairs.push((key, map.next_value()?));
                }
                pairs.sort_by_key(|(key, _)| key.span().start);
                Ok(Json::Object(pairs.into_iter().map(|(k, v)| (k.into_inner(), v)).collect()))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Holder {
        it: Json,
    }

    #[test]
    fn order_of_the_file_is_kept() {
        let text = "[it]\nz = 1\na = [true, \"x\", 1.5]\n[it.m]\nq = 0\nb.c = {}\n[it.d]\n";
        let holder: Holder = toml::from_str(text).expect("valid TOML");
        let json = r#"{"z":1,"a":[true,"x",1.5],"m":{"q":0,"b":{"c":{}}},"d":{}}"#;
        assert_eq!(holder.it.to_string(), json);
    }

    #[test]
    fn value_without_json_form_is_rejected() {
        for value in ["nan", "-inf", "1979-05-27", "{ x = 07:32:00 }"] {
            let result: Result<Holder, _> = toml::from_str(&format!("it = {value}"));
            assert!(result.is_err(), "{value}");
        }
    }
}
