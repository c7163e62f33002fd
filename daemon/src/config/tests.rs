//! Tests of the configuration: the file at the top of the repository, and the text of every error.

mod default_file;
mod described;
mod errors;

use std::path::Path;

use ceased_core::identity::Identity;
use ceased_core::limits::OnTtl;
use ceased_transports::Address;

use super::*;
use crate::store::Damaged;

/// Environment of a user with a home directory only.
fn environment() -> Environment {
    Environment {
        ceased_config: None,
        home: Some("/home/u".into()),
        config_home: None,
        state_home: None,
        state_directory: None,
        sockets: SocketPaths::default(),
    }
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse_in(text, Path::new("/etc/ceased/config.toml"), &environment())
}

fn good(text: &str) -> Config {
    parse(text).unwrap_or_else(|why| panic!("{why}\nin\n{text}"))
}

/// The only tool of a file.
fn only_tool(text: &str) -> Tool {
    let mut config = good(text);
    assert_eq!(config.tools.len(), 1);
    config.tools.remove(0)
}

fn only_command(text: &str) -> CommandTool {
    match only_tool(text).run {
        Run::Command(command) => *command,
        Run::Builtin(builtin) => panic!("{builtin:?} is not a command"),
    }
}

#[test]
fn empty_file_gives_the_defaults() {
    assert_eq!(good(""), Config::default_in(&environment()));
    assert_eq!(good("[daemon]\n[limits]\n[tasks]\n[log]\n"), Config::default_in(&environment()));
    assert_eq!(Config::parse("", Path::new("c.toml")), Ok(Config::default()));
    assert_eq!(good("").socket(), Some(Path::new("/run/ceased/ceased.sock")));
    let listen = Config::default().listen;
    let path = Config::default_socket();
    assert_eq!(listen, [Listen::Unix { path, mode: 0o600, group: None, allow: None }]);
}

/// A default that depends on another key follows that key.
#[test]
fn dependent_defaults_follow_their_keys() {
    let tool = "[[tool]]\nname = \"a\"\ncommand = [\"x\"]\n";
    let small = format!("[limits]\nwrite_buffer_bytes = \"64KiB\"\n{tool}");
    let tools = good(&small).tools;
    let Run::Command(command) = &tools.first().expect("one").run else { panic!("no command") };
    assert_eq!(command.max_output, 64 << 10);
    let why = parse(&format!("{small}max_output = \"65KiB\"")).expect_err("cannot be sent");
    assert!(why.to_string().contains("write_buffer_bytes"), "{why}");

    let long = "[limits]\nmessage_bytes = \"512MiB\"\n";
    assert_eq!(good(long).limits.partial_bytes, 512 << 20);
    let why = parse(&format!("{long}partial_bytes = \"511MiB\"")).expect_err("no message fits");
    assert!(why.to_string().contains("512MiB"), "{why}");
}

