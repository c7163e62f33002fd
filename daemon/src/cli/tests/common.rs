//! Locating the daemon, running without one, listing, and the commands of the backend.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::wrap::WrapOptions;
use ceased_client::fake::Script;
use ceased_process::Containment;

/// A backend with a config that names `socket`, and an embeddable server.
#[derive(Default)]
struct Fake {
    socket: Option<PathBuf>,
    config_is_wrong: bool,
    embedded: Mutex<Option<Embedded>>,
    called: Mutex<Vec<String>>,
}

impl Fake {
    fn note(&self, what: &str, config: Option<&Path>) {
        self.called.lock().unwrap().push(format!("{what} {config:?}"));
    }
}

impl Backend for Fake {
    fn serve(&self, files: EngineFiles<'_>, _: ServeOptions) -> Exit {
        self.note("serve", files.config);
        Exit::Done
    }

    fn stdio(&self, files: EngineFiles<'_>) -> Exit {
        self.note("stdio", files.config);
        Exit::Done
    }

    fn check_store(&self, _: Option<&Path>, _: bool, _: &mut dyn Write, _: &mut dyn Write) -> Exit {
        Exit::Done
    }

    fn fleet(&self, _: Option<&Path>, _: Option<&str>, _: bool) -> Result<FleetView, Failure> {
        Err(Failure::new(Exit::Usage, "no fleet here"))
    }

    fn containment(&self) -> Result<Containment, Failure> {
        Err(Failure::new(Exit::Failed, "no containment here"))
    }

    fn wrap(&self, _: &WrapOptions) -> Exit {
        Exit::Done
    }

    fn check(
        &self,
        config: Option<&Path>,
        _: &[String],
        _: bool,
        _: bool,
        out: &mut dyn Write,
        _: &mut dyn Write,
    ) -> Exit {
        self.note("check", config);
        writeln!(out, "fine").unwrap();
        Exit::Done
    }

    fn site(&self, _: Option<&Path>) -> Result<DaemonLocation, Failure> {
        if self.config_is_wrong {
            return Err(Failure::new(Exit::Usage, "c.toml:3: unknown key"));
        }
        let config = self.socket.is_some().then(|| PathBuf::from("c.toml"));
        Ok(DaemonLocation { config, socket: self.socket.clone(), ..DaemonLocation::default() })
    }

    fn embed_servers(&self, _: Option<&Path>, _: &Path) -> Result<Embedded, Failure> {
        Err(Failure::new(Exit::Usage, "no server"))
    }

    fn embed_text(&self, _: &str, _: &Path) -> Result<Embedded, Failure> {
        Err(Failure::new(Exit::Usage, "no server"))
    }

    fn check_text(&self, _: &str, _: &Path) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }

    fn embed_project(&self) -> Result<Option<Embedded>, Failure> {
        Ok(None)
    }

    fn embed(&self, _: Option<&Path>, _: &mut dyn Write) -> Result<Option<Embedded>, Failure> {
        if self.config_is_wrong {
            return Err(Failure::new(Exit::Usage, "c.toml:3: unknown key"));
        }
        Ok(self.embedded.lock().unwrap().take())
    }
}

fn lists_tools(talk: &mut Talk, message: &Value) {
    match method(message) {
        "tools/list" => talk.answer(message, tools()),
        "tools/call" => talk.answer(message, json!({"content": []})),
        _ => talk.unknown_method(message),
    }
}

#[test]
fn tools_are_printed_as_columns_or_json() {
    let ran = stage(lists_tools).run(&["tools"]);
    assert_eq!(ran.exit, Exit::Done);
    assert_eq!(
        ran.out,
        "TOOL    ARGUMENTS                                           TASK       DESCRIPTION\n\
         build   package [features] [jobs] [ratio] [release] [seed]  optional   Build the workspace …\n\
         echo                                                        forbidden  Says it again\n\
         backup                                                      required\n"
    );
    let ran = stage(lists_tools).run(&["tools", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), tools()["tools"]);
    assert_eq!(ran.out.lines().count(), 1);
}

