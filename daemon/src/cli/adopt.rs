//! `ceased adopt`: the servers of a host's configuration.

use std::path::Path;

use serde_json::json;

use super::args::AdoptArgs;
use super::{Exit, Failure, Io, format};
use crate::host_files::{
    Binary, Change, Entry, HostFile, HostFileError, Outcome, adopt as wrap_all, diff, undo,
};

fn failure(path: &Path, error: &HostFileError) -> Failure {
    let place = match error.line {
        0 => String::new(),
        line => format!("{}:{line}: ", path.display()),
    };
    Failure::new(Exit::Usage, format!("{place}{}\n{}", error.what, error.hint))
}

/// Name of an entry for people, with its project.
fn label(entry: &Entry) -> String {
    match &entry.project {
        Some(project) => format!("{} of {project} (line {})", entry.name, entry.line),
        None => format!("{} (line {})", entry.name, entry.line),
    }
}

/// `ceased adopt`.
pub(super) fn adopt(args: &AdoptArgs, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let file = HostFile::read(&args.file).map_err(|why| failure(&args.file, &why))?;
    let outcome = if args.undo {
        undo(&file.text)
    } else {
        let binary = Binary::of_process().map_err(|why| Failure::new(Exit::Failed, why))?;
        wrap_all(&file.text, &binary)
    };
    let outcome = outcome.map_err(|why| failure(&args.file, &why))?;
    report(&outcome, args.undo, io);
    let shown = diff(&args.file.to_string_lossy(), &file.text, &outcome.edits);
    if outcome.edits.is_empty() {
        io.say("there is nothing to change");
        return finish(args, &outcome, &shown, None, io);
    }
    if !args.json {
        write!(io.out, "{shown}")?;
    }
    if !args.write && !args.undo {
        let name = args.file.display();
        io.say(&format!("nothing is written yet; `ceased adopt {name} --write` writes it"));
        return finish(args, &outcome, &shown, None, io);
    }
    let copy = file
        .replace(&outcome.apply(&file.text))
        .map_err(|why| Failure::new(Exit::Failed, format!("{}\n{}", why.what, why.hint)))?;
    io.say(&format!("wrote {}; {} has the old content", file.path.display(), copy.display()));
    if !args.undo {
        io.say(&format!(
            "restart the host; `ceased adopt {} --undo` takes it back",
            args.file.display()
        ));
    }
    finish(args, &outcome, &shown, Some(&copy), io)
}

/// Prints the outcome as JSON, where that is wanted. `copy` has the old content of a file that was
/// written.
fn finish(
    args: &AdoptArgs,
    outcome: &Outcome,
    diff: &str,
    copy: Option<&Path>,
    io: &mut Io<'_>,
) -> Result<Exit, Failure> {
    if args.json {
        let entries = outcome.entries.iter().map(|(entry, change)| {
            let reason = match change {
                Change::Changed => None,
                Change::Left(why) => Some(why),
            };
            json!({
                "name": entry.name, "project": entry.project, "line": entry.line,
                "changed": reason.is_none(), "reason": reason,
            })
        });
        let document = json!({
            "file": args.file.to_string_lossy(),
            "entries": entries.collect::<Vec<_>>(),
            "diff": diff,
            "written": copy.is_some(),
            "backup": copy.map(Path::to_string_lossy),
        });
        format::json(&document, io)?;
    }
    Ok(Exit::Done)
}

fn report(outcome: &Outcome, undo: bool, io: &mut Io<'_>) {
    for (entry, change) in &outcome.entries {
        let effect = match change {
            Change::Changed if undo => "runs without ceased again".to_owned(),
            Change::Changed => "runs behind `ceased wrap`".to_owned(),
            Change::Left(why) => format!("is left as it is: {why}"),
        };
        io.say(&format!("{} {effect}", label(entry)));
    }
}
