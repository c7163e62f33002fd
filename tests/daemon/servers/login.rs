//! Logins at servers by URL, and the renewal of their tokens, with a real authorization server.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output, Stdio};

use ceased_tests::daemon::{Daemon, Home, Peer, wait_until};
use serde_json::{Value, json};

use crate::remote::kit::{Remote, configure, write_secret};
use crate::servers::kit::{error, names, say};

/// A `ceased login` that waits for the browser.
struct Waiting {
    child: Child,
    address: String,
}

impl Waiting {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_owned() }
    }

    /// As [`Self::start`], for a command that prints its address to standard error.
    fn start_with_json(home: &Home) -> Self {
        let mut command = home.command(&["login", "far", "--no-browser", "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address =
            lines.find_map(|line| line.split_once("http").map(|(_, rest)| format!("http{rest}")));
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address.unwrap_or_default() }
    }

    /// Opens the address as a browser would, which follows the redirect.
    fn open(&self) {
        assert!(self.address.starts_with("http://127.0.0.1:"), "{}", self.address);
        let script = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()";
        let done = Command::new("python3").args(["-S", "-c", script, &self.address]).status();
        assert!(done.unwrap().success());
    }

    /// The success of the command, and its messages.
    fn end(mut self) -> (bool, String) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().success(), said)
    }
}

/// The document of a login.
pub(crate) fn document(home: &Home) -> String {
    let mut waiting = Waiting::start_with_json(home);
    waiting.open();
    let mut text = String::new();
    waiting.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(waiting.child.wait().unwrap().success(), "{text}");
    text
}

fn log_in(home: &Home) -> (bool, String) {
    let waiting = Waiting::start(home.command(&["login", "far", "--no-browser"]));
    waiting.open();
    waiting.end()
}

fn control(remote: &Remote, order: &str) {
    let script = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], sys.argv[2].encode()).read()";
    let url = remote.url().replace("/mcp", "/control");
    let done = Command::new("python3").args(["-S", "-c", script, &url, order]).status().unwrap();
    assert!(done.success());
}

/// The forms of requests for tokens.
fn grants(remote: &Remote) -> Vec<Value> {
    let notes = remote.notes().into_iter();
    notes.filter(|it| it["path"] == "/token").map(|it| it["form"].clone()).collect()
}

fn whoami(peer: &mut Peer) -> String {
    say(peer, "whoami", "{}")
}