#[test]
fn status_fits_one_screen() {
    let script = |talk: &mut Talk, message: &Value| {
        talk.answer(
            message,
            json!({
                "connection": 7,
                "jobs": [
                    {"job": 1, "tool": "build", "state": "running"},
                    {"job": 2, "tool": "e\u{1b}", "state": "cancelling", "reason": "enough"},
                ],
                "running": 1,
                "limits": {"workers": 64},
            }),
        );
    };
    let ran = stage(script).run(&["status"]);
    assert_eq!(ran.exit, Exit::Done, "{}", ran.err);
    for word in ["jobs         1 running of 64", "  JOB TOOL", "build", "e\\u{1b}", ": enough"] {
        assert!(ran.out.contains(word), "{word:?} in\n{}", ran.out);
    }
    assert!(!ran.out.contains('\u{1b}') && ran.out.lines().count() <= 24, "{}", ran.out);
    let ran = stage(script).run(&["status", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap()["limits"]["workers"], 64);
    let ran = stage(|talk, message| talk.unknown_method(message)).run(&["status"]);
    assert_eq!(ran.exit, Exit::Failed);
    assert!(ran.err.contains("fake has no ceased/status"), "{}", ran.err);
}

#[test]
fn daemon_is_searched_in_the_documented_order() {
    // In order: option, environment, config; only the first one given counts.
    let mut one = stage(lists_tools);
    one.env.socket = Some(one.socket().into());
    let elsewhere = Fake { socket: Some("/nonexistent/config.sock".into()), ..Fake::default() };
    assert_eq!(one.run_with(&["tools"], &elsewhere).exit, Exit::Done);

    let mut one = stage(lists_tools);
    one.env.sockets.own = vec!["/nonexistent/runtime/ceased.sock".into()];
    let here = Fake { socket: Some(one.socket().into()), ..Fake::default() };
    assert_eq!(one.run_with(&["tools"], &here).exit, Exit::Done);

    for (args, expected) in [
        (&["--socket", "/nonexistent/arg.sock", "tools"][..], "unix:/nonexistent/arg.sock"),
        (&["tools", "--socket", "/nonexistent/arg.sock"], "unix:/nonexistent/arg.sock"),
        (&["tools", "--tcp", "127.0.0.1:1"], "tcp:127.0.0.1:1"),
        (&["tools"], "unix:/nonexistent/env.sock"),
    ] {
        let mut one = stage(lists_tools);
        one.env.socket = Some("/nonexistent/env.sock".into());
        let here = Fake { socket: Some(one.socket().into()), ..Fake::default() };
        let ran = one.run_with(args, &here);
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Unreachable, ""));
        assert!(ran.err.contains(expected), "{}", ran.err);
        assert!(ran.err.contains("ceased serve"), "{}", ran.err);
        assert!(!ran.err.contains(&one.socket()), "{}", ran.err);
    }
}

#[test]
fn default_endpoints_are_tried_and_named_in_order() {
    let mut one = stage(lists_tools);
    one.env.sockets.own.push(one.dir.path().join("state/ceased.sock"));
    one.env.sockets.system = Some(one.dir.path().join("system/ceased.sock"));
    let ran = one.run_with(&["tools"], &Fake::default());
    assert_eq!(ran.exit, Exit::Unreachable);
    for place in ["run/ceased/ceased.sock", "state/ceased.sock", "system/ceased.sock"] {
        assert!(ran.err.contains(place), "{}", ran.err);
    }
    for place in ["state/ceased.sock", "system/ceased.sock"] {
        let mut one = stage(lists_tools);
        let path = one.dir.path().join(place);
        one.env.sockets.own.push(one.dir.path().join("state/ceased.sock"));
        one.env.sockets.system = Some(one.dir.path().join("system/ceased.sock"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::rename(one.socket(), &path).unwrap();
        assert_eq!(one.run_with(&["tools"], &Fake::default()).exit, Exit::Done, "{place}");
        // A configuration that names no socket has those of its user, and not the system's.
        let usual = Some(one.env.sockets.default_socket());
        let mut two = stage(lists_tools);
        two.env.sockets = one.env.sockets.clone();
        std::fs::rename(two.socket(), &path).unwrap();
        let ran = two.run_with(&["tools"], &Fake { socket: usual, ..Fake::default() });
        let expected = if place.starts_with("state") { Exit::Done } else { Exit::Unreachable };
        assert_eq!(ran.exit, expected, "{place}: {}", ran.err);
    }
}

#[test]
fn invalid_config_is_an_error_only_if_named() {
    let mut one = stage(lists_tools);
    let wrong = Fake { config_is_wrong: true, ..Fake::default() };
    let ran = one.run_with(&["tools", "--config", "c.toml"], &wrong);
    assert_eq!((ran.exit, ran.err.as_str()), (Exit::Usage, "ceased: c.toml:3: unknown key\n"));
    let ran = one.run_with(&["ps"], &wrong);
    assert_eq!(ran.exit, Exit::Unreachable);
    assert!(ran.err.contains("ignoring the config: c.toml:3"), "{}", ran.err);
}

#[test]
fn foreign_server_is_distinguished_from_a_missing_daemon() {
    let mut one = stage(lists_tools);
    let path = one.dir.path().join("alien.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let alien = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"SSH-2.0-x\r\n").unwrap();
        io::copy(&mut stream, &mut io::sink()).unwrap();
    });
    let ran = one.run_with(&["tools", "--socket", path.to_str().unwrap()], &Fake::default());
    alien.join().unwrap();
    assert_eq!(ran.exit, Exit::Unreachable);
    assert!(ran.err.contains("SSH-2.0-x"), "{}", ran.err);
}

/// Records that the server was shut down, and whether its peer had disconnected before.
struct Guard(Arc<AtomicBool>, Option<thread::JoinHandle<()>>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.1.take().unwrap().join().unwrap();
        self.0.store(true, Ordering::SeqCst);
    }
}

