//! Bounded parsing of arguments: no duplicate keys at any depth, and a limited number of values.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

/// Maximum number of JSON values in the arguments of one call. A message of 16 MiB could hold eight
/// million, whose tree would take a quarter of a gigabyte.
pub(super) const VALUES_MAX: u32 = 100_000;

/// Parses `text`.
///
/// Duplicate keys are rejected because parsers disagree on which one counts: the tool could see
/// another value than the one that was checked.
///
/// # Errors
/// The problem and its place in the text.
pub(super) fn value(text: &str) -> Result<Value, String> {
    let left = Cell::new(VALUES_MAX);
    let mut reader = serde_json::Deserializer::from_str(text);
    Strict(&left)
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|why| format!("arguments: {why}"))
}

/// The members of a checked object, each with its exact text.
pub(super) fn members(text: &str) -> Result<BTreeMap<Cow<'_, str>, &RawValue>, String> {
    serde_json::from_str(text).map_err(|why| format!("arguments: {why}"))
}

/// Parses a value while the budget lasts.
struct Strict<'a>(&'a Cell<u32>);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.0.get().checked_sub(1) {
            Some(left) => self.0.set(left),
            None => {
                return Err(D::Error::custom(format_args!("more than {VALUES_MAX} values")));
            }
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element_seed(Strict(self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                let key: String = key.chars().take(64).collect();
                return Err(A::Error::custom(format_args!("duplicate key {key:?}")));
            }
            let value = map.next_value_seed(Strict(self.0))?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Text of a value in a command: the characters of a string, anything else as compact JSON with
/// numbers verbatim; `None` for null.
pub(super) fn plain(raw: &RawValue) -> Result<Option<Cow<'_, str>>, String> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'"') => Borrowed::deserialize(raw)
            .map(|string| Some(string.0))
            .map_err(|why| format!("arguments: {why}")),
        Some(b'n') => Ok(None),
        Some(b'{' | b'[') => Ok(Some(Cow::Owned(compact(text)))),
        Some(_) | None => Ok(Some(Cow::Borrowed(text))),
    }
}

/// Whether the `type` of a schema is that of integers, or of nothing else but null.
pub(super) fn is_integer(kind: &Value) -> bool {
    match kind {
        Value::String(kind) => kind == "integer",
        Value::Array(kinds) => {
            kinds.iter().any(|kind| kind == "integer")
                && kinds.iter().all(|kind| kind == "integer" || kind == "null")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// Digits of an integer at most: more than any program takes as a number.
const DIGITS_MAX: usize = 309;

/// Text of an integer in a command: digits, however JSON spells it (`10.0`, `1e2`).
pub(super) fn integer<'v>(name: &str, raw: &'v RawValue) -> Result<Option<Cow<'v, str>>, String> {
    let text = raw.get();
    if !text.contains(['.', 'e', 'E']) {
        return plain(raw);
    }
    match digits(text) {
        Some(digits) => Ok(Some(Cow::Owned(digits))),
        None => Err(format!("arguments/{name}: {text:.32} has more digits than an integer may")),
    }
}

/// The digits of a JSON number that is an integer; `None` if they are too many.
fn digits(text: &str) -> Option<String> {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let all = all.trim_start_matches('0');
    if all.is_empty() {
        return Some("0".into());
    }
    let exponent =
        exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let mut all = all.to_owned();
    if let Ok(zeros) = usize::try_from(exponent) {
        if all.len().saturating_add(zeros) > DIGITS_MAX {
            return None;
        }
        all.extend(std::iter::repeat_n('0', zeros));
    } else {
        let cut = all.len().checked_sub(usize::try_from(exponent.unsigned_abs()).ok()?)?;
        if all.split_off(cut).bytes().any(|digit| digit != b'0') {
            return None;
        }
    }
    (all.len() <= DIGITS_MAX).then(|| format!("{sign}{all}"))
}

/// A string that is borrowed if it has no escapes.
struct Borrowed<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Borrowed<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }

        deserializer.deserialize_str(Text).map(Borrowed)
    }
}

/// Removes white space between the tokens of valid JSON.
fn compact(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if matches!(c, ' ' | '\t' | '\r' | '\n') {
            continue;
        } else {
            in_string = c == '"';
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_agrees_with_serde_json() {
        for text in ["null", "true", "[1,-2,3.5,\"x\",{\"a\":{\"a\":1}}]", "18446744073709551615"] {
            let expected: Value = serde_json::from_str(text).expect(text);
            assert_eq!(value(text), Ok(expected));
        }
    }

    #[test]
    fn duplicate_keys_are_rejected_at_any_depth() {
        let why = value(r#"{"a":[{"b":1,"c":2,"b":3}]}"#).expect_err("twice");
        assert_eq!(why, r#"arguments: duplicate key "b" at line 1 column 22"#);
        // The same key in two spellings is a duplicate.
        assert!(value(r#"{"a":1,"\u0061":2}"#).is_err());
    }

    #[test]
    fn number_of_values_is_bounded() {
        let many = |n: u32| format!("[{}0]", "0,".repeat(n as usize - 2));
        assert!(value(&many(VALUES_MAX)).is_ok());
        let why = value(&many(VALUES_MAX + 1)).expect_err("too many");
        assert!(why.starts_with("arguments: more than 100000 values at"), "{why}");
        assert!(value(&"[".repeat(1_000_000)).is_err());
    }

    #[test]
    fn values_are_rendered_as_command_texts() {
        for (json, text) in [
            (r#""a\"\u0000 b""#, Some("a\"\0 b")),
            (r#""borrowed""#, Some("borrowed")),
            ("1.0", Some("1.0")),
            ("123456789012345678901234567890", Some("123456789012345678901234567890")),
            ("true", Some("true")),
            ("null", None),
            (
                "{ \"b\" : [ 1.50 ,\n 2 ], \"a\\\" \\\\\": \" x \" }",
                Some("{\"b\":[1.50,2],\"a\\\" \\\\\":\" x \"}"),
            ),
        ] {
            let raw: &RawValue = serde_json::from_str(json).expect(json);
            assert_eq!(plain(raw).expect(json).as_deref(), text, "{json}");
        }
    }
}
