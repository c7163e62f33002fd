//! `ceased adopt`: the servers of hosts' configurations behind ceased, and back.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::adopt_args::AdoptArgs;
use super::adopt_targets::{Target, targets};
use super::host_entry::{failure, label};
use super::shared_servers::Shared;
use super::written_file::{Written, take_back};
use super::{Backend, Exit, Failure, Io, format};
use crate::host_files::{
    Binary, Change, Format, HostFile, HostFileError, Outcome, adopt as wrap_all, diff, undo,
};

/// A host's file and its change.
struct Plan {
    /// Name of the host, if several files are possible.
    title: Option<&'static str>,
    /// The file as it was named.
    named: PathBuf,
    file: HostFile,
    outcome: Outcome,
    /// The change for people.
    diff: String,
    /// Copy of the old content, once the file is written.
    copy: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn adopt(
    args: &AdoptArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let target = targets(args, io)?;
    let mut shared = match args.shared {
        true => {
            let site = backend.site(args.config.as_deref())?;
            Some(Shared::of(&site, args.config.is_some())?)
        }
        false => None,
    };
    let (mut plans, exit) = plan_all(args, &target, &mut shared, io)?;
    if let Some(shared) = &shared {
        for warning in shared.check(backend)? {
            io.say(&format!("warning: {warning}"));
        }
    }
    plans.iter().for_each(|plan| report(plan, args, io));
    let moved = shared.as_ref().map(Shared::diff).unwrap_or_default();
    if plans.iter().all(|plan| plan.outcome.edits.is_empty()) {
        io.say("there is nothing to change");
        return finish(args, &target, &plans, &moved, exit, io);
    }
    if !args.json {
        plans.iter().try_for_each(|plan| write!(io.out, "{}", plan.diff))?;
        write!(io.out, "{moved}")?;
    }
    if !args.write {
        say_next(args, &target, &plans, io);
        return finish(args, &target, &plans, &moved, exit, io);
    }
    write_all(args, &mut plans, shared.as_ref(), io)?;
    finish(args, &target, &plans, &moved, exit, io)
}

/// Plans the change of each file. Without a target, a file that cannot be used does not prevent the
/// others from being shown.
fn plan_all(
    args: &AdoptArgs,
    target: &Target,
    shared: &mut Option<Shared>,
    io: &mut Io<'_>,
) -> Result<(Vec<Plan>, Exit), Failure> {
    let (mut plans, mut without, mut exit) = (Vec::new(), Vec::new(), Exit::Done);
    let paths = target.paths();
    for (title, path) in &paths {
        let plan = match plan(args, path, shared) {
            Ok(plan) => plan,
            Err((why, true)) if target.is_search() => {
                without.push((path, why));
                continue;
            }
            Err((why, _)) if matches!(target, Target::All(_)) => {
                io.say(&why.message);
                exit = why.exit;
                continue;
            }
            Err((why, _)) => return Err(why),
        };
        plans.push(Plan { title: *title, ..plan });
    }
    if !plans.is_empty() || matches!(target, Target::All(_)) {
        return Ok((plans, exit));
    }
    match without.into_iter().next() {
        Some((path, why)) => {
            let message = format!("{}: {}", path.display(), why.message);
            Err(Failure::new(why.exit, if paths.len() == 1 { why.message } else { message }))
        }
        None => Ok((plans, exit)),
    }
}

/// Plans the change of a file; with the failure, whether the file has no place for servers.
fn plan(
    args: &AdoptArgs,
    path: &Path,
    shared: &mut Option<Shared>,
) -> Result<Plan, (Failure, bool)> {
    let fail = |why: HostFileError| (failure(path, &why), why.is_without_servers);
    let file = HostFile::read(path).map_err(fail)?;
    let format = Format::of(&file.path);
    let binary = || Binary::of_process().map_err(|why| (Failure::new(Exit::Failed, why), false));
    let outcome = if args.undo {
        undo(&file.text, format).map_err(fail)?
    } else if let Some(shared) = shared {
        // Without the place for servers the failure is known before.
        crate::host_files::entries(&file.text, format).map_err(fail)?;
        shared.take(&file, path, &binary()?).map_err(|why| (why, false))?
    } else {
        wrap_all(&file.text, format, &binary()?).map_err(fail)?
    };
    let diff = diff(&path.to_string_lossy(), &file.text, format, &outcome.edits).map_err(fail)?;
    Ok(Plan { title: None, named: path.to_owned(), file, outcome, diff, copy: None })
}

/// Writes the daemon's configuration and then the files, all of them or none.
fn write_all(
    args: &AdoptArgs,
    plans: &mut [Plan],
    shared: Option<&Shared>,
    io: &mut Io<'_>,
) -> Result<(), Failure> {
    let refused =
        |why: HostFileError| Failure::new(Exit::Failed, format!("{}\n{}", why.what, why.hint));
    let mut changed: Vec<&mut Plan> =
        plans.iter_mut().filter(|plan| !plan.outcome.edits.is_empty()).collect();
    for plan in &changed {
        plan.file.permit().map_err(refused)?;
    }
    shared.map_or(Ok(()), Shared::permit)?;
    let mut written = Vec::new();
    if let Some(shared) = shared {
        written.extend(shared.write()?);
    }
    for plan in &changed {
        let new = plan.outcome.apply(&plan.file.text);
        match plan.file.replace(&new) {
            Ok(copy) => written.push(Written { path: plan.file.path.clone(), copy: Some(copy) }),
            Err(why) => return Err(take_back(&written, refused(why))),
        }
    }
    let is_shared = written.len() > changed.len();
    for (number, Written { path, copy }) in written.iter().enumerate() {
        let old = copy.as_ref().map(|copy| format!("; {} has the old content", copy.display()));
        let next = match is_shared && number == 0 {
            true => "; `ceased reload` has a running daemon read it",
            false => "",
        };
        io.say(&format!("wrote {}{}{next}", path.display(), old.unwrap_or_default()));
    }
    for (plan, written) in changed.iter_mut().rev().zip(written.into_iter().rev()) {
        plan.copy = written.copy;
    }
    if let (false, Some(target)) = (args.undo, &args.target) {
        io.say(&format!(
            "restart the host; `ceased adopt {} --undo --write` takes it back",
            target.display()
        ));
    }
    Ok(())
}

/// Says how the change is written.
fn say_next(args: &AdoptArgs, target: &Target, plans: &[Plan], io: &mut Io<'_>) {
    let option = match (args.undo, args.shared) {
        (true, _) => " --undo",
        (false, true) => " --shared",
        (false, false) => "",
    };
    let command = |name: &str| format!("`ceased adopt {name}{option} --write`");
    let text = match (target, &args.target) {
        (Target::All(hosts), _) => {
            let is_changed = |path: &PathBuf| {
                plans.iter().any(|plan| plan.named == *path && !plan.outcome.edits.is_empty())
            };
            let hosts = hosts.iter().filter(|(_, paths)| paths.iter().any(is_changed));
            let all: Vec<String> = hosts.map(|(host, _)| command(host.name)).collect();
            format!("nothing is written yet; name a host or a file: {}", all.join(", "))
        }
        (Target::Host(..) | Target::File(_), named) => {
            let name = named.as_ref().map(|it| it.display().to_string()).unwrap_or_default();
            format!("nothing is written yet; {} writes it", command(&name))
        }
    };
    io.say(&text);
}

/// Prints the outcome as JSON, where that is wanted.
fn finish(
    args: &AdoptArgs,
    target: &Target,
    plans: &[Plan],
    moved: &str,
    exit: Exit,
    io: &mut Io<'_>,
) -> Result<Exit, Failure> {
    if args.json {
        let documents = plans.iter().enumerate().map(|(number, plan)| {
            // The change of the daemon's configuration is told once.
            document(plan, if number + 1 == plans.len() { moved } else { "" })
        });
        let documents: Vec<Value> = documents.collect();
        let document = match (target, documents.as_slice()) {
            (Target::File(_), [one]) => one.clone(),
            _ => json!({"files": documents}),
        };
        format::json(&document, io)?;
    }
    Ok(exit)
}

fn document(plan: &Plan, moved: &str) -> Value {
    let entries = plan.outcome.entries.iter().map(|(entry, change)| {
        let (reason, warning) = match change {
            Change::Changed => (None, entry.warning()),
            Change::Left(why) => (Some(why), None),
        };
        json!({
            "name": entry.name, "project": entry.project, "line": entry.line,
            "changed": reason.is_none(), "reason": reason, "warning": warning,
        })
    });
    json!({
        "file": plan.named.to_string_lossy(),
        "entries": entries.collect::<Vec<_>>(),
        "diff": format!("{}{moved}", plan.diff),
        "written": plan.copy.is_some(),
        "backup": plan.copy.as_ref().map(|copy| copy.to_string_lossy()),
    })
}

fn report(plan: &Plan, args: &AdoptArgs, io: &mut Io<'_>) {
    if let Some(title) = plan.title {
        io.say(&format!("{title}: {}", plan.named.display()));
    }
    let runs = if args.write { "runs" } else { "would run" };
    for (entry, change) in &plan.outcome.entries {
        let effect = match change {
            Change::Changed if args.undo => format!("{runs} without ceased again"),
            Change::Changed if args.shared => format!("{runs} in the daemon"),
            Change::Changed => format!("{runs} behind `ceased wrap`"),
            Change::Left(why) => format!("is left as it is: {why}"),
        };
        io.say(&format!("{} {effect}", label(entry)));
        let is_moved = !args.undo && *change == Change::Changed;
        if is_moved && entry.remote().is_some_and(|remote| !remote.has_credentials()) {
            let text =
                "the file has no credentials for it; if it wants a login, `ceased login` gives one";
            io.say(&format!("{}: {text}", label(entry)));
        }
        let warning = entry.warning().filter(|_| is_moved);
        if let Some(warning) = warning {
            io.say(&format!("warning: {}: {warning}", label(entry)));
        }
    }
}
