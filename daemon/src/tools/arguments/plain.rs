//! Fast check of common schemas during parsing.
//!
//! A flat object of strings, numbers, bounded integers and booleans, some required, is checked
//! without building a value tree or running the general validator. All other arguments go to the
//! general validator; only it rejects, so that each error has a single wording.

use ceased_core::json::format::plain_bytes;
use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

/// A schema that the fast check supports.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    properties: Vec<(Box<str>, Kind)>,
    /// Bit set of the required properties.
    required: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    String,
    /// Inclusive bounds.
    Integer(i64, i64),
    Number,
    Boolean,
}

impl Plain {
    /// Compiles `schema`; `None` if it uses other keywords or is invalid.
    pub(super) fn new(schema: &Value) -> Option<Self> {
        let schema = schema.as_object()?;
        let mut plain = Self { properties: Vec::new(), required: 0 };
        let properties = schema.get("properties").map(Value::as_object);
        for (name, property) in properties.unwrap_or_default().into_iter().flatten() {
            let property = property.as_object()?;
            let kind = Kind::declared(property)?;
            plain.properties.push((name.as_str().into(), kind));
        }
        for (key, value) in schema {
            match key.as_str() {
                "type" if value == "object" => {}
                "properties" if value.is_object() => {}
                "title" | "description" if value.is_string() => {}
                // The fast check never accepts undeclared members.
                "additionalProperties" if value.is_boolean() => {}
                "required" => {
                    for name in value.as_array()? {
                        let bit = plain.bit(name.as_str()?)?.0;
                        if plain.required & bit != 0 {
                            return None;
                        }
                        plain.required |= bit;
                    }
                }
                _ => return None,
            }
        }
        // One bit per property.
        (plain.properties.len() <= 64).then_some(plain)
    }

    /// True if `arguments` are valid; false is inconclusive.
    pub(super) fn holds(&self, arguments: &str) -> bool {
        self.holds_compact(arguments) || self.holds_read(arguments)
    }

    /// As [`Plain::holds`], for arguments without white space, escapes, and numbers other than
    /// short integers.
    fn holds_compact(&self, arguments: &str) -> bool {
        let mut text = Scanner(arguments.as_bytes());
        let mut seen = 0;
        if !text.takes(b"{") {
            return false;
        }
        loop {
            let member = text.string().and_then(|key| self.bit(key));
            let Some((bit, kind)) = member.filter(|(bit, _)| seen & bit == 0) else { return false };
            let fits = text.takes(b":")
                && match kind {
                    Kind::String => text.string().is_some(),
                    Kind::Integer(min, max) => {
                        text.whole_number().is_some_and(|number| (min..=max).contains(&number))
                    }
                    Kind::Number => text.whole_number().is_some(),
                    Kind::Boolean => text.takes(b"true") || text.takes(b"false"),
                };
            if !fits {
                return false;
            }
            seen |= bit;
            if !text.takes(b",") {
                let ends = text.takes(b"}") && text.0.is_empty();
                return ends && seen & self.required == self.required;
            }
        }
    }

    fn holds_read(&self, arguments: &str) -> bool {
        let mut reader = serde_json::Deserializer::from_str(arguments);
        reader.deserialize_map(self).is_ok_and(|()| reader.end().is_ok())
    }

    fn bit(&self, name: impl AsRef<[u8]>) -> Option<(u64, Kind)> {
        let is_it = |(property, _): &(Box<str>, Kind)| property.as_bytes() == name.as_ref();
        let at = self.properties.iter().position(is_it)?;
        let (_, kind) = self.properties.get(at)?;
        Some((1_u64.checked_shl(u32::try_from(at).ok()?)?, *kind))
    }
}

/// The unread rest of the text.
struct Scanner<'a>(&'a [u8]);

impl<'a> Scanner<'a> {
    fn takes(&mut self, token: &[u8]) -> bool {
        let rest = self.0.strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Content of a string without escapes.
    fn string(&mut self) -> Option<&'a [u8]> {
        let text = self.0.strip_prefix(b"\"")?;
        let (string, rest) = text.split_at_checked(plain_bytes(text))?;
        self.0 = rest.strip_prefix(b"\"")?;
        Some(string)
    }

    /// An integer without a leading zero, short enough for an i64.
    fn whole_number(&mut self) -> Option<i64> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        let fits = count == 1 || (2..=15).contains(&count) && digits.first() != Some(&b'0');
        let value = |sum: i64, digit: &u8| sum * 10 + i64::from(digit - b'0');
        fits.then(|| digits.iter().fold(0, value))
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
            let (bit, kind) = self.bit(&*key).ok_or_else(not_plain)?;
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
    /// The type of a property; `None` if it uses other keywords or is invalid.
    fn declared(property: &Map<String, Value>) -> Option<Self> {
        let mut kind = match property.get("type").and_then(Value::as_str)? {
            "string" => Self::String,
            "integer" => Self::Integer(i64::MIN, i64::MAX),
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        };
        for (key, value) in property {
            match (key.as_str(), &mut kind) {
                ("type" | "default", _) => {}
                ("title" | "description", _) if value.is_string() => {}
                ("minimum", Self::Integer(least, _)) => *least = value.as_i64()?,
                ("maximum", Self::Integer(_, most)) => *most = value.as_i64()?,
                _ => return None,
            }
        }
        Some(kind)
    }

