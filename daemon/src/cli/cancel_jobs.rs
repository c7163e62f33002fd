//! `ceased cancel --job`, `--all`, `--tool` and `--user`: jobs and requests to agents by their
//! properties, of all users for an operator, and one's own otherwise.

use serde_json::{Value, json};

use super::args::CancelArgs;
use super::cancel::{Gone, Whose, agent_requests, report, wait_until_gone};
use super::format::{self, clean};
use super::{Backend, Exit, Failure, Io, discover, ps};
use crate::accounts;
use crate::client::{Client, Error, INVALID_PARAMS};

/// A job that is to be cancelled.
struct Chosen {
    job: u64,
    tool: String,
    owner: String,
}

/// Runs the command.
pub(super) fn cancel(
    args: &CancelArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let owner = args.user.as_deref().map(owner).transpose()?;
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let client = &mut session.client;
    let done = match args.job {
        Some(job) => cancel_one(job, args, client, io)?,
        None => {
            let chosen = chosen(client, None, args, owner.as_deref())?;
            if chosen.is_empty() {
                io.say("no job is to be cancelled; `ceased ps` lists those that you may see");
            }
            cancel_each(&chosen, args, client, io)?
        }
    };
    let gone = wait_until_gone(client, Whose::Jobs(&done.jobs), io);
    if !done.jobs.is_empty() {
        report(&gone, client, io);
    }
    // A tool or user without jobs is as likely a wrong name.
    let is_vain = done.jobs.is_empty() && !args.all;
    if args.json {
        format::json(&outcome(&done.documents.into(), &gone), io)?;
    }
    Ok(if is_vain { Exit::Failed } else { exit(&gone) })
}

/// Jobs that were cancelled.
#[derive(Default)]
pub(super) struct Cancelled {
    pub(super) jobs: Vec<u64>,
    /// Each job as JSON.
    pub(super) documents: Vec<Value>,
}

/// Cancels the job of this number.
pub(super) fn cancel_one(
    job: u64,
    args: &CancelArgs,
    client: &mut Client,
    io: &mut Io<'_>,
) -> Result<Cancelled, Failure> {
    let chosen = chosen(client, Some(job), args, None)?;
    if chosen.is_empty() {
        let what = format!("there is no job {job}: it has ended, or is another user's");
        return Err(Failure::new(Exit::Failed, what));
    }
    cancel_each(&chosen, args, client, io)
}

fn cancel_each(
    chosen: &[Chosen],
    args: &CancelArgs,
    client: &mut Client,
    io: &mut Io<'_>,
) -> Result<Cancelled, Failure> {
    let mut done = Cancelled::default();
    for Chosen { job, tool, owner } in chosen {
        let mut params = json!({"job": job});
        if let (Some(reason), Some(params)) = (&args.reason, params.as_object_mut()) {
            params.insert("reason".into(), reason.as_str().into());
        }
        match client.call("ceased/cancel", params) {
            Ok(_) => {
                if !args.json {
                    writeln!(io.out, "job {job} {} {} cancelled", clean(tool), clean(owner))?;
                }
                done.documents.push(json!({"job": job, "tool": tool, "identity": owner}));
                done.jobs.push(*job);
            }
            // It has ended meanwhile.
            Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// The exit code of a cancel.
pub(super) const fn exit(gone: &Gone) -> Exit {
    match gone {
        Gone::Yes | Gone::Unknown => Exit::Done,
        Gone::StillThere(_) => Exit::TimedOut,
        Gone::Left => Exit::Cancelled,
        Gone::Lost(_) => Exit::Unreachable,
    }
}

/// The outcome of a cancel as JSON: the cancelled tasks or jobs, and whether their processes have
/// ended; `null` if unknown.
pub(super) fn outcome(cancelled: &Value, gone: &Gone) -> Value {
    let ended = match gone {
        Gone::Yes => Some(true),
        Gone::StillThere(_) => Some(false),
        Gone::Unknown | Gone::Left | Gone::Lost(_) => None,
    };
    json!({"cancelled": cancelled, "ended": ended})
}

/// An identity as a daemon shows it, by the name or number of a user, or as it is.
fn owner(written: &str) -> Result<String, Failure> {
    if written.contains(':') || written == "anonymous" {
        return Ok(written.to_owned());
    }
    match accounts::user(written) {
        Ok(uid) => Ok(format!("uid:{uid}")),
        Err(why) => Err(Failure::new(Exit::Usage, format!("--user {written}: {why}"))),
    }
}

/// The jobs that are meant, of those that this user may see.
fn chosen(
    client: &mut Client,
    job: Option<u64>,
    args: &CancelArgs,
    owner: Option<&str>,
) -> Result<Vec<Chosen>, Failure> {
    let status = ps::status_value(client)?;
    let jobs = status["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |job: &Value, key: &str| job[key].as_str().unwrap_or_default().to_owned();
    let all = jobs.iter().filter_map(|job| {
        let (tool, owner) = (text(job, "tool"), text(job, "identity"));
        Some(Chosen { job: job["job"].as_u64()?, tool, owner })
    });
    let of_agents = agent_requests(&status).filter_map(|(client, request)| {
        let (tool, owner) = (text(request, "method"), text(client, "identity"));
        Some(Chosen { job: request["job"].as_u64()?, tool, owner })
    });
    let is_meant = |chosen: &Chosen| {
        job.is_none_or(|job| chosen.job == job)
            && args.tool.as_ref().is_none_or(|tool| chosen.tool == *tool)
            && owner.is_none_or(|owner| chosen.owner == owner)
    };
    Ok(all.chain(of_agents).filter(is_meant).collect())
}