/// The output of a command.
fn printed(mut command: Command) -> String {
    let output = command.stdout(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A login gives tokens that only this server gets, kept where only the daemon reads them.
#[test]
fn login_opens_a_server() {
    let remote = Remote::guarded(&[]);
    let daemon = remote.daemon("");
    let mut peer = daemon.peer();
    assert_eq!(names(&mut peer), Vec::<String>::new(), "nothing is listed yet");
    let listed = printed(daemon.home.command(&["servers"]));
    assert!(listed.contains("token of uid:") && listed.contains("ceased login far"), "{listed}");
    let (is_done, told) = log_in(&daemon.home);
    assert!(is_done && told.contains("logged in to far"), "{told}");
    wait_until("the tools are listed", || names(&mut peer) == ["whoami"]);
    assert!(whoami(&mut peer).starts_with("person-"));
    let notes = remote.notes();
    let asked = notes.iter().find(|it| it["path"] == "/authorize").unwrap();
    let query = &asked["query"];
    assert_eq!(query["code_challenge_method"], "S256");
    assert_eq!((&query["resource"], &query["scope"]), (&json!(remote.url()), &json!("use")));
    assert_eq!(grants(&remote).len(), 1);
    let folder = daemon.home.path().join("state/ceased/tokens");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().flatten().map(|it| it.path()).collect();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    for file in &files {
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    let told =
        daemon.home.log() + &fs::read_to_string(daemon.home.path().join("audit.log")).unwrap();
    assert!(!told.contains("access-") && !told.contains("refresh-"), "{told}");
}

/// A server of a host's file is logged in to without a daemon, and its login serves `ceased stdio`.
#[test]
fn server_of_a_hosts_file_is_logged_in_to() {
    let remote = Remote::guarded(&[]);
    let home = Home::new();
    home.configure_as("");
    let file = home.path().join("mcp.json");
    let entries = json!({"mcpServers": {"far": {"type": "http", "url": remote.url()}}});
    fs::write(&file, entries.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let arguments = ["login", "far", "--no-browser", "--mcp-servers", file];
    let waiting = Waiting::start(home.command(&arguments));
    waiting.open();
    let (is_done, told) = waiting.end();
    assert!(is_done && told.contains("logged in to far"), "{told}");
    let mut command = home.command(&["stdio", "--mcp-servers", file]);
    let asked = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "whoami", "arguments": {}}}),
    ];
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    asked.iter().for_each(|message| writeln!(input, "{message}").unwrap());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let answer = lines.find(|line| line.contains("\"id\":2")).unwrap();
    assert!(answer.contains("person-"), "{answer}");
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// A token that the server refuses is renewed once for all calls that need it, and none of them
/// fails.
#[test]
fn token_is_renewed_once_for_all() {
    let remote = Remote::guarded(&[]);
    let daemon = remote.daemon("");
    assert!(log_in(&daemon.home).0);
    let mut peer = daemon.peer();
    let person = whoami(&mut peer);
    control(&remote, r#"{"expire": true}"#);
    let calls: Vec<_> = (0..8).map(|_| peer.call("whoami", "{}")).collect();
    for call in calls {
        assert_eq!(peer.text(call), person);
    }
    let renewals = grants(&remote);
    let renewals = renewals.iter().filter(|form| form["grant_type"] == "refresh_token");
    assert_eq!(renewals.count(), 1);
}

/// A token is renewed before it expires, while calls go on.
#[test]
fn token_is_renewed_before_it_expires() {
    let remote = Remote::guarded(&["expires:3"]);
    let daemon = remote.daemon("");
    assert!(log_in(&daemon.home).0);
    let mut peer = daemon.peer();
    wait_until("it is renewed", || {
        whoami(&mut peer);
        grants(&remote).len() >= 3
    });
    let notes = remote.notes();
    let asked = notes.iter().filter(|it| it["path"] == "/mcp" && it["http"] == "POST");
    let mut asked = asked.skip_while(|it| it["good"] == false);
    assert!(asked.all(|it| it["good"] == true), "{notes:?}");
}

/// Where a login has ended, the tools stay listed, and the error tells a person the next step.
#[test]
fn ended_login_is_told() {
    let remote = Remote::guarded(&[]);
    let daemon = remote.daemon("");
    assert!(log_in(&daemon.home).0);
    let mut peer = daemon.peer();
    whoami(&mut peer);
    control(&remote, r#"{"expire": true, "end": true}"#);
    let told = error(&mut peer, "whoami", "{}");
    assert!(told.contains("invalid_grant") && told.contains("ceased login far"), "{told}");
    assert_eq!(names(&mut peer), ["whoami"]);
    let servers = printed(daemon.home.command(&["servers"]));
    assert!(servers.contains("ceased login far"), "{servers}");
    assert!(log_in(&daemon.home).0);
    assert!(whoami(&mut peer).starts_with("person-"));
}

/// A refused login, and one whose redirect another server has made, give nothing.
#[test]
fn refused_login_gives_nothing() {
    for (option, why) in [("denies", "access_denied"), ("wrong-issuer", "not of")] {
        let remote = Remote::guarded(&[option]);
        let daemon = remote.daemon("");
        let (is_done, told) = log_in(&daemon.home);
        assert!(!is_done && told.contains(why), "{option}: {told}");
        assert!(grants(&remote).is_empty());
    }
    let remote = Remote::guarded(&["no-registration"]);
    let daemon = remote.daemon("");
    let output = daemon.home.command(&["login", "far", "--no-browser"]).output().unwrap();
    assert!(said(&output).contains("--client-id"), "{}", said(&output));
    let known = ["login", "far", "--no-browser", "--client-id", "known"];
    let waiting = Waiting::start(daemon.home.command(&known));
    assert!(waiting.address.contains("client_id=known"));
    waiting.open();
    assert!(waiting.end().0);
}

/// A logout ends the tokens at the authorization server and here.
#[test]
fn logout_ends_the_tokens() {
    let remote = Remote::guarded(&[]);
    let daemon = remote.daemon("");
    assert!(log_in(&daemon.home).0);
    let mut peer = daemon.peer();
    whoami(&mut peer);
    let output = daemon.home.command(&["logout", "far"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(remote.notes().iter().any(|it| it["path"] == "/revoke"));
    let told = error(&mut peer, "whoami", "{}");
    assert!(told.contains("ceased login far"), "{told}");
    let output = daemon.home.command(&["logout", "far"]).output().unwrap();
    assert!(said(&output).contains("no login"), "{}", said(&output));
}

/// A program of its own needs no person; a file with a token is read again where it is refused.
#[test]
fn programs_and_files_need_no_login() {
    let remote = Remote::guarded(&[]);
    let home = Home::new();
    let secret = home.path().join("secret");
    write_secret(&secret, "secret\n");
    let oauth = format!(
        "oauth = {{ grant = \"client_credentials\", client_id = \"program\", client_secret_file = {secret:?} }}"
    );
    configure(&home, &remote.url(), &oauth);
    let daemon = Daemon::start_in(home);
    let mut peer = daemon.peer();
    assert_eq!(whoami(&mut peer), "program");
    control(&remote, r#"{"expire": true}"#);
    assert_eq!(whoami(&mut peer), "program");
    let output = daemon.home.command(&["login", "far", "--no-browser"]).output().unwrap();
    assert!(said(&output).contains("needs no login"), "{}", said(&output));
    let token = |index: usize| {
        let notes = remote.notes();
        let good = notes.iter().filter(|it| it["good"] == true).nth(index).cloned();
        good.unwrap()["token"].as_str().unwrap().replace("Bearer ", "")
    };
    let last = remote.notes().iter().filter(|it| it["good"] == true).count() - 1;
    let home = Home::new();
    let file = home.path().join("token");
    write_secret(&file, "old");
    configure(&home, &remote.url(), &format!("token_file = {file:?}"));
    write_secret(&file, &token(last));
    let other = Daemon::start_in(home);
    let mut peer = other.peer();
    assert_eq!(whoami(&mut peer), "program");
    control(&remote, r#"{"expire": true}"#);
    whoami(&mut daemon.peer());
    let last = remote.notes().iter().filter(|it| it["good"] == true).count() - 1;
    write_secret(&file, &token(last));
    assert_eq!(whoami(&mut peer), "program", "the file is read again");
}

/// Each user has a login of its own, which is used for no other.
#[test]
fn login_of_a_user_is_its_own() {
    let remote = Remote::guarded(&[]);
    let home = Home::new();
    configure(&home, &remote.url(), "share = \"identity\"");
    let open = home.config_text().replace("transport = ", "mode = \"0666\"\ntransport = ");
    home.configure_as(&open);
    let daemon = Daemon::start_in(home);
    let mut persons = Vec::new();
    for number in [1, 2] {
        let args = ["login", "far", "--no-browser"];
        let Some(command) = daemon.home.command_as(number, &args) else { return };
        let waiting = Waiting::start(command);
        waiting.open();
        let (is_done, told) = waiting.end();
        assert!(is_done && told.contains("for uid:"), "{told}");
        let Some(call) = daemon.home.command_as(number, &["call", "whoami"]) else { return };
        persons.push(printed(call));
    }
    assert_ne!(persons[0], persons[1]);
    assert_eq!(names(&mut daemon.peer()), Vec::<String>::new(), "the operator has none");
}
