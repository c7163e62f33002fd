//! `ceased adopt`: the servers of a host's configuration behind ceased, and back.

use std::path::Path;

use serde_json::json;

use super::args::AdoptArgs;
use super::host_entry::{failure, label};
use super::{Backend, Exit, Failure, Io, format, shared_servers};
use crate::host_files::{Binary, Change, HostFile, Outcome, adopt as wrap_all, diff, masked, undo};

/// Runs the command.
pub(super) fn adopt(
    args: &AdoptArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let file = HostFile::read(&args.file).map_err(|why| failure(&args.file, &why))?;
    let binary = || Binary::of_process().map_err(|why| Failure::new(Exit::Failed, why));
    let mut shared = None;
    let outcome = if args.undo {
        undo(&file.text)
    } else if args.shared {
        let site = backend.site(args.config.as_deref())?;
        let moved =
            shared_servers::plan(&file, &args.file, &binary()?, &site, args.config.is_some())?;
        Ok(shared.insert(moved).take_outcome())
    } else {
        wrap_all(&file.text, &binary()?)
    };
    let outcome = outcome.map_err(|why| failure(&args.file, &why))?;
    report(&outcome, args, io);
    // Values of variables and headers are no part of a change, and may be secrets.
    let text = masked(&file.text).map_err(|why| failure(&args.file, &why))?;
    let mut shown = diff(&args.file.to_string_lossy(), &text, &outcome.edits);
    if let Some(shared) = &shared {
        shown.push_str(&shared.diff());
    }
    if outcome.edits.is_empty() {
        io.say("there is nothing to change");
        return finish(args, &outcome, &shown, None, io);
    }
    if !args.json {
        write!(io.out, "{shown}")?;
    }
    if !args.write {
        let name = args.file.display();
        let option = if args.undo {
            " --undo"
        } else if args.shared {
            " --shared"
        } else {
            ""
        };
        io.say(&format!("nothing is written yet; `ceased adopt {name}{option} --write` writes it"));
        return finish(args, &outcome, &shown, None, io);
    }
    if let Some(shared) = &shared {
        shared.write(io)?;
    }
    let copy = file
        .replace(&outcome.apply(&file.text))
        .map_err(|why| Failure::new(Exit::Failed, format!("{}\n{}", why.what, why.hint)))?;
    io.say(&format!("wrote {}; {} has the old content", file.path.display(), copy.display()));
    if !args.undo {
        io.say(&format!(
            "restart the host; `ceased adopt {} --undo --write` takes it back",
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

fn report(outcome: &Outcome, args: &AdoptArgs, io: &mut Io<'_>) {
    for (entry, change) in &outcome.entries {
        let effect = match change {
            Change::Changed if args.undo => "runs without ceased again".to_owned(),
            Change::Changed if args.shared => "runs in the daemon".to_owned(),
            Change::Changed => "runs behind `ceased wrap`".to_owned(),
            Change::Left(why) => format!("is left as it is: {why}"),
        };
        io.say(&format!("{} {effect}", label(entry)));
    }
}
