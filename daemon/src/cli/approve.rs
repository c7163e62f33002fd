//! `ceased approve`: the tools of a server that differ from the approved ones.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::args::ApproveArgs;
use super::format::{self, clean};
use super::{Backend, Exit, Failure, Io, discover};
use crate::tool_diff::tool_diff;
use ceased_client::{Error, INVALID_PARAMS, METHOD_NOT_FOUND};

/// Answer to `ceased/approve`.
#[derive(Deserialize)]
struct Answer {
    approved: bool,
    pin: String,
    revision: u64,
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    tool: String,
    before: Option<Box<RawValue>>,
    after: Box<RawValue>,
}

/// `ceased approve`.
pub(super) fn approve(
    args: &ApproveArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let mut params = json!({"server": args.server});
    if let Some(revision) = args.revision {
        params["revision"] = revision.into();
    }
    let answer = match session.client.call_raw("ceased/approve", params) {
        Ok(answer) => answer,
        Err(Error::Rpc(error)) if error.code == METHOD_NOT_FOUND => {
            let message = "this daemon has no ceased/approve; it is an older one, or not ceased";
            return Err(Failure::new(Exit::Failed, message));
        }
        Err(Error::Rpc(error)) if error.code == INVALID_PARAMS => {
            return Err(Failure::new(Exit::Usage, clean(&error.message)));
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        format::raw(answer.get(), io)?;
        return Ok(Exit::Done);
    }
    let Answer { approved, pin, revision, changes } = serde_json::from_str(answer.get())
        .map_err(|why| Failure::new(Exit::Failed, format!("cannot parse the answer ({why})")))?;
    let name = &args.server;
    for Change { tool, before, after } in &changes {
        let kind = if before.is_some() { "changed" } else { "new" };
        writeln!(io.out, "{kind}: {}", clean(tool))?;
        write!(io.out, "{}", tool_diff(before.as_deref().map(RawValue::get), after.get()))?;
    }
    io.say(&match (changes.len(), approved) {
        (0, _) => format!("{name}: no tool differs from the approved ones (pin {pin})"),
        (count, true) => format!("{name}: {count} approved"),
        (count, false) => format!(
            "{name}: {count} not approved (pin {pin}); approve what is shown with: ceased approve \
             {name} --revision {revision}"
        ),
    });
    Ok(Exit::Done)
}