#[test]
fn every_key_is_read() {
    let config = good(
        r#"
        [daemon]
        state_dir = "state"
        store = "disk"
        store_reserve = 0
        store_retry = "100ms"
        damaged_store = "set_aside"
        workers = 1
        queue = 0
        shutdown_grace = "1h"
        eof_grace = "0s"
        on_disconnect = "5s"
        isolation = "pid"
        roots = ["/srv", "~/src"]
        allow_run = true
        operators = ["token:ann", "uid:7"]
        heartbeat = "2s"
        text_limit = "2KiB"
        title = "T"
        website = "https://a.b"
        instructions = "I"
        on_end = ["bin/told", "{tool}"]
        on_end_after = "0s"
        on_end_timeout = "1s"
        on_end_running = 2
        [limits]
        connections = 2
        connections_per_identity = 1
        operator_connections = 3
        message_bytes = 4096
        json_depth = 16
        inflight_per_connection = 3
        tasks_per_identity = 4
        stored_tasks_per_identity = 5
        stored_bytes_per_identity = "1MiB"
        resident_result_bytes = 0
        task_ops_per_second = 6
        workers_per_identity = 1
        queue_per_identity = 2
        idempotency_keys_per_identity = 8
        idempotency_ttl = "9s"
        output_bytes = 7
        output_bytes_per_identity = 6
        write_buffer_bytes = "1MB"
        write_stall = "1s 500ms"
        authenticate_within = "3s"
        frame_time = "2s"
        held_bytes = "9KiB"
        held_bytes_per_identity = "6KiB"
        partial_bytes = "8KiB"
        partial_bytes_per_identity = "5KiB"
        asks_per_job = 7
        parked_per_identity = 8
        parked_for = "9s"
        subscriptions_per_connection = 10
        tasks_per_subscription = 11
        [tasks]
        default_ttl = "1m"
        max_ttl = "2m"
        on_ttl = "stop"
        late_result = "0s"
        anonymous_ttl = "2m"
        poll_interval = "5ms"
        page_size = 7
        status_notifications = false
        [log]
        level = "trace"
        audit = "~/audit.jsonl"
        calls = "arguments"
        redact = ["My_*"]
        ended_calls = 0
        ended_for = "1s"
        [metrics]
        listen = "unix:~/metrics.sock"
        [alerts]
        high_water = 0
        slow_stop = "1s"
        window = "1h"
        unknown_tasks = 7
        fast_polls = 8
        "#,
    );
    let secs = Duration::from_secs;
    assert_eq!(
        config.daemon,
        Daemon {
            state_dir: "/etc/ceased/state".into(),
            store: Keeping::Disk,
            store_reserve: 0,
            store_retry: Duration::from_millis(100),
            damaged_store: Damaged::SetAside,
            workers: 1,
            queue: 0,
            shutdown_grace: secs(3600),
            eof_grace: Duration::ZERO,
            on_disconnect: OnDisconnect::Grace(secs(5)),
            isolation: Isolation::Pid,
            roots: vec!["/srv".into(), "/home/u/src".into()],
            allow_run: true,
            operators: [Identity::Token("ann".into()), Identity::User(7)].into(),
            heartbeat: Some(secs(2)),
            text_limit: 2048,
            title: Some("T".into()),
            website: Some("https://a.b".into()),
            instructions: Some("I".into()),
            on_end: OnEnd::new(&["/etc/ceased/bin/told", "{tool}"]).expect("a command"),
            on_end_after: Duration::ZERO,
            on_end_timeout: secs(1),
            on_end_running: 2,
        }
    );
    assert_eq!(
        config.limits,
        Limits {
            connections: 2,
            connections_per_identity: Some(1),
            operator_connections: 3,
            message_bytes: 4096,
            json_depth: 16,
            inflight_per_connection: 3,
            tasks_per_identity: 4,
            stored_tasks_per_identity: 5,
            stored_bytes_per_identity: 1 << 20,
            resident_result_bytes: 0,
            task_ops_per_second: 6,
            workers_per_identity: Some(1),
            queue_per_identity: Some(2),
            idempotency_keys_per_identity: 8,
            idempotency_ttl: secs(9),
            output_bytes: 7,
            output_bytes_per_identity: 6,
            write_buffer_bytes: 1_000_000,
            write_stall: Duration::from_millis(1500),
            authenticate_within: secs(3),
            frame_time: secs(2),
            held_bytes: 9216,
            held_bytes_per_identity: Some(6144),
            partial_bytes: 8192,
            partial_bytes_per_identity: Some(5120),
            asks_per_job: 7,
            parked_per_identity: 8,
            parked_for: secs(9),
            subscriptions_per_connection: 10,
            tasks_per_subscription: 11,
        }
    );
    assert_eq!(
        config.tasks,
        Tasks {
            default_ttl: secs(60),
            max_ttl: secs(120),
            on_ttl: OnTtl::Stop,
            late_result: Duration::ZERO,
            anonymous_ttl: secs(120),
            poll_interval: Duration::from_millis(5),
            page_size: 7,
            status_notifications: false,
        }
    );
    let audit = Some("/home/u/audit.jsonl".into());
    assert_eq!(
        config.log,
        Log {
            level: Some(Level::Trace),
            audit,
            calls: RecordCalls::Arguments,
            redact: vec!["my_*".into()],
            ended_calls: 0,
            ended_for: secs(1),
        }
    );
    let (path, mode) = ("/home/u/metrics.sock".into(), ceased_transports::SocketMode::OWNER);
    assert_eq!(config.metrics, Metrics { listen: Some(Address::Unix { path, mode }) });
    assert_eq!(
        config.alerts,
        Alerts {
            high_water: 0,
            slow_stop: secs(1),
            window: secs(3600),
            unknown_tasks: 7,
            fast_polls: 8,
        }
    );
}

