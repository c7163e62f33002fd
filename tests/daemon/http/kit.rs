//! Daemons with HTTP listeners, and sessions of their clients.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ceased_tests::daemon::http::{Http, Reply};
use ceased_tests::daemon::{Config, Daemon, Home, carriers, wait_until};

/// Token of the tests.
pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// An open HTTP listener.
pub(crate) const OPEN: &str = "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n";

/// A daemon with these listeners and tools. `{home}` stands for its directory.
pub(crate) fn daemon_with(text: &str) -> Daemon {
    daemon_within("", text)
}

/// As [`daemon_with`], with these lines of `[limits]`.
pub(crate) fn daemon_within(limits: &str, text: &str) -> Daemon {
    let home = Home::new();
    token_file(&home);
    let text = text.replace("{home}", home.path().to_str().unwrap());
    home.configure(&Config { limits, tools: &text, ..Config::default() });
    Daemon::start_in(home)
}

/// Writes the token file of the tests.
pub(crate) fn token_file(home: &Home) {
    let tokens = home.path().join("http-tokens");
    fs::write(&tokens, format!("ann {TOKEN}\n")).unwrap();
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
}

pub(crate) fn daemon() -> Daemon {
    daemon_with(OPEN)
}

pub(crate) fn connect(daemon: &Daemon) -> Http {
    Http::tcp(daemon.http_address())
}

pub(crate) fn initialize(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{"elicitation":{{}}}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    )
}

pub(crate) fn call(id: u64, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":{id}}}}}}}"#
    )
}

pub(crate) fn cancel(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    )
}

/// A request of 2026-07-28 with these members of its params, and its headers.
pub(crate) fn modern(id: u64, method: &str, params: &str) -> String {
    let more = if params.is_empty() { String::new() } else { format!(",{params}") };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{"progressToken":{id},"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}{more}}}}}"#
    )
}

/// Headers of a request of 2026-07-28.
pub(crate) fn headers<'a>(method: &'a str, name: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    if !name.is_empty() {
        headers.push(("mcp-name", name));
    }
    headers
}

/// Waits until every process with this marker has ended.
pub(crate) fn wait_gone(mark: &str) {
    wait_until("every process has ended", || carriers(mark).is_empty());
}

/// A session of a revision.
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) version: String,
}

impl Session {
    /// Begins a session.
    pub(crate) fn begin(daemon: &Daemon, version: &str) -> Self {
        Self::begin_on(&mut connect(daemon), &[], version)
    }

    pub(crate) fn begin_on(http: &mut Http, more: &[(&str, &str)], version: &str) -> Self {
        let reply = http.exchange(more, &initialize(version));
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.json()["result"]["protocolVersion"], version);
        let id = reply.header("mcp-session-id").expect("a session id").to_owned();
        let session = Self { id, version: version.to_owned() };
        let done = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let reply = http.exchange(&[&session.headers(), more].concat(), done);
        assert_eq!((reply.status, reply.body.as_str()), (202, ""), "{reply:?}");
        session
    }

    /// Headers of the requests of the session.
    pub(crate) fn headers(&self) -> Vec<(&str, &str)> {
        vec![("mcp-session-id", &self.id), ("mcp-protocol-version", &self.version)]
    }

    /// Sends a POST on a new connection.
    pub(crate) fn post(&self, daemon: &Daemon, body: &str) -> Http {
        let mut http = connect(daemon);
        http.post(&self.headers(), body);
        http
    }

    /// Sends a POST on a new connection and reads the response.
    pub(crate) fn exchange(&self, daemon: &Daemon, body: &str) -> Reply {
        self.post(daemon, body).reply()
    }

    /// Opens a GET stream, behind this event if there is one.
    pub(crate) fn get(&self, daemon: &Daemon, last: Option<&str>) -> Http {
        let mut http = connect(daemon);
        let mut headers = self.headers();
        headers.push(("accept", "text/event-stream"));
        headers.extend(last.map(|last| ("last-event-id", last)));
        http.request("GET /mcp", &headers, "");
        http
    }
}
