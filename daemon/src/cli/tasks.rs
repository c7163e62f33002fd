//! `ceased tasks`, `get`, `result` and `cancel`.

use std::time::Duration;

use super::args::{CancelArgs, GetArgs, ListArgs, ResultArgs};
use super::cancel::{Gone, Whose, report, wait_until_gone, work};
use super::directory::{self, Directory, Named};
use super::display::Display;
use super::format::{self, clean, table};
use super::local_time::LocalTime;
use super::table::{Cell, Table, tone_of};
use super::view::Tone;
use super::{Backend, Exit, Failure, Io, cancel_jobs, discover, ps};
use ceased_client::{Client, Error, INVALID_PARAMS, Task};
use serde_json::json;

/// `ceased tasks`.
pub(super) fn tasks(
    args: &ListArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let tasks = session.client.tasks()?;
    if args.json {
        format::raw_list(tasks.iter().map(|task| &*task.raw), io)?;
        return Ok(Exit::Done);
    }
    if tasks.is_empty() {
        io.say("no tasks");
    }
    let known = Directory::of(&mut session.client, &args.daemon)?;
    let local = LocalTime::of_user();
    // A program that reads the list gets whole ids.
    let length = if io.out_is_terminal {
        directory::short_length(tasks.iter().map(|task| task.id.as_str()))
    } else {
        usize::MAX
    };
    let mut table = Table::new(&["ID", "TOOL", "STATE", "CREATED", "KEPT FOR", "MESSAGE"]);
    for task in &tasks {
        let state = task.status.to_string();
        let tone = tone_of(&state);
        table.row(vec![
            Cell::new(directory::shortened(&task.id, length)),
            Cell::new(known.tool(&task.id)),
            Cell::toned(known.placed(&state, &task.id), tone),
            Cell::new(local.short(&task.created_at)),
            Cell::new(ttl(task)),
            Cell::toned(one_line(task.message.as_deref()), Tone::Quiet),
        ]);
    }
    table.print(io)?;
    Ok(Exit::Done)
}

/// The first line of a message, for a table that cleans it.
fn one_line(message: Option<&str>) -> String {
    match message.unwrap_or_default().trim().split_once('\n') {
        Some((first, _)) => format!("{} …", first.trim_end()),
        None => message.unwrap_or_default().trim().to_owned(),
    }
}

fn ttl(task: &Task) -> String {
    task.ttl.map_or_else(|| "unlimited".to_owned(), in_words)
}

fn in_words(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// `ceased get`.
pub(super) fn get(args: &GetArgs, io: &mut Io<'_>, backend: &dyn Backend) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let id = match directory::resolve(&mut session.client, &args.id, &args.daemon)? {
        Named::Task(id) => id,
        Named::Job(job) if args.json => {
            let status = ps::status_value(&mut session.client)?;
            format::json(&ps::job_value(&status, job.job), io)?;
            return Ok(Exit::Done);
        }
        Named::Job(job) => {
            for line in job.details() {
                writeln!(io.out, "{}", clean(&line))?;
            }
            return Ok(Exit::Done);
        }
    };
    let task = session.client.task(&id).map_err(|error| unknown(error, &id))?;
    if args.json {
        format::raw(task.raw.get(), io)?;
        return Ok(Exit::Done);
    }
    let known = Directory::of(&mut session.client, &args.daemon)?;
    let local = LocalTime::of_user();
    let mut fields = vec![
        ("task", task.id.clone()),
        ("tool", known.tool(&task.id).to_owned()),
        ("status", task.status.to_string()),
        ("created", local.long(&task.created_at)),
        ("updated", local.long(&task.last_updated_at)),
        ("ttl", ttl(&task)),
    ];
    fields.extend(task.message.clone().map(|message| ("message", message)));
    let raw = serde_json::from_str(task.raw.get()).unwrap_or_default();
    fields.extend(known.node(&task.id).map(|node| ("node", node.to_owned())));
    fields.extend(work(&raw).map(|work| ("work", work.to_owned())));
    fields.extend(task.poll_interval.map(|interval| ("poll", in_words(interval))));
    let rows: Vec<Vec<String>> =
        fields.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table(io.out, &rows)?;
    Ok(Exit::Done)
}

