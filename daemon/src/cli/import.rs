//! `ceased import`: the servers of a host's configuration as `[[server]]` tables.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::args::ImportArgs;
use super::host_entry::{failure, label};
use super::{Exit, Failure, Io, format};
use crate::host_files::{Entry, HostFile, entries, tables};
use crate::printable::clean;

/// Runs the command.
pub(super) fn import(args: &ImportArgs, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let file = HostFile::read(&args.file).map_err(|why| failure(&args.file, &why))?;
    let found = entries(&file.text).map_err(|why| failure(&args.file, &why))?;
    if args.json {
        return as_json(args, &found, io);
    }
    let (mut printed, mut secrets) = (0, Vec::new());
    for (entry, table) in found.iter().zip(tables(&found, &BTreeSet::new())) {
        let table = match table {
            Ok(table) => table,
            Err(why) => {
                io.say(&format!("{} is left out: {why}", label(entry)));
                continue;
            }
        };
        if printed > 0 {
            writeln!(io.out)?;
        }
        printed += 1;
        write!(io.out, "{}", table.text)?;
        if table.name != entry.name {
            io.say(&format!("{} is named {} here", label(entry), table.name));
        }
        for text in &table.unresolved {
            let text = clean(text);
            io.say(&format!("{}: only the host can fill in {text:?}; write its value", table.name));
        }
        if table.has_values {
            secrets.push(table.name);
        }
    }
    if printed == 0 {
        io.say("no entry starts a process");
    }
    if !secrets.is_empty() {
        io.say(&format!(
            "env of {} is printed with its values; keep secrets in an `env_file` of mode 0600, or \
             name them in `pass_env`",
            secrets.join(", ")
        ));
    }
    Ok(Exit::Done)
}

/// Prints every entry with its table, or with the reason for which it has none.
fn as_json(args: &ImportArgs, found: &[Entry], io: &mut Io<'_>) -> Result<Exit, Failure> {
    let rows = found.iter().zip(tables(found, &BTreeSet::new())).map(|(entry, table)| {
        let (table, reason) = match table {
            Ok(table) => (Some(table), None),
            Err(why) => (None, Some(why)),
        };
        json!({
            "name": entry.name, "project": entry.project, "line": entry.line,
            "server": table.as_ref().map(|table| &table.name),
            "table": table.as_ref().map(|table| &table.text),
            "unresolved": table.as_ref().map(|table| table.unresolved.clone()).unwrap_or_default(),
            "reason": reason.map(|why| why.to_string()),
        })
    });
    let rows: Vec<Value> = rows.collect();
    format::json(&json!({"file": args.file.to_string_lossy(), "entries": rows}), io)?;
    Ok(Exit::Done)
}
