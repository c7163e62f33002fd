//! `ceased ps`: lists running jobs with owner, age and cancel state once.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::args::{DaemonArgs, PsArgs};
use super::table::{cut, has_colours, paint, width};
use super::view::{Sort, Status, Trees};
use super::{Backend, Exit, Failure, Io, discover, format};
use crate::accounts;
use ceased_client::{Client, Error, METHOD_NOT_FOUND};

/// Runs the command.
pub(super) fn ps(args: &PsArgs, io: &mut Io<'_>, backend: &dyn Backend) -> Result<Exit, Failure> {
    let PsArgs { all, list: args } = args;
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let raw = ask(&mut session.client, *all)?;
    if args.json {
        format::raw(raw.get(), io)?;
        return Ok(Exit::Done);
    }
    let status = read(&raw, &args.daemon)?;
    let (colours, width) = (has_colours(io), width(io));
    let rows = status.rows("", Sort::State, Trees::Whole, width);
    let lines = rows.into_iter().map(|row| (row.tone, row.text));
    for (tone, line) in status.summary().into_iter().chain(lines) {
        let line = match width {
            Some(width) => cut(&line, width),
            None => line.as_str().into(),
        };
        paint(io.out, &line, tone, colours)?;
        writeln!(io.out)?;
    }
    Ok(Exit::Done)
}

/// Reads the detailed status of the daemon.
pub(super) fn status(client: &mut Client) -> Result<Box<RawValue>, Failure> {
    ask(client, false)
}

/// As [`status`], with the calls that have ended if they are asked for.
fn ask(client: &mut Client, ended: bool) -> Result<Box<RawValue>, Failure> {
    match client.call_raw("ceased/status", json!({"detail": true, "ended": ended})) {
        Err(Error::Rpc(error)) if error.code == METHOD_NOT_FOUND => {
            let name = client.server().info["name"].as_str().unwrap_or("this server");
            let message = format!(
                "{name} has no ceased/status; it is not a ceased daemon, or an old version"
            );
            Err(Failure::new(Exit::Failed, message))
        }
        status => Ok(status?),
    }
}

/// The detailed status as JSON.
pub(super) fn status_value(client: &mut Client) -> Result<Value, Failure> {
    let raw = status(client)?;
    serde_json::from_str(raw.get())
        .map_err(|why| Failure::new(Exit::Failed, format!("cannot parse ceased/status ({why})")))
}

/// One job of a detailed status, with its processes, usage, arguments and last line; `null` if it has
/// ended.
pub(super) fn job_value(status: &Value, number: u64) -> Value {
    let jobs = status["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let job = jobs.iter().find(|job| job["job"] == number);
    let Some(mut job) = job.and_then(Value::as_object).cloned() else { return Value::Null };
    let (host, number) = (&status["host"], number.to_string());
    if let Some(work) = host["jobs"][&number].as_object() {
        job.extend(work.clone());
    }
    if let Some(processes) = host["processes"].get(&number) {
        job.insert("processes".to_owned(), processes.clone());
    }
    job.into()
}

/// Parses it, with the names of local users.
pub(super) fn read(raw: &RawValue, daemon: &DaemonArgs) -> Result<Status, Failure> {
    let status: Status = serde_json::from_str(raw.get())
        .map_err(|why| Failure::new(Exit::Failed, format!("cannot parse ceased/status ({why})")))?;
    let mut status = status.join();
    if daemon.tcp.is_none() {
        status.name_users(accounts::name_of);
    }
    Ok(status)
}
