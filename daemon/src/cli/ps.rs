//! `ceased ps`: what runs, for whom, since when, and whether cancels are done; once.

use serde_json::json;
use serde_json::value::RawValue;

use super::args::{DaemonArgs, ListArgs};
use super::view::{Sort, Status, Trees};
use super::{Backend, Exit, Failure, Io, discover, format};
use crate::accounts;
use ceased_client::{Client, Error, METHOD_NOT_FOUND};

/// Runs the command.
pub(super) fn ps(args: &ListArgs, io: &mut Io<'_>, backend: &dyn Backend) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let raw = status(&mut session.client)?;
    if args.json {
        format::raw(raw.get(), io)?;
        return Ok(Exit::Done);
    }
    let status = read(&raw, &args.daemon)?;
    for (_, line) in status.summary() {
        writeln!(io.out, "{line}")?;
    }
    for row in status.rows("", Sort::State, Trees::Whole) {
        writeln!(io.out, "{}", row.text)?;
    }
    Ok(Exit::Done)
}

/// All that the daemon tells.
pub(super) fn status(client: &mut Client) -> Result<Box<RawValue>, Failure> {
    match client.call_raw("ceased/status", json!({"detail": true})) {
        Err(Error::Rpc(error)) if error.code == METHOD_NOT_FOUND => {
            let name = client.server().info["name"].as_str().unwrap_or("this server");
            let message = format!("{name} has no ceased/status; it is not ceased, or an older one");
            Err(Failure::new(Exit::Failed, message))
        }
        status => Ok(status?),
    }
}

/// What it means, with the names of users where they are this machine's.
pub(super) fn read(raw: &RawValue, daemon: &DaemonArgs) -> Result<Status, Failure> {
    let mut status: Status = serde_json::from_str(raw.get())
        .map_err(|why| Failure::new(Exit::Failed, format!("ceased/status is no status ({why})")))?;
    if daemon.tcp.is_none() {
        status.name_users(accounts::name_of);
    }
    Ok(status)
}