#[test]
fn listeners_keep_their_order() {
    let config = good(
        r#"
        [[listen]]
        transport = "stdio"
        [[listen]]
        transport = "tcp"
        address = "[::1]:0"
        anonymous = "allow"
        [[listen]]
        transport = "unix"
        path = "~/a.sock"
        mode = "0660"
        [[listen]]
        transport = "unix"
        path = "b.sock"
        [[listen]]
        transport = "tcp"
        address = "[::1]:0"
        anonymous = "allow"
        "#,
    );
    let tcp = Listen::Tcp {
        address: "[::1]:0".parse().expect("an address"),
        token_file: None,
        anonymous: true,
    };
    let unix =
        |path: &str, mode| Listen::Unix { path: path.into(), mode, group: None, allow: None };
    assert_eq!(
        config.listen,
        [
            Listen::Stdio,
            tcp.clone(),
            unix("/home/u/a.sock", 0o660),
            unix("/etc/ceased/b.sock", 0o600),
            tcp,
        ]
    );
    assert_eq!(config.socket(), Some(Path::new("/home/u/a.sock")));
}

#[test]
fn isolation_of_a_tool_overrides_the_default() {
    let tool = "[[tool]]\nname = \"a\"\ncommand = [\"x\"]\n";
    let (pid, none) = ("isolation = \"pid\"\n", "isolation = \"none\"\n");
    for (text, want) in [
        (tool.to_owned(), Isolation::None),
        (format!("{tool}{pid}"), Isolation::Pid),
        (format!("[daemon]\n{pid}{tool}"), Isolation::Pid),
        (format!("[daemon]\n{pid}{tool}{none}"), Isolation::None),
    ] {
        assert_eq!(only_command(&text).isolation, want, "{text}");
    }
    let builtin = format!("[[tool]]\nname = \"a\"\nbuiltin = \"echo\"\n{pid}");
    let why = parse(&builtin).expect_err("no process").to_string();
    assert!(why.contains("`isolation` in [[tool]] has no meaning for a builtin"), "{why}");
    let why = parse(&format!("{tool}isolation = \"user\"")).expect_err("unknown").to_string();
    assert!(why.contains("known values: none, pid"), "{why}");
}