/// `ceased result`.
pub(super) fn result(
    args: &ResultArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let client = &mut session.client;
    let id = directory::task(client, &args.id, &args.daemon)?;
    let call = client.start_task_result(&id)?;
    let answer = {
        let mut display = Display::new(io, call, Some(&id));
        client.wait(call, args.timeout, &mut |note| display.show(note))
    };
    match answer {
        Ok(answer) if args.json => format::result_as_json(&answer, io),
        Ok(answer) => format::result(&answer, io),
        Err(error @ (Error::Interrupted | Error::TimedOut(_))) => {
            // CAN-15: ends only the wait.
            let cancelled = client.cancel(call, Some("no longer waited for"));
            io.say(&format!("no longer waiting; task {id} goes on"));
            cancelled?;
            Ok(Failure::from(error).exit)
        }
        Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => {
            // The task's own error may have the same code.
            client.task(&id).map_err(|error| unknown(error, &id))?;
            Err(Error::Rpc(error).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// `ceased cancel`.
pub(super) fn cancel(
    args: &CancelArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    if args.ids.is_empty() {
        return cancel_jobs::cancel(args, io, backend);
    }
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let client = &mut session.client;
    // An id that cannot be cancelled keeps none of the others.
    let mut failed: Option<Exit> = None;
    let (mut cancelled, mut tasks, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
    for id in &args.ids {
        let outcome = match directory::resolve(client, id, &args.daemon) {
            Ok(Named::Task(id)) => cancel_task(client, &id, args.reason.as_deref(), args.json, io)
                .map(|task| {
                    cancelled.push(json!({"taskId": task.id, "status": task.status.to_string()}));
                    tasks.push(task.id);
                }),
            Ok(Named::Job(job)) => cancel_jobs::cancel_one(job.job, args, client, io).map(|done| {
                cancelled.extend(done.documents);
                jobs.extend(done.jobs);
            }),
            Err(failure) => Err(failure),
        };
        match outcome {
            Ok(()) => {}
            Err(failure) if args.ids.len() == 1 => return Err(failure),
            Err(failure) => {
                failure.print(io);
                failed = failed.or(Some(failure.exit));
            }
        }
    }
    let mut gone = wait_until_gone(client, Whose::Jobs(&jobs), io);
    for id in &tasks {
        if gone == Gone::Yes {
            gone = wait_until_gone(client, Whose::Task(id), io);
        }
    }
    if !cancelled.is_empty() {
        report(&gone, client, io);
    }
    if args.json {
        format::json(&cancel_jobs::outcome(&cancelled.into(), &gone), io)?;
    }
    Ok(failed.unwrap_or_else(|| cancel_jobs::exit(&gone)))
}

/// Cancels one task.
fn cancel_task(
    client: &mut Client,
    id: &str,
    reason: Option<&str>,
    is_json: bool,
    io: &mut Io<'_>,
) -> Result<Task, Failure> {
    let task = match client.cancel_task(id, reason) {
        Ok(task) => task,
        Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => {
            return Err(not_cancellable(client, id));
        }
        Err(error) => return Err(error.into()),
    };
    if !is_json {
        writeln!(io.out, "{} {}", clean(&task.id), task.status)?;
    }
    Ok(task)
}

/// Error of a failed cancel: unknown and ended tasks have the same code (TSK-23, TSK-27).
fn not_cancellable(client: &mut Client, id: &str) -> Failure {
    match client.task(id) {
        Ok(task) => Failure::new(
            Exit::Failed,
            format!("task {id} is already {}; there is nothing to cancel", task.status),
        ),
        Err(error) => unknown(error, id),
    }
}

/// Error of a failed lookup of a task.
pub(super) fn unknown(error: Error, id: &str) -> Failure {
    match error.rpc() {
        Some(rpc) if rpc.code == INVALID_PARAMS => {
            // A ceased daemon sends exactly this text; the text of another server is appended.
            let said = &rpc.message;
            let message = match said.contains("there is no task") {
                true => said.to_string(),
                false => format!("there is no task {id}: {rpc}"),
            };
            Failure::new(Exit::UnknownTask, clean(&message))
        }
        Some(_) | None => error.into(),
    }
}
