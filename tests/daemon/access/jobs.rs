//! Peers inside a job act as the requestor of the job, not as the user of its processes.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use ceased_tests::binary::ceased;
use ceased_tests::daemon::peer::request;
use ceased_tests::daemon::{Daemon, Home, Signal, wait_until};
use serde_json::{Value, json};

/// Requests that a tool sends on the socket: its own identity, and a cancel of job 1.
fn spying() -> String {
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "spy", "version": "1"}});
    let lines = [
        request(1, "initialize", &hello.to_string()),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        request(2, "ceased/status", r#"{"detail":true}"#),
        request(3, "ceased/cancel", r#"{"job":1}"#),
    ];
    lines.join("\n") + "\n"
}

/// `$0` is the binary, `$1` the socket, `$2` a directory with the input in `in`.
const DIRECTLY: &str = r#"exec "$0" connect --socket "$1" --eof-grace 5s <"$2/in""#;
/// The same from an orphan in its own session.
const AS_AN_ORPHAN: &str = r#"
    rm -f "$2/answers"
    ( setsid sh -c '"$0" connect --socket "$1" --eof-grace 5s <"$2/in" >"$2/out"
        mv "$2/out" "$2/answers"' "$0" "$1" "$2" & )
    until [ -e "$2/answers" ]; do sleep 0.05; done
    cat "$2/answers"
"#;

/// A daemon with spying tools in this tier; `None` if the tier is unavailable.
fn start(tier: &str) -> Option<Daemon> {
    let home = Home::new();
    let tried = home.command(&["stdio"]).env("CEASED_CONTAINMENT", tier).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("SKIPPED: no {tier} here");
        return None;
    }
    let tool = |name: &str, script: &str| {
        format!(
            "[[tool]]\nname = {name:?}\nrun_as = \"daemon\"\nmax_output = \"1MiB\"\n\
             command = [\"sh\", \"-c\", '''{script}''', {:?}, {:?}, {:?}]\n",
            ceased(),
            home.socket(),
            home.path()
        )
    };
    let hang = "[[tool]]\nname = \"hang\"\nrun_as = \"daemon\"\n\
                command = [\"sh\", \"-c\", \"echo 1/1 >&3; exec sleep 600\"]\n";
    home.configure_as(&format!(
        "[log]\naudit = \"{0}/audit.jsonl\"\n[[listen]]\ntransport = \"unix\"\npath = {1:?}\n\
         [[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\nanonymous = \"allow\"\n\
         {hang}{2}{3}",
        home.path().display(),
        home.socket(),
        tool("spy", DIRECTLY),
        tool("orphan", AS_AN_ORPHAN),
    ));
    fs::write(home.path().join("in"), spying()).expect("the home is ours");
    let mut command = home.command(&["serve"]);
    command.env("CEASED_CONTAINMENT", tier);
    Some(Daemon::start_with(home, command))
}

fn audited(daemon: &Daemon, is: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    wait_until("an audit record", || {
        let text = fs::read_to_string(daemon.home.path().join("audit.jsonl")).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut records =
            whole.lines().map(|line| serde_json::from_str::<Value>(line).expect(line));
        found = records.find(|record| is(record));
        found.is_some()
    });
    found.expect("the wait has found it")
}

/// TSK-39: a tool that connects to the daemon's socket with the daemon's own uid acts as its
/// requestor, and sees and cancels no job of the operator. In every tier; an orphan too if the tier
/// tracks orphans.
#[test]
fn tool_on_the_socket_is_its_requestor_and_no_operator() {
    for (tier, tools) in
        [("cgroup", &["spy", "orphan"][..]), ("guard", &["spy", "orphan"]), ("groups", &["spy"])]
    {
        let Some(daemon) = start(tier) else { continue };
        let mut operator = daemon.peer();
        let victim = operator.call("hang", "{}");
        operator.wait_started(&[victim]);
        for tool in tools {
            let mut stranger = daemon.tcp_peer();
            let call = stranger.call(tool, "{}");
            let text = stranger.text(call);
            let answers: Vec<Value> =
                text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
            let answer = |id: u64| answers.iter().find(|answer| answer["id"] == id).expect(&text);
            let status = &answer(2)["result"];
            assert_eq!(status["identity"], "anonymous", "{tier} {tool}: {text}");
            assert_eq!(status["operator"], false, "{tier} {tool}: {text}");
            let jobs = status["jobs"].to_string();
            assert!(!jobs.contains("hang"), "{tier} {tool} sees {jobs}");
            assert!(answer(3)["error"].is_object(), "{tier} {tool}: {text}");
            let of_job = |record: &Value| record["event"] == "connect" && record["job"].is_u64();
            assert_eq!(audited(&daemon, of_job)["identity"], "anonymous");
        }
        // Outside of jobs nothing changes, also while another identity's job runs.
        let mut stranger = daemon.tcp_peer();
        let theirs = stranger.call("hang", "{}");
        stranger.wait_started(&[theirs]);
        assert_eq!(daemon.status()["operator"], true, "{tier}");
        assert!(!operator.has_answer(victim), "{tier}: the call was cancelled");
        operator.cancel(victim);
        stranger.cancel(theirs);
    }
}

/// SEC-05: a tool called by the operator acts as the operator's user, and is no operator.
#[test]
fn tool_of_the_operator_on_the_socket_is_no_operator() {
    let Some(daemon) = start("guard") else { return };
    let mut stranger = daemon.tcp_peer();
    let theirs = stranger.call("hang", "{}");
    stranger.wait_started(&[theirs]);
    let mut operator = daemon.peer();
    let call = operator.call("spy", "{}");
    let text = operator.text(call);
    assert!(text.contains("\"operator\":false"), "{text}");
    let own = format!("\"identity\":\"uid:{}\"", rustix::process::getuid().as_raw());
    assert!(text.contains(&own), "{text}");
    stranger.cancel(theirs);
}

/// TSK-39, TSK-41: a process that exited before its check might have been part of a job, and its
/// connection may have passed to another process: it is refused while others' jobs run, and served
/// otherwise.
#[test]
fn process_that_has_ended_is_no_operator_while_others_jobs_run() {
    let Some(daemon) = start("guard") else { return };
    let refused = |record: &Value| {
        record["event"] == "refuse"
            && record["reason"].as_str().is_some_and(|why| why.contains("it has ended"))
    };
    let connect_and_end = || {
        daemon.signal(Signal::STOP);
        let mut command = daemon.home.command(&["connect", "--eof-grace", "0s", "--socket"]);
        command.arg(daemon.socket()).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(spying().as_bytes()).expect("it reads");
        drop(stdin);
        child.wait().expect("it ends");
        daemon.signal(Signal::CONT);
    };
    connect_and_end();
    audited(&daemon, |record| record["event"] == "connect");
    let mut stranger = daemon.tcp_peer();
    let theirs = stranger.call("hang", "{}");
    stranger.wait_started(&[theirs]);
    connect_and_end();
    let record = audited(&daemon, refused);
    assert_eq!(record["identity"], format!("uid:{}", rustix::process::getuid().as_raw()));
    stranger.cancel(theirs);
}
