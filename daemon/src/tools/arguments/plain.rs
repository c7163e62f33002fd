//! Check of plain schemas: a flat object of strings, numbers, bounded integers and booleans, some
//! required.
//!
//! Valid arguments are usually recognised during parsing, without a value tree. All others are
//! parsed, and violations have the wording of the general validator. Most tools have such a
//! schema, and the general validator takes a megabyte.

use ceased_core::json::format::plain_bytes;
use std::borrow::Cow;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::violation::Violation;

/// A plain schema.
#[derive(Debug, Clone)]
pub(super) struct Plain {
    properties: Vec<(Box<str>, Kind)>,
    /// Bit set of the required properties.
    required: u64,
    /// `additionalProperties`.
    takes_others: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    String,
    /// Inclusive bounds; `i64::MIN` and `i64::MAX` are none.
    Integer(i64, i64),
    Number,
    Boolean,
}

impl Plain {
    /// Compiles `schema`; `None` if it uses other keywords or is invalid.
    pub(super) fn new(schema: &Value) -> Option<Self> {
        let schema = schema.as_object()?;
        let mut plain = Self { properties: Vec::new(), required: 0, takes_others: true };
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
                "additionalProperties" => plain.takes_others = value.as_bool()?,
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

    /// The first violations of a value, at most this many, with the texts of the general validator.
    pub(super) fn violations(&self, value: &Value, max: usize) -> Vec<Violation> {
        let Value::Object(members) = value else {
            return vec![Violation::new("", format_args!("{value} is not of type \"object\""))];
        };
        let mut others = Vec::new();
        let mut found = Vec::new();
        for (name, value) in members {
            match self.bit(name) {
                Some((_, kind)) => found.extend(kind.violation(name, value)),
                None if self.takes_others => {}
                None => others.push(&**name),
            }
        }
        if !others.is_empty() {
            found.push(Violation::new("", Unexpected(&others)));
        }
        for (name, _) in &self.properties {
            let is_missing = self.bit(&**name).is_some_and(|(bit, _)| self.required & bit != 0)
                && !members.contains_key(&**name);
            if is_missing {
                let name = Value::from(&**name);
                let reason = format_args!("{name} is a required property");
                found.push(Violation::new("", reason));
            }
        }
        found.truncate(max);
        found
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

/// The undeclared members of an object, in the words of the general validator.
struct Unexpected<'a>(&'a [&'a str]);

impl fmt::Display for Unexpected<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Additional properties are not allowed (")?;
        for (at, name) in self.0.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}'{name}'")?;
        }
        f.write_str(if self.0.len() == 1 { " was unexpected)" } else { " were unexpected)" })
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
                ("minimum", Self::Integer(least, _)) => {
                    *least = value.as_i64().filter(|it| *it != i64::MIN)?;
                }
                ("maximum", Self::Integer(_, most)) => {
                    *most = value.as_i64().filter(|it| *it != i64::MAX)?;
                }
                _ => return None,
            }
        }
        Some(kind)
    }

    /// The violation of a value of this property, if any.
    fn violation(self, name: &str, value: &Value) -> Option<Violation> {
        let (is_of, noun) = match self {
            Self::String => (value.is_string(), "string"),
            Self::Boolean => (value.is_boolean(), "boolean"),
            Self::Number => (value.is_number(), "number"),
            Self::Integer(..) => (Whole::of(value).is_some(), "integer"),
        };
        let path = Pointer(name);
        if !is_of {
            let reason = format_args!("{value} is not of type \"{noun}\"");
            return Some(Violation::new(path, reason));
        }
        let Self::Integer(min, max) = self else { return None };
        match Whole::of(value)? {
            it if min != i64::MIN && it < Whole::Fits(min) => {
                let reason = format_args!("{value} is less than the minimum of {min}");
                Some(Violation::new(path, reason))
            }
            it if max != i64::MAX && it > Whole::Fits(max) => {
                let reason = format_args!("{value} is greater than the maximum of {max}");
                Some(Violation::new(path, reason))
            }
            _ => None,
        }
    }

    fn is<E: Error>(self, kind: Self) -> Result<(), E> {
        if self == kind { Ok(()) } else { Err(not_plain()) }
    }
}

/// A whole number, in numerical order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Whole {
    /// Below the range of `i64`.
    Low,
    Fits(i64),
    /// Above it.
    High,
}

impl Whole {
    /// 2⁶³, the first whole number above the range of `i64`.
    const END: f64 = 9_223_372_036_854_775_808.0;

    /// The whole number that a JSON value is, such as 5 or 5.0.
    fn of(value: &Value) -> Option<Self> {
        let Value::Number(number) = value else { return None };
        if let Some(number) = number.as_i64() {
            return Some(Self::Fits(number));
        }
        if number.is_u64() {
            return Some(Self::High);
        }
        let float = number.as_f64().filter(|it| it.fract() == 0.0)?;
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and in the range")]
        let fits = || Self::Fits(float as i64);
        match float {
            _ if float >= Self::END => Some(Self::High),
            _ if float < -Self::END => Some(Self::Low),
            _ => Some(fits()),
        }
    }
}

