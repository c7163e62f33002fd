//! `ceased view`: a link that opens the live view in a browser, as the user that asks for it.

use serde::Deserialize;
use serde_json::json;

use super::args::ControlArgs;
use super::format::clean;
use super::{Backend, Exit, Failure, Io, discover, format};
use crate::client::{Error, METHOD_NOT_FOUND};

/// A link to the live view.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    /// Address with a code that can be used once.
    url: String,
    /// Identity whose jobs the browser shows and cancels.
    identity: String,
    /// Time within which the link must be opened.
    expires_in_ms: u64,
}

/// Runs the command.
pub(super) fn view(
    args: &ControlArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session = discover::daemon(&args.daemon, io, backend)?;
    let found = match session.client.call("ceased/view", json!({})) {
        Ok(found) => found,
        Err(Error::Rpc(error)) if error.code == METHOD_NOT_FOUND => {
            let message = "this daemon has no ceased/view; it is an older one, or not ceased";
            return Err(Failure::new(Exit::Failed, message.to_owned()));
        }
        Err(error) => return Err(error.into()),
    };
    if args.json {
        format::json(&found, io)?;
        return Ok(Exit::Done);
    }
    let link: Link = serde_json::from_value(found)
        .map_err(|why| Failure::new(Exit::Failed, format!("ceased/view is no link ({why})")))?;
    writeln!(io.out, "{}", clean(&link.url))?;
    let seconds = link.expires_in_ms / 1000;
    let identity = clean(&link.identity);
    io.say(&format!("open this link within {seconds} s; it works once, as {identity}"));
    Ok(Exit::Done)
}