#[test]
fn tool_has_defaults() {
    let tool = only_tool("[[tool]]\nname = \"a\"\ncommand = [\"true\"]");
    assert_eq!(tool.task_support, TaskSupport::Forbidden);
    assert_eq!(tool.timeout, Duration::from_secs(600));
    assert_eq!((tool.title, tool.description), (None, None));
    assert_eq!(tool.arguments.schema().get(), r#"{"type":"object","additionalProperties":false}"#);
    let Run::Command(command) = tool.run else { panic!("not a command") };
    assert_eq!(command.kill_grace, Duration::from_secs(2));
    assert_eq!(command.max_output, 1 << 20);
    assert_eq!(command.template.program, "true");
    assert_eq!((command.template.cwd, command.template.stdin), (None, None));
}

#[test]
fn every_key_of_a_tool_is_read() {
    let text = r#"
        [[tool]]
        name = "build"
        title = "Build"
        description = "Builds a package"
        command = ["cargo", "build", "--package={package}", "{{x}}"]
        task_support = "required"
        timeout = "1m"
        kill_grace = "0s"
        max_output = "8MiB"
        cwd = "~/src/{where}"
        env = { RUST_LOG = "{log}", A = "b" }
        stdin = "{text}"
        [tool.input.where]
        type = "string"
        required = true
        [tool.input.package]
        type = "string"
        description = "Cargo package name"
        required = true
        [tool.input.text]
        type = "string"
        [tool.input.log]
        type = "string"
        enum = ["info", "debug"]
        default = "info"
    "#;
    let tool = only_tool(text);
    assert_eq!(tool.title.as_deref(), Some("Build"));
    assert_eq!(tool.description.as_deref(), Some("Builds a package"));
    assert_eq!(tool.task_support, TaskSupport::Required);
    assert_eq!(tool.timeout, Duration::from_secs(60));
    assert_eq!(
        tool.arguments.schema().get(),
        concat!(
            r#"{"type":"object","properties":{"where":{"type":"string"},"#,
            r#""package":{"type":"string","description":"Cargo package name"},"#,
            r#""text":{"type":"string"},"#,
            r#""log":{"type":"string","enum":["info","debug"],"default":"info"}},"#,
            r#""required":["where","package"],"additionalProperties":false}"#
        )
    );
    let command = only_command(text);
    assert_eq!((command.kill_grace, command.max_output), (Duration::ZERO, 8 << 20));
    let arguments = r#"{"where":"x","package":"p q","text":"hi"}"#;
    let filled = command.template.fill(&tool.arguments, Some(arguments)).expect("filled");
    assert_eq!(filled.argv, ["cargo", "build", "--package=p q", "{x}"]);
    let cwd = filled.cwd.expect("a directory");
    assert_eq!((cwd.base, cwd.below), ("/home/u/src".into(), Some("x".into())));
    assert_eq!(filled.env, [("RUST_LOG".into(), "info".into()), ("A".into(), "b".into())]);
    assert_eq!(filled.stdin.as_deref(), Some(&b"hi"[..]));
}

#[test]
fn input_schema_keeps_its_order() {
    let tool = only_tool(
        r#"
        [[tool]]
        name = "a"
        command = ["x", "{zeta}"]
        [tool.input_schema]
        type = "object"
        required = ["zeta"]
        [tool.input_schema.properties]
        zeta = { type = "array", items = { type = "number", maximum = 0.5 } }
        alpha = {}
        "#,
    );
    assert_eq!(
        tool.arguments.schema().get(),
        concat!(
            r#"{"type":"object","required":["zeta"],"properties":{"#,
            r#""zeta":{"type":"array","items":{"type":"number","maximum":0.5}},"alpha":{}}}"#
        )
    );
}

#[test]
fn relative_program_is_resolved_from_the_file() {
    for (program, runs) in [
        ("make", "make"),
        ("./make", "/etc/ceased/./make"),
        ("bin/make", "/etc/ceased/bin/make"),
        ("~/make", "/home/u/make"),
        ("/bin/make", "/bin/make"),
        ("{{}}", "{}"),
    ] {
        let text = format!("[[tool]]\nname = \"a\"\ncommand = [{program:?}]");
        assert_eq!(only_command(&text).template.program, runs, "{program}");
    }
    let text = "[[tool]]\nname = \"a\"\ncwd = \"../w\"\ncommand = [\"x\"]";
    let command = only_command(text);
    let filled = command.template.fill(&only_tool(text).arguments, None).expect("filled");
    assert_eq!(filled.cwd, Some(Path::new("/etc/ceased/../w").into()));
}

/// Arguments passed beside code are allowed, and so are programs that run no code.
#[test]
fn arguments_beside_code_are_allowed() {
    for command in [
        r#"["sh", "-c", "echo \"$1\"", "sh", "{x}"]"#,
        r#"["sh", "script.sh", "-c", "{x}"]"#,
        r#"["sh", "-c", "code", "-c", "{x}"]"#,
        r#"["grep", "-c", "{x}"]"#,
        r#"["python3", "-m", "{x}"]"#,
        r#"["perl", "-n", "{x}"]"#,
    ] {
        let text = format!(
            "[[tool]]\nname = \"a\"\ncommand = {command}\ninput.x = {{ type = \"string\" }}"
        );
        good(&text);
    }
}

#[test]
fn builtins_describe_themselves() {
    let config = good(
        "[[tool]]\nname = \"e\"\nbuiltin = \"echo\"\n[[tool]]\nname = \"s\"\nbuiltin = \"sleep\"",
    );
    let echo = config.tool("e").expect("there");
    assert_eq!(echo.run, Run::Builtin(Builtin::Echo));
    assert!(echo.description.is_some());
    assert_eq!(echo.arguments.check(Some(r#"{"text":"x"}"#)), Ok(()));
    assert!(echo.arguments.check(None).is_err());
    let sleep = config.tool("s").expect("there");
    assert_eq!(sleep.arguments.check(Some(r#"{"ms":5}"#)), Ok(()));
    for wrong in [r#"{"ms":-1}"#, r#"{"ms":1.5}"#, r#"{"ms":86400001}"#, "{}"] {
        assert!(sleep.arguments.check(Some(wrong)).is_err(), "{wrong}");
    }
    assert!(config.tool("x").is_none());
}

#[test]
fn read_only_tool_is_marked() {
    let tool = |run: &str| good(&format!("[[tool]]\nname = \"t\"\n{run}"));
    for (run, expected) in [
        ("builtin = \"echo\"", true),
        ("builtin = \"sleep\"\nread_only = false", false),
        ("command = [\"true\"]", false),
        ("command = [\"true\"]\nread_only = true", true),
    ] {
        let config = tool(run);
        assert_eq!(config.tool("t").expect("there").read_only, expected, "{run}");
    }
    assert!(tool("command = [\"true\"]\nread_only = true").describe().contains("read-only"));
    assert!(!tool("command = [\"true\"]").describe().contains("read-only"));
}

/// A text of several lines means the same in a file that was saved with CR LF; an escape stays.
#[test]
fn line_ends_of_the_file_are_not_those_of_its_texts() {
    let text = "[[tool]]\nname = \"t\"\ndescription = \"\"\"\none\ntwo\\r\\n\"\"\"\n\
                command = [\"sh\", \"-c\", \'\'\'\necho a\necho b\'\'\']\n";
    let (lf, crlf) = (good(text), good(&text.replace('\n', "\r\n")));
    assert_eq!(lf.tools[0].description.as_deref(), Some("one\ntwo\r\n"));
    assert_eq!(lf.tools[0].runs(), crlf.tools[0].runs());
    assert_eq!(lf.tools[0].description, crlf.tools[0].description);
}

/// A file that was found is not waited for.
#[test]
fn pipe_that_is_found_is_refused() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("ceased.toml");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a pipe");
    let refused = Config::read_found(&path).expect_err("a pipe").to_string();
    assert!(refused.contains("it is a pipe"), "{refused}");
}

#[test]
fn file_size_is_bounded() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("config.toml");
    let load = |bytes: &[u8]| {
        std::fs::write(&path, bytes).expect("write");
        Config::load(&path)
            .map_err(|why| why.to_string().replace(path.to_str().expect("UTF-8"), "F"))
    };
    assert_eq!(load(b"[daemon]\nworkers = 3").expect("good").daemon.workers, 3);
    assert_eq!(
        load(b"a\xff"),
        Err("byte 1 of the configuration is not UTF-8 (F); save it as UTF-8".into())
    );
    assert_eq!(
        load(&vec![b'\n'; 1024 * 1024 + 1]),
        Err("the configuration is larger than 1048576 bytes (F); check the path".into())
    );
    assert!(load(&vec![b'\n'; 1024 * 1024]).is_ok());
    let missing = Config::load(&dir.path().join("none")).expect_err("missing").to_string();
    assert!(missing.starts_with("cannot read the configuration: "), "{missing}");
}
