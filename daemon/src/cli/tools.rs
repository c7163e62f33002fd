//! `ceased tools`: the tools in a list, or one with its arguments.

use ceased_client::{Part, Tool};
use serde_json::{Map, Value};

use super::args::ToolsArgs;
use super::format::{self, clean, first_line};
use super::table::{Cell, Table};
use super::view::Tone;
use super::{Backend, Exit, Failure, Io, discover};

/// Values of an `enum` that are named.
const CHOICES_MAX: usize = 8;

/// Runs the command.
pub(super) fn tools(
    args: &ToolsArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    const PURPOSE: &str = "showing the tools that it would have";
    let daemon = &args.list.daemon;
    if let Some(name) = &args.name {
        let (_session, tool) = discover::with_tool(daemon, name, PURPOSE, io, backend)?;
        if args.list.json {
            format::raw(tool.raw.get(), io)?;
        } else {
            show(&tool, io)?;
        }
        return Ok(Exit::Done);
    }
    let mut session = match &args.profile {
        // Profiles are of a daemon and its callers.
        Some(profile) => discover::daemon_with(daemon, Part::Profile(profile), io, backend)?,
        None => discover::daemon_or_embedded(daemon, PURPOSE, io, backend)?,
    };
    let tools = session.client.tools()?;
    if args.list.json {
        format::raw_list(tools.iter().map(|tool| &*tool.raw), io)?;
        return Ok(Exit::Done);
    }
    if tools.is_empty() {
        io.say("no tools; `ceased init` in a project writes a configuration with some");
    }
    let mut table = Table::new(&["TOOL", "ARGUMENTS", "TASK", "DESCRIPTION"]);
    for tool in &tools {
        table.row(vec![
            Cell::new(tool.name.clone()),
            Cell::new(synopsis(tool)),
            Cell::new(tool.task_support.as_str()),
            Cell::toned(first_line(&tool.description), Tone::Quiet),
        ]);
    }
    table.print(io)?;
    Ok(Exit::Done)
}

/// One argument of a tool, by its schema.
struct Argument<'a> {
    name: &'a str,
    schema: &'a Value,
    is_required: bool,
}

fn arguments_of(tool: &Tool) -> Vec<Argument<'_>> {
    let required: Vec<&str> = tool.input_schema["required"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let properties = tool.input_schema["properties"].as_object();
    let mut arguments: Vec<Argument<'_>> = properties
        .map(Map::iter)
        .into_iter()
        .flatten()
        .map(|(name, schema)| Argument {
            name,
            schema,
            is_required: required.contains(&name.as_str()),
        })
        .collect();
    arguments.sort_by_key(|argument| !argument.is_required);
    arguments
}

/// The arguments in brief: optional ones in brackets, with their defaults.
fn synopsis(tool: &Tool) -> String {
    let words = arguments_of(tool).into_iter().map(|Argument { name, schema, is_required }| {
        let default = schema.get("default").map(|default| format!("={}", plain(default)));
        let word = format!("{name}{}", default.unwrap_or_default());
        if is_required { word } else { format!("[{word}]") }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A value as it is written on the command line.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The type of an argument; its choices where it has some.
fn kind(schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        let more = if choices.len() > CHOICES_MAX { "|…" } else { "" };
        let named: Vec<String> = choices.iter().take(CHOICES_MAX).map(plain).collect();
        return named.join("|") + more;
    }
    match &schema["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds.iter().map(plain).collect::<Vec<_>>().join("|"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "any".to_owned(),
    }
}

/// The bounds of a number or a text, and its description.
fn remarks(schema: &Value) -> String {
    let bounds = [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "characters at least"),
        ("maxLength", "characters at most"),
        ("pattern", "matches"),
    ];
    let told = bounds.into_iter().filter_map(|(key, words)| {
        schema.get(key).map(|bound| format!("{words} {}", plain(bound)))
    });
    let told: Vec<String> = told.collect();
    let description = schema["description"].as_str().unwrap_or_default().trim();
    match (description.is_empty(), told.is_empty()) {
        (_, true) => description.to_owned(),
        (true, false) => told.join(", "),
        (false, false) => format!("{description} ({})", told.join(", ")),
    }
}

/// Prints a tool with everything that a caller needs.
fn show(tool: &Tool, io: &mut Io<'_>) -> Result<(), Failure> {
    let raw: Value = serde_json::from_str(tool.raw.get()).unwrap_or_default();
    let title = raw["title"].as_str().map(|title| format!(" ({})", clean(title)));
    writeln!(io.out, "{}{}", clean(&tool.name), title.unwrap_or_default())?;
    for line in tool.description.trim().lines() {
        writeln!(io.out, "  {}", clean(line))?;
    }
    let mut traits = vec![format!("task: {}", tool.task_support.as_str())];
    let hints = [
        ("readOnlyHint", "read-only"),
        ("destructiveHint", "destructive"),
        ("idempotentHint", "idempotent"),
        ("openWorldHint", "open world"),
    ];
    let is_set = |hint: &str| raw["annotations"][hint] == true;
    traits
        .extend(hints.iter().filter(|(hint, _)| is_set(hint)).map(|(_, word)| (*word).to_owned()));
    writeln!(io.out, "  {}\n", traits.join(", "))?;
    let arguments = arguments_of(tool);
    if arguments.is_empty() {
        writeln!(io.out, "no arguments")?;
    }
    let mut table = Table::new(&["ARGUMENT", "TYPE", "DEFAULT", "DESCRIPTION"]);
    for Argument { name, schema, is_required } in &arguments {
        let default = match schema.get("default") {
            Some(default) => plain(default),
            None if *is_required => "required".to_owned(),
            None => "-".to_owned(),
        };
        table.row(vec![
            Cell::new(*name),
            Cell::new(kind(schema)),
            Cell::new(default),
            Cell::toned(remarks(schema), Tone::Quiet),
        ]);
    }
    table.print(io)?;
    let required = arguments.iter().filter(|argument| argument.is_required);
    let pairs: String = required.map(|argument| format!(" {}=…", argument.name)).collect();
    writeln!(io.out, "\nceased call {}{}", clean(&tool.name), clean(&pairs))?;
    Ok(())
}
