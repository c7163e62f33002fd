//! `ceased tools` and `ceased status`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value};

use super::args::ListArgs;
use super::format::{self, clean, first_line, table};
use super::{Backend, Exit, Failure, Io, discover, ps};

/// `ceased tools`.
pub(super) fn tools(
    args: &ListArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let tools = session.client.tools()?;
    if args.json {
        format::raw_list(tools.iter().map(|tool| &*tool.raw), io)?;
        return Ok(Exit::Done);
    }
    if tools.is_empty() {
        io.say("no tools; `ceased init` in a project writes a configuration with some");
    }
    let rows: Vec<Vec<String>> = tools
        .iter()
        .map(|tool| {
            let support = format!("task {}", tool.task_support.as_str());
            vec![tool.name.clone(), support, first_line(&tool.description)]
        })
        .collect();
    table(io.out, &rows)?;
    Ok(Exit::Done)
}

/// `ceased status`.
pub(super) fn status(
    args: &ListArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let status = ps::status(&mut session.client)?;
    if args.json {
        format::raw(status.get(), io)?;
        return Ok(Exit::Done);
    }
    let mut members: BTreeMap<String, Value> = serde_json::from_str(status.get())
        .map_err(|why| Failure::new(Exit::Failed, format!("ceased/status is no object ({why})")))?;
    // Among its sisters it would be one long line.
    let host = members.get_mut("host").and_then(Value::as_object_mut);
    if let Some(store) = host.and_then(|host| host.remove("store")) {
        members.insert("store".to_owned(), store);
    }
    for (name, value) in &members {
        section(io.out, name, value)?;
    }
    Ok(Exit::Done)
}

/// One member of the status: a list as a table, an object as pairs, anything else as it is.
fn section(out: &mut dyn Write, name: &str, value: &Value) -> io::Result<()> {
    let name = clean(name);
    match value {
        Value::Array(entries) => {
            writeln!(out, "{name}: {}", entries.len())?;
            let mut plain = entries.iter().filter(|entry| !entry.is_object());
            let objects: Vec<&Map<String, Value>> =
                entries.iter().filter_map(Value::as_object).collect();
            table(out, &columns(&objects))?;
            plain.try_for_each(|entry| writeln!(out, "  {}", clean(&cell(entry))))
        }
        Value::Object(members) => {
            writeln!(out, "{name}:")?;
            let row = |(key, value): (&String, &Value)| vec![format!("  {key}"), cell(value)];
            table(out, &members.iter().map(row).collect::<Vec<_>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            writeln!(out, "{name}: {}", clean(&cell(value)))
        }
    }
}

/// A heading of every key that occurs, and a row for every object.
fn columns(objects: &[&Map<String, Value>]) -> Vec<Vec<String>> {
    let mut keys: Vec<&String> = Vec::new();
    for key in objects.iter().flat_map(|object| object.keys()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return Vec::new();
    }
    let indented = |cells: Vec<String>| {
        let mut cells = cells;
        if let Some(first) = cells.first_mut() {
            first.insert_str(0, "  ");
        }
        cells
    };
    let heading = keys.iter().map(|key| key.to_uppercase()).collect();
    let row = |object: &&Map<String, Value>| {
        keys.iter().map(|key| object.get(*key).map_or("-".to_owned(), cell)).collect()
    };
    std::iter::once(heading).chain(objects.iter().map(row)).map(indented).collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
