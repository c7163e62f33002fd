//! Schemas as nearly every tool has them, checked while the arguments are read.
//!
//! An object of strings, numbers and booleans, some of them required, is judged without a tree of
//! values and without a general validator. What is not plainly valid is left to these: only they
//! refuse anything, so that there is one wording of every refusal.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;

/// The schema of a plain object.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    properties: Vec<(Box<str>, Kind)>,
    /// A bit for each property that must be there.
    required: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    String,
    Integer,
    Number,
    Boolean,
}

impl Plain {
    /// `schema` as a plain one; `None` if it asks for anything else.
    pub(super) fn new(schema: &Value) -> Option<Self> {
        let schema = schema.as_object()?;
        let mut plain = Self { properties: Vec::new(), required: 0 };
        for (name, property) in schema.get("properties").and_then(Value::as_object)? {
            let property = property.as_object()?;
            let annotation = |key: &str| matches!(key, "title" | "description" | "default");
            if property.keys().any(|key| key != "type" && !annotation(key)) {
                return None;
            }
            let kind = match property.get("type").and_then(Value::as_str)? {
                "string" => Kind::String,
                "integer" => Kind::Integer,
                "number" => Kind::Number,
                "boolean" => Kind::Boolean,
                _ => return None,
            };
            plain.properties.push((name.as_str().into(), kind));
        }
        for (key, value) in schema {
            match key.as_str() {
                "type" if value == "object" => {}
                "properties" | "title" | "description" => {}
                // What is not declared is never plainly valid.
                "additionalProperties" if value.is_boolean() => {}
                "required" => {
                    for name in value.as_array()? {
                        plain.required |= plain.bit(name.as_str()?)?.0;
                    }
                }
                _ => return None,
            }
        }
        // One bit for each.
        (plain.properties.len() <= 64).then_some(plain)
    }

    /// True when `arguments` are what the schema asks for; false says nothing.
    pub(super) fn holds(&self, arguments: &str) -> bool {
        let mut reader = serde_json::Deserializer::from_str(arguments);
        reader.deserialize_map(self).is_ok_and(|()| reader.end().is_ok())
    }

    fn bit(&self, name: &str) -> Option<(u64, Kind)> {
        let at = self.properties.iter().position(|(property, _)| **property == *name)?;
        let (_, kind) = self.properties.get(at)?;
        Some((1_u64.checked_shl(u32::try_from(at).ok()?)?, *kind))
    }
}

impl<'de> Visitor<'de> for &Plain {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("plain arguments")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = 0;
        while let Some(Key(key)) = map.next_key()? {
            let (bit, kind) = self.bit(&key).ok_or_else(not_plain)?;
            if seen & bit != 0 {
                return Err(not_plain());
            }
            seen |= bit;
            map.next_value_seed(kind)?;
        }
        if seen & self.required == self.required { Ok(()) } else { Err(not_plain()) }
    }
}

#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

fn not_plain<E: Error>() -> E {
    E::custom("not plain")
}

impl<'de> DeserializeSeed<'de> for Kind {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Kind {
    fn is<E: Error>(self, kinds: &[Self]) -> Result<(), E> {
        if kinds.contains(&self) { Ok(()) } else { Err(not_plain()) }
    }
}

impl Visitor<'_> for Kind {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.is(&[Self::Boolean])
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.is(&[Self::Integer, Self::Number])
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.is(&[Self::Integer, Self::Number])
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        // Whether it is an integer is not plain.
        if number.is_finite() { self.is(&[Self::Number]) } else { Err(not_plain()) }
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.is(&[Self::String])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{"s":{"type":"string","default":"x"},
        "i":{"type":"integer"},"n":{"type":"number","title":"N"},"b":{"type":"boolean"}},
        "required":["s"],"additionalProperties":false}"#;

    #[test]
    fn what_plainly_holds_holds() {
        let arguments = Arguments::new(SCHEMA).expect("a schema");
        let plain = Plain::new(&serde_json::from_str(SCHEMA).expect("JSON")).expect("plain");
        let values = ["\"\"", "\"\\n\"", "1", "-1", "1.0", "1.5", "1e999", "true", "null", "[]"];
        let mut held = 0;
        for name in ["s", "i", "n", "b", "x"] {
            for value in values {
                for text in [
                    format!(r#"{{"{name}":{value}}}"#),
                    format!(r#"{{"s":"t","{name}":{value}}}"#),
                    format!(r#"{{"s":"t","{name}":{value},"i":2}}"#),
                    format!(r#" {{ "s" : "t" , "{name}" : {value} }} "#),
                    format!(r#"{{"s":"t","{name}":{value}}} x"#),
                    format!(r#"[{value}]"#),
                ] {
                    if plain.holds(&text) {
                        held += 1;
                        assert_eq!(arguments.check_whole(&text), Ok(()), "{text}");
                    }
                }
            }
        }
        assert!(held > 20, "{held}");
    }

    #[test]
    fn what_asks_for_more_is_not_plain() {
        for schema in [
            r#"{"type":"object","properties":{"a":{"type":"string","minLength":1}}}"#,
            r#"{"type":"object","properties":{"a":{"type":["string","null"]}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"array"}}}"#,
            r#"{"type":"object","properties":{},"minProperties":1}"#,
            r#"{"type":"object","properties":{},"required":["a"]}"#,
            r#"{"type":"object","properties":{},"additionalProperties":{"type":"string"}}"#,
        ] {
            assert!(Plain::new(&serde_json::from_str(schema).expect("JSON")).is_none(), "{schema}");
        }
    }
}
