//! `ceased login` and `ceased logout`: the login of a person at a server by URL. The tokens are kept
//! by the daemon.

use std::io::BufRead as _;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ceased_client::Interrupts;
use ceased_transports::http::client::Url;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::json;

use super::args::{DaemonArgs, LoginArgs, LogoutArgs};
use super::discover::Session;
use super::format::{self, clean};
use super::{Backend, Exit, Failure, Io, discover};
use crate::credentials::authorize::{ClientId, Pending, Redirect};
use crate::credentials::login_place::{Ended, LoginTarget};
use crate::credentials::reach::Reach;
use crate::credentials::source::secret_word;

/// How long a person may take.
const LOGIN_WITHIN: Duration = Duration::from_secs(600);
/// Programs that open a page in a browser.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// The place of a login, and for which identity it is.
#[derive(Debug, Deserialize)]
struct Told {
    #[serde(flatten)]
    target: LoginTarget,
    #[serde(rename = "for")]
    of: String,
}

/// `ceased login`.
pub(super) fn login(
    args: &LoginArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session =
        session(&args.daemon, args.mcp_servers.as_deref(), "keeping the login", io, backend)?;
    let told = session.client.call("ceased/login", json!({"server": args.server}))?;
    let told: Told = serde_json::from_value(told).map_err(|why| {
        Failure::new(Exit::Failed, format!("ceased/login tells no place ({why})"))
    })?;
    let failed = |why: String| Failure::new(Exit::Failed, clean(&why));
    let target = &told.target;
    let url = Url::parse(&target.url).map_err(|why| failed(format!("{:?} {why}", target.url)))?;
    let reach =
        Reach::of(&url, target.ca_file.clone(), target.client.clone(), target.allow_private);
    let client = client_id(args, target)?;
    let pending = Pending::begin(&target.url, reach, client, &target.scopes).map_err(failed)?;
    let code = wait(&pending, args, &session, io)?;
    let login = pending.redeem(&code).map_err(failed)?;
    let issuer = login.issuer.clone();
    session.client.call("ceased/login", json!({"server": args.server, "login": login}))?;
    if args.json {
        let told = json!({"server": args.server, "issuer": issuer, "for": told.of});
        format::json(&told, io)?;
        return Ok(Exit::Done);
    }
    let whom = match &*told.of {
        "all" => "all identities".to_owned(),
        one => clean(one).into_owned(),
    };
    io.say(&format!("logged in to {} at {issuer}, for {whom}", args.server));
    Ok(Exit::Done)
}

/// The daemon, or a server in this process with the servers of a host's file.
fn session(
    daemon: &DaemonArgs,
    host_file: Option<&Path>,
    purpose: &str,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Session, Failure> {
    let Some(file) = host_file else {
        return discover::daemon_or_embedded(daemon, purpose, io, backend);
    };
    discover::embedded(backend.embed_servers(daemon.config.as_deref(), file)?, io)
}

/// The client that ceased is at the authorization server.
fn client_id(args: &LoginArgs, target: &LoginTarget) -> Result<ClientId, Failure> {
    if args.client_id.is_some() {
        return Ok(ClientId { id: args.client_id.clone(), ..ClientId::default() });
    }
    let secret = target.client_secret_file.as_ref().map(|path| secret_word(path)).transpose();
    let secret = secret.map_err(|why| {
        let hint = "the client of this server has a secret, so its operator logs in";
        Failure::new(Exit::Failed, format!("{}\n{hint}", clean(&why)))
    })?;
    Ok(ClientId { id: target.client_id.clone(), secret, metadata: target.client_metadata.clone() })
}

/// Has the person log in, and waits for the redirect of the browser.
fn wait(
    pending: &Pending,
    args: &LoginArgs,
    session: &Session,
    io: &mut Io<'_>,
) -> Result<String, Failure> {
    let is_opened = !args.no_browser && open(&pending.address);
    io.say(match is_opened {
        true => "a browser opens to log in; if it does not, open this address:",
        false => "open this address to log in:",
    });
    let address = clean(&pending.address);
    match args.json {
        true => io.say(&address),
        false => writeln!(io.out, "{address}").and_then(|()| io.out.flush())?,
    }
    if args.no_browser {
        io.say(
            "if the browser is on another machine, paste the address that it ends at, and Enter",
        );
    }
    let input = args.no_browser.then_some(io.input);
    let mut is_open = true;
    let look = || {
        if session.client.interrupts().is_some_and(Interrupts::take) {
            return Some(Redirect::Stopped);
        }
        let input = input.filter(|_| is_open)?;
        let line = typed(input)?;
        is_open = line.is_some();
        line.filter(|line| !line.trim().is_empty()).map(Redirect::Typed)
    };
    pending.wait(Instant::now() + LOGIN_WITHIN, look).map_err(|why| {
        let exit = if why == "given up" { Exit::Cancelled } else { Exit::Failed };
        Failure::new(exit, clean(&why))
    })
}

/// A line of input, if there is one now; `Some(None)` at its end.
fn typed(input: BorrowedFd<'_>) -> Option<Option<String>> {
    let mut fds = [PollFd::new(&input, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let count = poll(&mut fds, Some(&now)).ok()?;
    if count == 0 {
        return None;
    }
    let mut line = String::new();
    match std::io::stdin().lock().read_line(&mut line) {
        Ok(count) if count > 0 => Some(Some(line)),
        Ok(_) | Err(_) => Some(None),
    }
}

/// Opens a page in the browser of this user, if there is one.
fn open(address: &str) -> bool {
    if std::env::var_os("DISPLAY").is_none() && std::env::var_os("WAYLAND_DISPLAY").is_none() {
        return false;
    }
    OPENERS.iter().any(|program| {
        let mut command = Command::new(program);
        command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// `ceased logout`.
pub(super) fn logout(
    args: &LogoutArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let mut session =
        session(&args.daemon, args.mcp_servers.as_deref(), "ending the login", io, backend)?;
    let told = session.client.call("ceased/login", json!({"server": args.server, "end": true}))?;
    if args.json {
        format::json(&told, io)?;
        return Ok(Exit::Done);
    }
    let ended: Ended = serde_json::from_value(told)
        .map_err(|why| Failure::new(Exit::Failed, format!("ceased/login tells no end ({why})")))?;
    if !ended.removed {
        let message = format!("there was no login at {} of this user", args.server);
        return Err(Failure::new(Exit::Failed, message));
    }
    io.say(&format!("logged out of {}", args.server));
    if let Some(why) = ended.revocation_error {
        io.say(&format!("its authorization server may take the tokens until they expire: {why}"));
    }
    Ok(Exit::Done)
}
