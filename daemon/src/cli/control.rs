//! `ceased reload`, `ceased drain` and `ceased stop`: orders of an operator to a daemon.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;

use super::args::ControlArgs;
use super::survivors::Processes;
use super::{Backend, Exit, Failure, Io, discover, format, ps};
use crate::client::{Client, Error, METHOD_NOT_FOUND};

/// Time between two looks at the effect of an order.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a reload may take: the file may be on another machine.
const RELOADS_WITHIN: Duration = Duration::from_secs(60);
/// How long a daemon may take to end, besides its `shutdown_grace`.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// The parts of a status that show the effect of an order.
#[derive(Debug, Deserialize)]
struct Status {
    host: Host,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Host {
    /// Reloads that are over; operators alone are told.
    reloads: Option<u64>,
    /// Why the latest one changed nothing.
    reload_error: Option<String>,
}

fn look(client: &mut Client) -> Result<Host, Failure> {
    let raw = ps::status(client)?;
    let status: Status = serde_json::from_str(raw.get())
        .map_err(|why| Failure::new(Exit::Failed, format!("ceased/status is no status ({why})")))?;
    Ok(status.host)
}

fn order(client: &mut Client, method: &str) -> Result<(), Failure> {
    match client.call(method, json!({})) {
        Ok(_) => Ok(()),
        Err(Error::Rpc(error)) if error.code == METHOD_NOT_FOUND => {
            let message = format!("this daemon has no {method}; it is an older one, or not ceased");
            Err(Failure::new(Exit::Failed, message))
        }
        Err(error) => Err(error.into()),
    }
}

/// `ceased reload`: the daemon reads its configuration again; a wrong one changes nothing.
pub(super) fn reload(
    args: &ControlArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let client = &mut session.client;
    let before = look(client)?.reloads.unwrap_or_default();
    order(client, "ceased/reload")?;
    let until = Instant::now() + RELOADS_WITHIN;
    loop {
        let host = look(client)?;
        if host.reloads.unwrap_or_default() > before {
            return match host.reload_error {
                None => {
                    io.say("reloaded");
                    if args.json {
                        format::json(&json!({"reloaded": true, "error": null}), io)?;
                    }
                    Ok(Exit::Done)
                }
                Some(why) if args.json => {
                    format::json(&json!({"reloaded": false, "error": why}), io)?;
                    Ok(Exit::Usage)
                }
                Some(why) => Err(Failure::new(
                    Exit::Usage,
                    format!("not reloaded, the configuration is as it was: {why}"),
                )),
            };
        }
        if Instant::now() >= until {
            let what = format!("the daemon still reads its configuration after {RELOADS_WITHIN:?}");
            return Err(Failure::new(Exit::TimedOut, what));
        }
        client.idle(LOOK_EVERY, &mut |_| {})?;
    }
}

/// `ceased drain`: the daemon takes no further work, and has ended with the work that it had when this
/// returns. Fails as [`stop`] does.
pub(super) fn drain(
    args: &ControlArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let session = discover::daemon(&args.daemon, io, backend)?;
    io.say("the daemon takes no further work, and ends with the work that it has");
    end(args, io, session.client, "ceased/drain", None)
}

/// `ceased stop`: the daemon shuts down as at SIGTERM, and has ended when this returns. Fails if
/// processes of its jobs or servers are left.
pub(super) fn stop(
    args: &ControlArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let site = backend.site(args.daemon.config.as_deref());
    let grace = site.map_or(Duration::from_secs(10), |site| site.shutdown_grace);
    let session = discover::daemon(&args.daemon, io, backend)?;
    end(args, io, session.client, "ceased/shutdown", Some(grace + ENDS_WITHIN))
}

/// Gives an order to end, and waits for the end, if it comes within this time.
fn end(
    args: &ControlArgs,
    io: &mut Io<'_>,
    mut client: Client,
    method: &str,
    within: Option<Duration>,
) -> Result<Exit, Failure> {
    let client = &mut client;
    // Of another machine nothing is known but its connection.
    let is_local = args.daemon.tcp.is_none();
    let mut processes = Processes::default();
    let mut look = |client: &mut Client| -> Result<u32, Failure> {
        let status = ps::read(&ps::status(client)?, &args.daemon)?;
        processes.note(&status);
        Ok(status.host.pid)
    };
    let pid = look(client)?;
    order(client, method)?;
    let until = within.map(|within| (Instant::now() + within, within));
    // The connection ends first, and the process when nothing that it ran is left.
    let process = is_local.then(|| PathBuf::from(format!("/proc/{pid}")));
    let mut is_open = true;
    while is_open || process.as_ref().is_some_and(|process| is_alive(process)) {
        if let Some((until, within)) = until
            && Instant::now() >= until
        {
            let what = format!("process {pid} has not ended within {within:?}");
            return Err(Failure::new(Exit::TimedOut, what));
        }
        if !is_open {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        match client.idle(LOOK_EVERY, &mut |_| {}) {
            // Processes that have begun since; a daemon that is about to end refuses.
            Ok(()) => _ = look(client),
            Err(Error::Closed | Error::Io(_)) => is_open = false,
            Err(error) => return Err(error.into()),
        }
    }
    io.say(&format!("the daemon has ended (process {pid})"));
    let left = is_local.then(|| processes.wait());
    if args.json {
        let survivors = left.as_ref().map(Processes::to_json);
        format::json(&json!({"stopped": true, "pid": pid, "survivors": survivors}), io)?;
    }
    match left.and_then(|left| left.text()) {
        Some(left) => {
            io.say(&format!("processes that it started are left, and may still run: {left}"));
            Ok(Exit::Failed)
        }
        None => Ok(Exit::Done),
    }
}

/// Whether a process runs. A zombie has ended.
fn is_alive(process: &std::path::Path) -> bool {
    let Ok(stat) = std::fs::read_to_string(process.join("stat")) else { return false };
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
    !state.is_some_and(|rest| rest.starts_with('Z') || rest.starts_with('X'))
}
