//! Locating the daemon, or running without one.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use ceased_core::rpc::error::code;

use super::args::DaemonArgs;
use super::format::clean;
use super::{Backend, DaemonLocation, Embedded, Exit, Failure, Io, arguments};
use crate::trust_store::PROJECT_FILE;
use ceased_client::{Client, Endpoint, Error, INVALID_PARAMS, Options, Part, RpcError, Tool};

/// Connect timeout: a local daemon accepts at once.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection to a server, and the server itself if it runs in this process.
pub(super) struct Session {
    /// Declared first, so dropped first: an embedded server ends when its peer is gone.
    pub(super) client: Client,
    server: Option<Box<dyn Send>>,
}

/// The candidate endpoints of a daemon, in order of preference.
pub(super) fn endpoints(
    args: &DaemonArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Vec<Endpoint>, Failure> {
    let (endpoints, ignored) = places(args, io, backend)?;
    if let Some(ignored) = ignored {
        io.say(&ignored);
    }
    Ok(endpoints)
}

/// As [`endpoints`], with the line about a configuration that is ignored.
pub(super) fn places(
    args: &DaemonArgs,
    io: &Io<'_>,
    backend: &dyn Backend,
) -> Result<(Vec<Endpoint>, Option<String>), Failure> {
    if let Some(path) = &args.socket {
        return Ok((vec![Endpoint::Unix(path.clone())], None));
    }
    if let Some(address) = &args.tcp {
        return Ok((vec![Endpoint::Tcp(address.clone())], None));
    }
    if let Some(path) = &io.env.socket {
        return Ok((vec![Endpoint::Unix(path.into())], None));
    }
    let mut ignored = None;
    match backend.site(args.config.as_deref()) {
        // The default of a configuration without a listener: a daemon that was started in another
        // environment is at another of the user's places.
        Ok(DaemonLocation { config: Some(_), socket: Some(path), .. })
            if path == io.env.sockets.default_socket() =>
        {
            return Ok((io.env.sockets.own.iter().cloned().map(Endpoint::Unix).collect(), None));
        }
        Ok(DaemonLocation { config: Some(_), socket: Some(path), .. }) => {
            return Ok((vec![Endpoint::Unix(path)], None));
        }
        Ok(_) => {}
        Err(failure) if args.config.is_some() => return Err(failure),
        // The file was found, not named by the user; a daemon may still listen at its default
        // address.
        Err(failure) => {
            let first = failure.message.lines().next().unwrap_or_default();
            ignored = Some(format!("ignoring the config: {first}"));
        }
    }
    let candidates = io.env.sockets.candidates().map(|path| Endpoint::Unix(path.into()));
    Ok((candidates.collect(), ignored))
}

/// Connects to the first reachable one of `endpoints`.
pub(super) fn first_reachable(endpoints: &[Endpoint]) -> Result<(OwnedFd, &Endpoint), Unreachable> {
    use std::io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound};
    let mut tried = Vec::new();
    let mut is_absent = true;
    for endpoint in endpoints {
        match endpoint.socket(CONNECT) {
            Ok(socket) => return Ok((socket, endpoint)),
            Err(why) => {
                is_absent = matches!(why.kind(), NotFound | ConnectionRefused | NotADirectory);
                tried.push(format!("{endpoint} ({why})"));
                if !is_absent {
                    break;
                }
            }
        }
    }
    Err(Unreachable { tried: tried.join(", "), is_absent })
}

/// No daemon could be reached.
pub(super) struct Unreachable {
    tried: String,
    /// Whether no socket exists, as opposed to a refused or failed connection.
    pub(super) is_absent: bool,
}

impl From<Unreachable> for Failure {
    fn from(unreachable: Unreachable) -> Self {
        let hint = if unreachable.is_absent {
            "\nstart one with `ceased serve`, or give its socket with --socket PATH"
        } else {
            ""
        };
        let tried = unreachable.tried;
        Self::new(Exit::Unreachable, format!("no daemon reachable; tried {tried}{hint}"))
    }
}