    fn is<E: Error>(self, kind: Self) -> Result<(), E> {
        if self == kind { Ok(()) } else { Err(not_plain()) }
    }
}

impl Visitor<'_> for Kind {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.is(Self::Boolean)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        match self {
            Self::Integer(min, max) if (min..=max).contains(&number) => Ok(()),
            Self::Number => Ok(()),
            Self::Integer(..) | Self::String | Self::Boolean => Err(not_plain()),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => self.is(Self::Number),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        // Inconclusive for integers: `5.0` is a valid integer in JSON Schema.
        if number.is_finite() { self.is(Self::Number) } else { Err(not_plain()) }
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.is(Self::String)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{"s":{"type":"string","default":"x"},
        "i":{"type":"integer"},"r":{"type":"integer","minimum":1,"maximum":5},"n":{"type":"number","title":"N"},"b":{"type":"boolean"}},
        "required":["s"],"additionalProperties":false}"#;

    #[test]
    fn fast_check_agrees_with_the_validator() {
        let arguments = Arguments::new(SCHEMA).expect("a schema");
        let plain = Plain::new(&serde_json::from_str(SCHEMA).expect("JSON")).expect("plain");
        let values = [
            "\"\"",
            "\"\\n\"",
            "\"a\"",
            "\"\n\"",
            "\"\\ud800\"",
            "\"a",
            "0",
            "1",
            "01",
            "-1",
            "1.0",
            "1.5",
            "1e999",
            "123456789012345",
            "99999999999999999999",
            "true",
            "false",
            "tru",
            "null",
            "[]",
        ];
        let (mut held, mut glanced) = (0, 0);
        for name in ["s", "i", "r", "n", "b", "x"] {
            for value in values {
                for text in [
                    format!(r#"{{"{name}":{value}}}"#),
                    format!(r#"{{"s":"t","{name}":{value}}}"#),
                    format!(r#"{{"s":"t","{name}":{value},"i":2}}"#),
                    format!(r#" {{ "s" : "t" , "{name}" : {value} }} "#),
                    format!(r#"{{"s":"t","{name}":{value}}} x"#),
                    format!(r#"[{value}]"#),
                    format!(r#"{{"s":"t","s":{value}}}"#),
                    format!(r#"{{"s":"t",{value}}}"#),
                    format!(r#"{{"s":"t","{name}":{value}"#),
                    format!(r#"{{"s":"t","{name}":{value},}}"#),
                ] {
                    if plain.holds(&text) {
                        held += 1;
                        glanced += usize::from(plain.holds_compact(&text));
                        assert_eq!(
                            arguments
                                .check_whole(&super::super::strict::value(&text).expect("JSON")),
                            Ok(()),
                            "{text}"
                        );
                    }
                }
            }
        }
        assert!(held > 20 && glanced > 10, "{held} {glanced}");
    }

    /// The validator is compiled on first use, which must not fail.
    #[test]
    fn fast_schema_is_a_valid_schema() {
        for schema in [
            SCHEMA,
            r#"{"type":"object"}"#,
            r#"{"type":"object","additionalProperties":false,"title":"","description":"d"}"#,
            r#"{"type":"object","properties":{"a":{"type":"string"}},"required":[]}"#,
        ] {
            let value: Value = serde_json::from_str(schema).expect("JSON");
            assert!(Plain::new(&value).is_some(), "{schema}");
            let arguments = Arguments::new(schema).expect("a schema");
            assert!(arguments.whole().is_ok(), "{schema}");
        }
    }

    #[test]
    fn other_keywords_disable_the_fast_check() {
        for schema in [
            r#"{"type":"object","properties":{"a":{"type":"string","minLength":1}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"number","minimum":1}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"integer","minimum":1.5}}}"#,
            r#"{"type":"object","properties":{"a":{"type":["string","null"]}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"array"}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"string","minimum":1}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"integer","minimum":0.5}}}"#,
            r#"{"type":"object","properties":{"a":{"type":"integer","maximum":"1"}}}"#,
            r#"{"type":"object","properties":{},"minProperties":1}"#,
            r#"{"type":"object","properties":{},"required":["a"]}"#,
            r#"{"type":"object","properties":{},"additionalProperties":{"type":"string"}}"#,
            r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a","a"]}"#,
            r#"{"type":"object","properties":{"a":{"type":"string","title":1}}}"#,
            r#"{"type":"object","properties":[]}"#,
            r#"{"type":"object","description":null}"#,
        ] {
            assert!(Plain::new(&serde_json::from_str(schema).expect("JSON")).is_none(), "{schema}");
        }
    }
}