/// The path of a property, as a JSON pointer.
struct Pointer<'a>(&'a str);

impl fmt::Display for Pointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('/')?;
        for c in self.0.chars() {
            match c {
                '~' => f.write_str("~0")?,
                '/' => f.write_str("~1")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
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
    #[cfg(not(feature = "schema"))]
    use super::super::Arguments;
    use super::super::strict;
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{"s":{"type":"string","default":"x"},
        "i":{"type":"integer"},"r":{"type":"integer","minimum":1,"maximum":5},"n":{"type":"number","title":"N"},"b":{"type":"boolean"}},
        "required":["s"],"additionalProperties":false}"#;

    fn plain(schema: &str) -> Plain {
        Plain::new(&serde_json::from_str(schema).expect("JSON")).expect("plain")
    }

    /// Arguments of each kind, with each of many values.
    fn samples() -> Vec<String> {
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
            "\"a/~'b\"",
            "5.0",
            "6",
            "6.0",
            "-9223372036854775808",
            "9223372036854775808",
            "-9223372036854775809",
            "1e30",
            "-1e30",
            "[1,{\"a\":null}]",
        ];
        let mut samples = Vec::new();
        for name in ["s", "i", "r", "n", "b", "x", "a/~'b"] {
            for value in values {
                samples.extend([
                    format!(r#"{{"{name}":{value}}}"#),
                    format!(r#"{{"s":"t","{name}":{value}}}"#),
                    format!(r#"{{"s":"t","{name}":{value},"i":2}}"#),
                    format!(r#"{{"y":1,"{name}":{value},"z":2}}"#),
                    format!(r#" {{ "s" : "t" , "{name}" : {value} }} "#),
                    format!(r#"{{"s":"t","{name}":{value}}} x"#),
                    format!(r#"[{value}]"#),
                    format!(r#"{{"s":"t","s":{value}}}"#),
                    format!(r#"{{"s":"t",{value}}}"#),
                    format!(r#"{{"s":"t","{name}":{value}"#),
                    format!(r#"{{"s":"t","{name}":{value},}}"#),
                ]);
            }
        }
        samples
    }

    #[test]
    fn arguments_that_the_fast_check_accepts_are_valid() {
        let plain = plain(SCHEMA);
        let (mut held, mut glanced) = (0, 0);
        for text in samples().iter().filter(|text| plain.holds(text)) {
            held += 1;
            glanced += usize::from(plain.holds_compact(text));
            let value = strict::value(text).expect("JSON");
            assert_eq!(plain.violations(&value, 9), [], "{text}");
        }
        assert!(held > 20 && glanced > 10, "{held} {glanced}");
    }

    #[cfg(feature = "schema")]
    #[test]
    fn violations_are_those_of_the_general_validator() {
        use super::super::general::General;

        let open = SCHEMA.replace(",\"additionalProperties\":false", "");
        let escaped = SCHEMA.replace("\"b\":", "\"a/~'b\":");
        let mut refused = 0;
        for schema in [SCHEMA, &open, &escaped] {
            let general = General::new(&serde_json::from_str(schema).expect("JSON"));
            let (general, plain) = (general.expect("a schema"), plain(schema));
            for text in samples() {
                let Ok(value) = strict::value(&text) else { continue };
                // The general validator has another order, which depends on the keywords.
                let in_order = |mut all: Vec<Violation>| {
                    all.sort();
                    all
                };
                let violations = in_order(plain.violations(&value, 9));
                assert_eq!(violations, in_order(general.violations(&value, 9)), "{text}");
                refused += usize::from(!violations.is_empty());
            }
        }
        assert!(refused > 200, "{refused}");
    }

    #[cfg(feature = "schema")]
    #[test]
    fn plain_schema_is_a_valid_schema() {
        use super::super::general::General;

        for schema in [
            SCHEMA,
            r#"{"type":"object"}"#,
            r#"{"type":"object","additionalProperties":false,"title":"","description":"d"}"#,
            r#"{"type":"object","properties":{"a":{"type":"string"}},"required":[]}"#,
        ] {
            let value: Value = serde_json::from_str(schema).expect("JSON");
            assert!(Plain::new(&value).is_some(), "{schema}");
            assert!(General::new(&value).is_ok(), "{schema}");
        }
    }

    /// Without the validator of other schemas, their tools are not offered unchecked.
    #[cfg(not(feature = "schema"))]
    #[test]
    fn other_schemas_need_the_feature() {
        let schema = r#"{"type":"object","properties":{"a":{"type":"string","minLength":1}}}"#;
        assert_eq!(Arguments::new(schema), Err(super::super::SchemaError::Unsupported));
        assert!(Arguments::new(SCHEMA).is_ok());
    }

    #[test]
    fn other_keywords_are_not_plain() {
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
