//! Conversion of `KEY=VALUE` arguments by a tool's input schema.

use serde_json::{Map, Number, Value};

use super::format::clean;
use super::{Exit, Failure};
use crate::tools::arguments::Arguments;
use ceased_client::Tool;

/// The arguments for `tool`: the object in `json`, with `pairs` overriding it.
pub(super) fn parse(tool: &Tool, pairs: &[String], json: Option<&str>) -> Result<Value, Failure> {
    let mut arguments = match json.map(serde_json::from_str::<Value>) {
        None => Map::new(),
        Some(Ok(Value::Object(object))) => object,
        Some(Ok(other)) => {
            return Err(wrong(format!("--json takes an object like {{\"key\": 1}}, not {other}")));
        }
        Some(Err(why)) => {
            return Err(wrong(format!("the value of --json is not valid JSON: {why}")));
        }
    };
    let mut given: Vec<&str> = Vec::new();
    for pair in pairs {
        let (key, value) = one(tool, pair)?;
        if given.contains(&key) {
            return Err(wrong(format!(
                "{key} is given twice; for a list write {key}:='[\"one\",\"two\"]'"
            )));
        }
        given.push(key);
        arguments.insert(key.to_owned(), value);
    }
    required(tool, &arguments)?;
    let arguments = Value::Object(arguments);
    // A schema that cannot be read here is left to the server.
    if let Ok(rules) = Arguments::new(&tool.input_schema.to_string()) {
        rules.check(Some(&arguments.to_string())).map_err(wrong)?;
    }
    Ok(arguments)
}

fn wrong(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}

fn one<'a>(tool: &Tool, pair: &'a str) -> Result<(&'a str, Value), Failure> {
    let Some((key, text)) = pair.split_once('=') else {
        return Err(wrong(format!("{pair:?} is not of the form KEY=VALUE")));
    };
    let (key, is_json) = match key.strip_suffix(':') {
        Some(key) => (key, true),
        None => (key, false),
    };
    let schema = schema_of(tool, key)?;
    let value = if is_json {
        serde_json::from_str(text)
            .map_err(|why| wrong(format!("the value of {key}:={text} is not valid JSON: {why}")))
    } else {
        convert(key, text, schema)
    };
    Ok((key, value?))
}

/// The schema of one argument. A tool that declares no arguments accepts any, and so does one that
/// explicitly allows others. JSON Schema would allow undeclared keys by default, but here they are
/// most likely typos.
fn schema_of<'a>(tool: &'a Tool, key: &str) -> Result<&'a Value, Failure> {
    let others = &tool.input_schema["additionalProperties"];
    let Some(properties) = tool.input_schema["properties"].as_object() else {
        return if others == &Value::Bool(false) {
            Err(unknown(tool, key, &[]))
        } else {
            Ok(others)
        };
    };
    if let Some(schema) = properties.get(key) {
        return Ok(schema);
    }
    if others == &Value::Bool(true) || others.is_object() {
        return Ok(others);
    }
    let known: Vec<&str> = properties.keys().map(String::as_str).collect();
    Err(unknown(tool, key, &known))
}

fn unknown(tool: &Tool, key: &str, known: &[&str]) -> Failure {
    let hint = match nearest(key, known.iter().copied()) {
        Some(near) => format!("; did you mean {near:?}?"),
        None if known.is_empty() => "; it takes none".to_owned(),
        None => format!("; it takes {}", known.join(", ")),
    };
    wrong(format!("{} has no argument {key:?}{hint}", tool.name))
}

/// The name in `known` that `wanted` is most likely a typo of.
pub(super) fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const ALIKE: f64 = 0.7;
    known
        .map(|name| (strsim::jaro_winkler(wanted, name), name))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}

/// Parses `text` as the first matching type of the schema. Strings match any text and are tried
/// last.
fn convert(key: &str, text: &str, schema: &Value) -> Result<Value, Failure> {
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => vec!["string"],
    };
    let read = types.iter().find_map(|kind| match *kind {
        "integer" => integer(text),
        "number" => number(text),
        "boolean" => text.parse().ok().map(Value::Bool),
        "null" => (text == "null").then_some(Value::Null),
        _ => None,
    });
    if let Some(value) = read {
        return Ok(value);
    }
    if types.contains(&"string") {
        return Ok(Value::String(text.to_owned()));
    }
    let expected: Vec<&str> = types
        .iter()
        .map(|kind| match *kind {
            "integer" => "an integer such as 3",
            "number" => "a number such as 1.5",
            "boolean" => "true or false",
            "array" => "a list; write it in JSON after KEY:=",
            "object" => "an object; write it in JSON after KEY:=",
            other => other,
        })
        .collect();
    Err(wrong(format!("{key}={text}: {key} must be {}", expected.join(", or "))))
}

fn integer(text: &str) -> Option<Value> {
    let signed = text.parse::<i64>().map(Value::from);
    signed.or_else(|_| text.parse::<u64>().map(Value::from)).ok().or_else(|| whole_float(text))
}

/// JSON Schema treats 2.0 and 2e0 as integers; they are sent unchanged.
fn whole_float(text: &str) -> Option<Value> {
    /// Above this, doubles cannot represent every integer.
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    let Number { .. } = serde_json::from_str::<Number>(text).ok()?;
    let value: f64 = text.parse().ok()?;
    let is_whole = value.fract() == 0.0 && value.abs() <= EXACT_MAX;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within the exact range")]
    is_whole.then(|| Value::from(value as i64))
}

fn number(text: &str) -> Option<Value> {
    // JSON syntax only: no "inf", no "0x10", and integers stay integers.
    serde_json::from_str::<Number>(text).ok().map(Value::Number)
}

fn required(tool: &Tool, arguments: &Map<String, Value>) -> Result<(), Failure> {
    let Some(required) = tool.input_schema["required"].as_array() else { return Ok(()) };
    let missing: Vec<String> = required
        .iter()
        .filter_map(Value::as_str)
        .filter(|key| !arguments.contains_key(*key))
        .map(|key| {
            let schema = &tool.input_schema["properties"][key];
            match schema["description"].as_str() {
                Some(description) => format!("{key} ({})", clean(description)),
                None => key.to_owned(),
            }
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(wrong(format!("{} also needs {}; add KEY=VALUE", tool.name, missing.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in JSON Schema, without values that would change in transit.
    #[test]
    fn integers_are_parsed_as_in_json_schema() {
        for (text, value) in [
            ("2", 2),
            ("-7", -7),
            ("2.0", 2),
            ("2e3", 2000),
            ("-0.0", 0),
            ("9007199254740992.0", 9_007_199_254_740_992_i64),
        ] {
            assert_eq!(integer(text), Some(Value::from(value)), "{text}");
        }
        assert_eq!(integer("18446744073709551615"), Some(Value::from(u64::MAX)));
        for text in ["2.5", "1e300", "9007199254740994.0", "inf", "NaN", "0x10", "two", "", "2."] {
            assert_eq!(integer(text), None, "{text}");
        }
    }
}
