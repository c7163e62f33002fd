//! `ceased import`: the servers of a host's configuration as `[[server]]` tables.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::adopt_args::ImportArgs;
use super::host_entry::{failure, label};
use super::{Exit, Failure, Io, format};
use crate::config::Config;
use crate::host_files::{Base, Entry, Format, HostFile, ServerTable, entries, tables};
use ceased_client::printable::clean;

/// Runs the command.
pub(super) fn import(args: &ImportArgs, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let file = HostFile::read(&args.file).map_err(|why| failure(&args.file, &why))?;
    let found = entries(&file.text, Format::of(&file.path));
    let found = found.map_err(|why| failure(&args.file, &why))?;
    let tables = tables(&found, &Base::of(&args.file), &BTreeSet::new(), &|_| None);
    if args.json {
        return as_json(args, &found, tables, io);
    }
    let (mut text, mut secrets, mut is_hidden) = (String::new(), Vec::new(), false);
    for (entry, table) in found.iter().zip(tables) {
        let table = match table {
            Ok(table) => table,
            Err(why) => {
                io.say(&format!("{} is left out: {why}", label(entry)));
                continue;
            }
        };
        if !text.is_empty() {
            text.push('\n');
            writeln!(io.out)?;
        }
        text.push_str(&table.text);
        // A terminal is for people; a file or a pipe gets the values.
        let shown = if io.out_is_terminal { &table.shown } else { &table.text };
        is_hidden |= *shown != table.text;
        write!(io.out, "{shown}")?;
        say_remarks(entry, &table, io);
        if table.has_values {
            secrets.push(table.name);
        }
    }
    if text.is_empty() {
        io.say("no entry is a server that ceased can run or reach");
    }
    if is_hidden {
        io.say("secrets are hidden on a terminal; `ceased import FILE > servers.toml` has them");
    } else if !secrets.is_empty() {
        io.say(&format!(
            "env or headers of {} are printed with their values; keep secrets in an `env_file` or \
             a `headers_file` of mode 0600, or name them in `pass_env`",
            secrets.join(", ")
        ));
    }
    say_problems(&text, &args.file, io);
    Ok(Exit::Done)
}

/// Says where a table differs from its entry.
fn say_remarks(entry: &Entry, table: &ServerTable, io: &mut Io<'_>) {
    let name = &table.name;
    if *name != entry.name {
        io.say(&format!("{} is named {name} here", label(entry)));
    }
    for reference in &table.unresolved {
        let reference = clean(reference);
        io.say(&format!("{name}: only the host can fill in {reference:?}; write its value"));
    }
    for path in &table.relative {
        io.say(&format!(
            "{name}: {path} is relative, and the file, in a home directory, is of no project; write \
             an absolute path, or a `cwd`"
        ));
    }
    if entry.remote().is_some_and(|remote| !remote.has_credentials()) {
        io.say(&format!(
            "{name}: the file has no credentials for it; if it wants a login, `ceased login {name}`"
        ));
    }
    if let Some(warning) = entry.warning() {
        io.say(&format!("warning: {name}: {warning}"));
    }
}

/// Says the reasons for which a daemon would refuse the tables, or the files that they name.
fn say_problems(text: &str, path: &Path, io: &mut Io<'_>) {
    let Err(error) = Config::from_bytes(text.as_bytes().to_vec(), path) else { return };
    for problem in error.problems() {
        io.say(&format!("`ceased check` refuses this: {}; {}", problem.what, problem.hint));
    }
}

/// Prints every entry with its table, or with the reason for which it has none.
fn as_json(
    args: &ImportArgs,
    found: &[Entry],
    tables: Vec<Result<ServerTable, String>>,
    io: &mut Io<'_>,
) -> Result<Exit, Failure> {
    let rows = found.iter().zip(tables).map(|(entry, table)| {
        let (table, reason) = match table {
            Ok(table) => (Some(table), None),
            Err(why) => (None, Some(why)),
        };
        json!({
            "name": entry.name, "project": entry.project, "line": entry.line,
            "server": table.as_ref().map(|table| &table.name),
            "table": table.as_ref().map(|table| &table.text),
            "unresolved": table.as_ref().map(|table| table.unresolved.clone()).unwrap_or_default(),
            "relative": table.as_ref().map(|table| table.relative.clone()).unwrap_or_default(),
            "reason": reason,
        })
    });
    let rows: Vec<Value> = rows.collect();
    format::json(&json!({"file": args.file.to_string_lossy(), "entries": rows}), io)?;
    Ok(Exit::Done)
}
