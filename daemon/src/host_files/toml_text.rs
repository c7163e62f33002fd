//! TOML, read into values with byte ranges.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::{Member, Node, Value};
use super::error::{HostFileError, line_of};

/// Reads a text.
///
/// # Errors
/// If it is not TOML.
pub(super) fn parse(text: &str) -> Result<Node, HostFileError> {
    let table = DeTable::parse(text).map_err(|error| {
        // The error itself shows the line, which can be a secret.
        let line = error.span().map_or(0, |span| line_of(text, span.start));
        let what = format!("this is not valid TOML: {}", error.message());
        HostFileError::new(line, what, "correct the file; its host cannot read it either")
    })?;
    Ok(Node { span: table.span(), value: members(table.get_ref()) })
}

fn members(table: &DeTable<'_>) -> Value {
    let one = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| Member {
        name: AsRef::<str>::as_ref(key.get_ref()).to_owned(),
        key: key.span(),
        node: node(value),
    };
    let mut members: Vec<Member> = table.iter().map(one).collect();
    members.sort_by_key(|member| member.key.start);
    Value::Map(members)
}

fn node(value: &Spanned<DeValue<'_>>) -> Node {
    let plain = |text: String| Value::Plain(text);
    let found = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Integer(number) => plain(number.to_string()),
        DeValue::Float(number) => plain(number.to_string()),
        DeValue::Datetime(time) => plain(time.to_string()),
        DeValue::Array(items) => Value::List(items.iter().map(node).collect()),
        DeValue::Table(table) => members(table),
    };
    Node { span: value.span(), value: found }
}