/// A session with the daemon.
pub(super) fn daemon(
    args: &DaemonArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Session, Failure> {
    let endpoints = endpoints(args, io, backend)?;
    let token = token(args, io)?;
    Ok(reach(&endpoints, token, io)??)
}

/// A session with the daemon that sees this part alone.
pub(super) fn daemon_with(
    args: &DaemonArgs,
    part: Part<'_>,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Session, Failure> {
    let endpoints = endpoints(args, io, backend)?;
    let (socket, endpoint) = first_reachable(&endpoints)?;
    introduce_to(socket.as_fd(), endpoint, token(args, io)?, part)?;
    let options = options(io, None)?;
    let client = Client::on(socket, options).map_err(|error| no_handshake(endpoint, error))?;
    Ok(Session { client, server: None })
}

/// Whether the user names a daemon, whose tools must not run elsewhere.
fn is_named(args: &DaemonArgs, io: &Io<'_>) -> bool {
    args.tcp.is_some() || args.socket.is_some() || io.env.socket.is_some()
}

/// A session with the daemon, or with a server in this process if there is none and the user names
/// none. `purpose` says in a message why it is there.
pub(super) fn daemon_or_embedded(
    args: &DaemonArgs,
    purpose: &str,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Session, Failure> {
    let endpoints = endpoints(args, io, backend)?;
    let token = token(args, io)?;
    let unreachable = match reach(&endpoints, token, io)? {
        Ok(session) => return Ok(session),
        Err(unreachable) => unreachable,
    };
    if !unreachable.is_absent || is_named(args, io) {
        return Err(unreachable.into());
    }
    let Some(embedded) = backend.embed(args.config.as_deref(), io.err)? else {
        let tried = unreachable.tried;
        return Err(Failure::new(
            Exit::Unreachable,
            format!(
                "no daemon reachable; tried {tried}; and no config to run the tool from in this \
                 process\n\
                 `ceased init` in a project writes one; or start a daemon with `ceased serve`, or \
                 give a config with --config FILE"
            ),
        ));
    };
    io.say(&format!(
        "no daemon at {}; {purpose} in this process",
        clean(&endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    ));
    self::embedded(embedded, io)
}

/// A session with a server in this process.
pub(super) fn embedded(embedded: Embedded, io: &mut Io<'_>) -> Result<Session, Failure> {
    let options = options(io, None)?;
    let client = Client::on(embedded.stream, options)?;
    Ok(Session { client, server: Some(embedded.server) })
}

/// A session, as of [`daemon_or_embedded`], with a server that has this tool.
///
/// A tool that the daemon does not have may be one of the project in the working directory, whose
/// file is trusted.
pub(super) fn with_tool(
    args: &DaemonArgs,
    name: &str,
    purpose: &str,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<(Session, Tool), Failure> {
    let mut session = daemon_or_embedded(args, purpose, io, backend)?;
    let tools = session.client.tools()?;
    if let Some(tool) = tools.iter().find(|tool| tool.name == name) {
        return Ok((session, tool.clone()));
    }
    let failure = missing(name, &tools);
    let has_chosen = session.server.is_some() || is_named(args, io) || args.config.is_some();
    let Some(embedded) = (if has_chosen { None } else { backend.embed_project()? }) else {
        return Err(failure);
    };
    let options = Options { interrupts: session.client.into_interrupts(), ..Options::default() };
    let mut client = Client::on(embedded.stream, options)?;
    let tools = client.tools()?;
    let tool = tools.into_iter().find(|tool| tool.name == name).ok_or(failure)?;
    io.say(&format!(
        "the daemon has no tool {name:?}; {purpose} in this process, from ./{PROJECT_FILE}"
    ));
    Ok((Session { client, server: Some(embedded.server) }, tool))
}

/// The token to present over TCP. A Unix socket authenticates its peer.
pub(super) fn token(args: &DaemonArgs, io: &Io<'_>) -> Result<Option<String>, Failure> {
    if args.tcp.is_none() {
        return Ok(None);
    }
    let Some(path) = &args.token_file else { return Ok(io.env.token.clone()) };
    read_token(path)
}

/// The token in a file.
pub(super) fn read_token(path: &Path) -> Result<Option<String>, Failure> {
    let fail = |what: String| Failure::new(Exit::Usage, format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|why| fail(format!("cannot read the token file: {why}")))?;
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    match (lines.next().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>()), lines.next())
    {
        (Some(words), None) if matches!(words.len(), 1 | 2) => {
            Ok(words.last().map(|token| (*token).to_owned()))
        }
        _ => Err(fail("it must contain one line with the token, or `name token`".into())),
    }
}

/// Presents the token on a connection that is used otherwise afterwards.
pub(super) fn introduce(
    daemon: BorrowedFd<'_>,
    endpoint: &Endpoint,
    token: Option<String>,
) -> Result<(), Failure> {
    if token.is_none() {
        return Ok(());
    }
    let options = Options { token, timeout: CONNECT, ..Options::default() };
    Client::introduce(daemon, options).map_err(|error| no_handshake(endpoint, error))
}

/// As [`introduce`], for a connection that sees this part alone.
pub(super) fn introduce_to(
    daemon: BorrowedFd<'_>,
    endpoint: &Endpoint,
    token: Option<String>,
    part: Part<'_>,
) -> Result<(), Failure> {
    let options = Options { token, timeout: CONNECT, ..Options::default() };
    Client::introduce_to(daemon, options, part).map_err(|error| {
        if let Error::Rpc(rpc) = &error
            && rpc.code == INVALID_PARAMS
        {
            let hint =
                "`ceased servers` lists them; `ceased reload` has the daemon read its config";
            return Failure::new(Exit::Usage, format!("{}\n{hint}", clean(&rpc.message)));
        }
        no_handshake(endpoint, error)
    })
}

/// As [`introduce`], for a connection that gets this agent.
pub(super) fn introduce_to_agent(
    daemon: BorrowedFd<'_>,
    endpoint: &Endpoint,
    token: Option<String>,
    agent: &str,
) -> Result<(), Failure> {
    let options = Options { token, timeout: CONNECT, ..Options::default() };
    Client::introduce_to_agent(daemon, options, agent).map_err(|error| {
        if let Error::Rpc(rpc) = &error
            && let Some(failure) = no_agent(rpc)
        {
            return failure;
        }
        no_handshake(endpoint, error)
    })
}

/// The failure of a connection that did not get its agent; `None` for any other.
fn no_agent(error: &RpcError) -> Option<Failure> {
    let (exit, hint) = if error.code == INVALID_PARAMS {
        let hint = "[[agent]] in its config has them; `ceased reload` has the daemon read it";
        (Exit::Usage, hint)
    } else if let Some("max_instances" | "max_instances_per_identity") =
        error.data.as_ref().and_then(|it| it["limit"].as_str())
    {
        let hint = "`ceased ps` shows its clients; end one, or raise the limit in the config";
        (Exit::Failed, hint)
    } else if error.code == code::INVALID_REQUEST {
        let message = "this daemon has no ceased/agent; it is an older one, or not ceased";
        return Some(Failure::new(Exit::Failed, message));
    } else {
        return None;
    };
    Some(Failure::new(exit, format!("{}\n{hint}", clean(&error.message))))
}

fn no_handshake(endpoint: &Endpoint, error: Error) -> Failure {
    match error.rpc() {
        Some(rpc) if is_refusal(rpc.code) => {
            Failure::new(Exit::Failed, clean(&format!("access denied by {endpoint}: {rpc}")))
        }
        None if matches!(error, Error::Interrupted) => Failure::from(error),
        Some(_) | None => {
            let what = format!("the MCP handshake with {endpoint} failed: {error}");
            Failure::new(Exit::Unreachable, clean(&format!("no daemon reachable; {what}")))
        }
    }
}

/// Whether the code means that a daemon rejected the connection, as opposed to another kind of
/// server.
const fn is_refusal(error: i64) -> bool {
    matches!(error, code::UNAUTHENTICATED | code::FORBIDDEN | code::LIMIT_REACHED)
}

fn reach(
    endpoints: &[Endpoint],
    token: Option<String>,
    io: &mut Io<'_>,
) -> Result<Result<Session, Unreachable>, Failure> {
    let (socket, endpoint) = match first_reachable(endpoints) {
        Ok(reached) => reached,
        Err(unreachable) => return Ok(Err(unreachable)),
    };
    let has_token = token.is_some();
    let options = options(io, token)?;
    let client = Client::on(socket, options).map_err(|error| match error.rpc() {
        Some(rpc) if rpc.code == code::UNAUTHENTICATED && !has_token => Failure::new(
            Exit::Failed,
            format!("{endpoint} wants a token\ngive it with --token-file FILE or in $CEASED_TOKEN"),
        ),
        Some(_) | None => no_handshake(endpoint, error),
    })?;
    Ok(Ok(Session { client, server: None }))
}

fn options(io: &mut Io<'_>, token: Option<String>) -> Result<Options, Failure> {
    let interrupts = (io.interrupts)()
        .map_err(|why| Failure::new(Exit::Failed, format!("cannot catch signals: {why}")))?;
    Ok(Options { interrupts: Some(interrupts), token, ..Options::default() })
}

/// The failure for a name that no tool has; the nearest one is in the message.
pub(super) fn missing(name: &str, tools: &[Tool]) -> Failure {
    let hint = match arguments::nearest(name, tools.iter().map(|tool| tool.name.as_str())) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "`ceased tools` lists them".to_owned(),
    };
    Failure::new(Exit::Usage, format!("there is no tool {name:?}; {hint}"))
}