fn embeddable(is_down: &Arc<AtomicBool>) -> Fake {
    let (stream, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let (_, trigger) = Interrupts::manual().unwrap();
        let mut script: Script = Box::new(lists_tools);
        Talk::new(theirs, Arc::new(trigger)).serve(&Received::default(), &mut script);
    });
    let server = Box::new(Guard(Arc::clone(is_down), Some(server)));
    Fake { embedded: Mutex::new(Some(Embedded { stream, server })), ..Fake::default() }
}

#[test]
fn call_without_a_daemon_runs_in_process_and_reports_that() {
    let is_down = Arc::new(AtomicBool::new(false));
    let mut one = stage(lists_tools);
    one.env.sockets.own = vec!["/nonexistent/s.sock".into()];
    let ran = one.run_with(&["call", "echo"], &embeddable(&is_down));
    assert_eq!(ran.exit, Exit::Done, "{}", ran.err);
    assert_eq!(
        ran.err,
        "ceased: no daemon at unix:/nonexistent/s.sock; running the tool in this process\n"
    );
    let mut one = stage(lists_tools);
    let ran = one.run_with(&["tools"], &embeddable(&Arc::default()));
    assert_eq!(ran.exit, Exit::Done, "{}", ran.err);
    assert!(ran.out.contains("build") && ran.err.contains("no daemon at"), "{ran:?}");
    assert!(is_down.load(Ordering::SeqCst), "the server outlives the command");
}

#[test]
fn other_commands_need_a_daemon() {
    let is_down = Arc::new(AtomicBool::new(false));
    for args in [
        &["call", "echo", "--tcp", "127.0.0.1:1"][..],
        &["call", "echo", "--socket", "/nonexistent/s.sock"],
        &["ps"],
        &["call", "build", "package=x", "--detach", "--socket", "/nonexistent/s.sock"],
        &["tools", "--socket", "/nonexistent/s.sock"],
        &["connect", "--socket", "/nonexistent/s.sock"],
    ] {
        let backend = embeddable(&is_down);
        let ran = stage(lists_tools).run_with(args, &backend);
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Unreachable, ""), "{args:?}");
        assert!(backend.embedded.lock().unwrap().is_some(), "{args:?}");
        drop(backend);
    }
    let mut named = stage(lists_tools);
    named.env.socket = Some("/nonexistent/s.sock".into());
    let backend = embeddable(&is_down);
    assert_eq!(named.run_with(&["call", "echo"], &backend).exit, Exit::Unreachable);
    drop(backend);
    let ran = stage(lists_tools).run_with(&["call", "echo"], &Fake::default());
    assert_eq!(ran.exit, Exit::Unreachable);
    assert!(ran.err.contains("no config") && ran.err.contains("--config FILE"), "{}", ran.err);
}

#[test]
fn daemon_commands_are_passed_to_the_backend() {
    let backend = Fake::default();
    let mut one = stage(lists_tools);
    assert_eq!(one.run_with(&["serve"], &backend).exit, Exit::Done);
    assert_eq!(one.run_with(&["stdio", "--config", "c"], &backend).exit, Exit::Done);
    let ran = one.run_with(&["check", "--config", "c"], &backend);
    assert_eq!((ran.exit, ran.out.as_str()), (Exit::Done, "fine\n"));
    let called = backend.called.lock().unwrap();
    assert_eq!(*called, ["serve None", "stdio Some(\"c\")", "check Some(\"c\")"]);
}

#[test]
fn usage_errors_go_to_stderr_and_help_to_stdout() {
    let mut one = stage(lists_tools);
    for args in [&[][..], &["launch"], &["get"], &["tools", "--socket", "a", "--tcp", "b:1"]] {
        let ran = one.run_with(args, &ClientOnly);
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Usage, ""), "{args:?}");
        assert!(ran.err.contains("Usage"), "{args:?}: {}", ran.err);
    }
    for args in [&["--help"][..], &["--version"], &["call", "--help"]] {
        let ran = one.run_with(args, &ClientOnly);
        assert_eq!((ran.exit, ran.err.as_str()), (Exit::Done, ""), "{args:?}");
        assert!(!ran.out.is_empty());
    }
}

#[test]
fn token_is_sent_only_over_tcp() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(stream), &mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    });
    let mut one = stage(lists_tools);
    one.env.token = Some("s3cret".to_owned());
    let ran = one.run_with(&["tools", "--tcp", &address], &ClientOnly);
    assert_eq!(ran.exit, Exit::Unreachable);
    assert_eq!(server.join().unwrap()["params"]["token"], "s3cret");

    let mut one = stage(lists_tools);
    one.env.token = Some("s3cret".to_owned());
    assert_eq!(one.run(&["tools"]).exit, Exit::Done);
    assert!(one.received.all().iter().all(|message| !message.to_string().contains("s3cret")));
}
