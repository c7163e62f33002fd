//! `[tool.input.NAME]`: shorthand for a JSON Schema.

use toml::Spanned;

use super::check::Checker;
use super::error::did_you_mean;
use super::json::{Json, Ordered};
use super::raw;
use crate::tools::arguments::Arguments;

const TYPES: [&str; 4] = ["string", "integer", "number", "boolean"];

/// Maximum length of an input's name.
const NAME_CHARS_MAX: usize = 64;

/// Builds the schema of a tool's inputs, in the order of the file; `None` if one is invalid.
pub(super) fn schema(inputs: &Ordered<raw::Input>, check: &mut Checker<'_>) -> Option<Json> {
    let mut properties = Vec::new();
    let mut required = Vec::new();
    let mut sound = true;
    for (name, input) in &inputs.0 {
        if input.required == Some(true) {
            required.push(Json::text(name.get_ref()));
        }
        match property(name, input, check) {
            Some(property) => properties.push((name.get_ref().clone(), property)),
            None => sound = false,
        }
    }
    let mut members = vec![
        ("type".to_owned(), Json::text("object")),
        ("properties".to_owned(), Json::Object(properties)),
    ];
    if !required.is_empty() {
        members.push(("required".to_owned(), Json::List(required)));
    }
    members.push(("additionalProperties".to_owned(), Json::Flag(false)));
    sound.then_some(Json::Object(members))
}

/// Builds the schema of one input.
fn property(name: &raw::Text, input: &raw::Input, check: &mut Checker<'_>) -> Option<Json> {
    let at = name.span().start;
    let before = check.problems.len();
    let name = name.get_ref();
    let table = format!("[tool.input.{name}]");
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(usual) {
        let hint = format!("use 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 _ - .");
        check.problem(at, format!("{name:?} is not a valid input name"), hint);
    }
    let kind = match &input.r#type {
        None => {
            let hint = format!("write type = one of {TYPES:?}");
            check.missing(at, format!("{table} has no `type`"), hint);
            return None;
        }
        Some(kind) if TYPES.contains(&kind.get_ref().as_str()) => kind.get_ref().as_str(),
        Some(kind) => {
            let what = format!("`type` in {table} is {:?}", kind.get_ref());
            let hint = format!(
                "{} (for anything else write an `input_schema`)",
                did_you_mean(kind.get_ref(), "types", &TYPES)
            );
            check.problem(kind.span().start, what, hint);
            return None;
        }
    };
    let mut members = vec![("type".to_owned(), Json::text(kind))];
    if let Some(description) = &input.description {
        members.push(("description".to_owned(), Json::text(description)));
    }
    bounds(input, kind, &table, &mut members, check);
    choices(input, kind, &table, &mut members, check);
    if let Some(default) = &input.default {
        let at = default.span().start;
        if input.required == Some(true) {
            let what = format!("`default` in {table} can never be used: the input is required");
            check.problem(at, what, "leave out `default` or `required`");
        } else {
            let alone = Json::Object(members.clone());
            accepted(&alone, default.get_ref(), at, &format!("`default` in {table}"), check);
        }
        members.push(("default".to_owned(), default.get_ref().clone()));
    }
    (check.problems.len() == before).then_some(Json::Object(members))
}

/// Checks `minimum` and `maximum`.
fn bounds(
    input: &raw::Input,
    kind: &str,
    table: &str,
    members: &mut Vec<(String, Json)>,
    check: &mut Checker<'_>,
) {
    let mut number = |name: &str, bound: &Option<Spanned<Json>>| {
        let bound = bound.as_ref()?;
        let at = bound.span().start;
        let number = match bound.get_ref() {
            Json::Whole(number) => *number as f64,
            Json::Float(number) => *number,
            other @ (Json::Flag(_) | Json::Text(_) | Json::List(_) | Json::Object(_)) => {
                check.problem(at, format!("`{name}` in {table} is {other}"), "it takes a number");
                return None;
            }
        };
        if !matches!(kind, "integer" | "number") {
            let what = format!("`{name}` in {table} has no meaning for type {kind:?}");
            check.problem(at, what, "it belongs to \"integer\" and \"number\"; leave it out");
        }
        members.push((name.to_owned(), bound.get_ref().clone()));
        Some((number, at))
    };
    let minimum = number("minimum", &input.minimum);
    let maximum = number("maximum", &input.maximum);
    if let (Some((minimum, _)), Some((maximum, at))) = (minimum, maximum)
        && minimum > maximum
    {
        let what = format!("`maximum` in {table} is {maximum}");
        check.problem(at, what, format!("it takes at least `minimum`, which is {minimum}"));
    }
}

/// Checks `enum`.
fn choices(
    input: &raw::Input,
    kind: &str,
    table: &str,
    members: &mut Vec<(String, Json)>,
    check: &mut Checker<'_>,
) {
    let Some(choices) = &input.r#enum else { return };
    let at = choices.span().start;
    if choices.get_ref().is_empty() {
        let what = format!("`enum` in {table} is empty, so no value is valid");
        check.problem(at, what, "list the values, or leave it out");
        return;
    }
    let alone = Json::object([("type", Json::text(kind))]);
    for choice in choices.get_ref() {
        accepted(&alone, choice, at, &format!("`enum` in {table}"), check);
    }
    members.push(("enum".to_owned(), Json::List(choices.get_ref().clone())));
}

/// Reports a value that the schema of its own input rejects.
fn accepted(property: &Json, value: &Json, at: usize, what: &str, check: &mut Checker<'_>) {
    let schema = Json::object([
        ("type", Json::text("object")),
        ("properties", Json::object([("value", property.clone())])),
    ]);
    let arguments = Json::object([("value", value.clone())]).to_string();
    let verdict = Arguments::new(&schema.to_string()).map_err(|why| why.to_string());
    if let Err(why) = verdict.and_then(|rules| rules.check(Some(&arguments))) {
        let why = why.replace("arguments/value: ", "");
        check.problem(at, format!("{what} has a value that the input rejects"), why);
    }
}
