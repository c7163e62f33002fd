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
    if let Some(tunnel) = tunnel(&link.url) {
        io.say(&format!("from another machine: {tunnel}, and open it there"));
    }
    Ok(Exit::Done)
}

/// The command on another machine that makes a loopback address of this one reachable there.
fn tunnel(url: &str) -> Option<String> {
    let rest = url.strip_prefix("http://")?;
    let address = rest.split('/').next()?;
    let (host, port) = address.rsplit_once(':')?;
    let is_loopback = matches!(host, "127.0.0.1" | "[::1]" | "localhost");
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = if name.trim().is_empty() { "HOST".into() } else { clean(name.trim()).to_string() };
    (is_loopback && port.parse::<u16>().is_ok())
        .then(|| format!("ssh -L {port}:{host}:{port} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_address_has_a_tunnel() {
        let found = tunnel("http://127.0.0.1:7412/#view-00").expect("a command");
        assert!(found.starts_with("ssh -L 7412:127.0.0.1:7412 "), "{found}");
        for url in ["http://10.0.0.1:7412/", "https://example.com/", "http://127.0.0.1/", ""] {
            assert_eq!(tunnel(url), None, "{url}");
        }
    }
}
