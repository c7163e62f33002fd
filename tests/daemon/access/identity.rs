//! Processes inside jobs, servers and agents on the daemon's socket: each is its own user or the
//! requestor, and never an operator (SEC-05).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ceased_tests::daemon::http::Http;
use ceased_tests::daemon::{Daemon, Home, Peer, Signal, carriers, marker, wait_until};
use ceased_tests::turns::Turns;
use serde_json::{Value, json};

use super::kit::{is_root, peer_as};

/// Users with an account and without rights.
const BIN: u32 = 2;
const GAMES: u32 = 5;

/// Each test starts Python many times.
static TURNS: Turns = Turns::new(1);

/// A daemon whose tools, server and agent connect to its socket.
struct Stage {
    daemon: Daemon,
    tier: &'static str,
    dir: PathBuf,
    /// The command that connects as a tool.
    command: Vec<String>,
    /// Mark of a job of root, and of the processes that connect.
    victim_mark: String,
    mark: String,
}

/// The result of a process that connected.
struct Seen {
    what: String,
    answers: Value,
}

impl Stage {
    /// A daemon of root, or of the user that a command starts; `None` if the tier is not available.
    fn start(tier: &'static str, serve: impl FnOnce(&Home) -> Command) -> Option<Self> {
        let home = Home::new();
        let tried = home.command(&["stdio"]).env("CEASED_CONTAINMENT", tier).output();
        if !tried.is_ok_and(|tried| tried.status.success()) {
            eprintln!("SKIPPED: no {tier} here");
            return None;
        }
        let (dir, script) = (home.path().join("spy"), home.path().join("spy.py"));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(&script, include_str!("spy.py")).unwrap();
        let (victim_mark, mark) = (marker(), marker());
        let (script, place) = (script.to_str().unwrap(), dir.to_str().unwrap());
        let socket = home.socket().display().to_string();
        let argv = |role: &str| {
            let argv = ["python3", "-S", script, role, place, &*socket, &*mark];
            argv.map(str::to_owned).to_vec()
        };
        let command = |role: &str| format!("command = {:?}", argv(role));
        let tool = |name: &str, run_as: &str| {
            format!("[[tool]]\nname = {name:?}\nrun_as = {run_as:?}\n{}\n", command("tool"))
        };
        let served = |kind: &str, name: &str, more: &str| {
            let role = kind.to_owned();
            format!("[[{kind}]]\nname = {name:?}\n{}\n{more}\n", command(&role))
        };
        home.configure_as(&format!(
            "[daemon]\nallow_run = true\noperators = [\"user:games\"]\n\
             [[listen]]\ntransport = \"unix\"\npath = \"{0}\"\nmode = \"0666\"\n\
             [[listen]]\ntransport = \"http\"\npath = \"{0}.http\"\nmode = \"0666\"\n\
             [[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\n\
             [[tool]]\nname = \"as_peer\"\nrun_as = \"peer\"\ncommand = [\"id\", \"-u\"]\n\
             [[tool]]\nname = \"hang\"\nrun_as = \"daemon\"\n\
             command = [\"sh\", \"-c\", \"echo 1/1 >&3; exec sleep {victim_mark}\"]\n{1}",
            home.socket().display(),
            [
                tool("daemon", "daemon"),
                tool("peer", "peer"),
                tool("games", "games"),
                tool("isolated", "daemon") + "isolation = \"pid\"\n",
                served("server", "server", "run_as = \"daemon\"\nshare = \"connection\""),
                served("server", "user", "run_as = \"daemon\"\nshare = \"identity\""),
                served("server", "shared", "run_as = \"daemon\"\nshare = \"call\""),
                served("server", "own", "run_as = \"peer\"\nshare = \"connection\""),
                served("agent", "agent", "run_as = \"daemon\""),
            ]
            .concat(),
        ));
        let mut command = serve(&home);
        command.env("CEASED_CONTAINMENT", tier);
        let (run, daemon) = (argv("tool"), Daemon::start_with(home, command));
        Some(Self { daemon, tier, dir, command: run, victim_mark, mark })
    }

    /// A long call of `uid`; returns its peer and the number of its job.
    fn victim(&self, uid: u32) -> (Peer, u64) {
        let mut peer = peer_as(&self.daemon.home, uid);
        let call = peer.call("hang", "{}");
        peer.wait_started(&[call]);
        let jobs = peer.result("ceased/status", "{}")["jobs"].take();
        let job = jobs.as_array().unwrap().iter().find(|job| job["tool"] == "hang").unwrap();
        let number = job["job"].as_u64().unwrap();
        (peer, number)
    }

    /// A process of the victim: that of a job which has started shows its mark once it runs its program.
    fn victim_process(&self) -> i32 {
        let mut found = Vec::new();
        wait_until("the victim runs", || {
            found = carriers(&self.victim_mark);
            !found.is_empty()
        });
        found[0].0
    }

    /// Writes the order of the next process.
    fn order(&self, how: &str, victim: Option<u64>, more: &Value) {
        for name in ["answers", "ready", "go", "gone"] {
            let _ = fs::remove_file(self.dir.join(name));
        }
        let mut order = json!({"how": how, "victim": victim});
        for (name, value) in more.as_object().into_iter().flatten() {
            order[name] = value.clone();
        }
        fs::write(self.dir.join("order"), order.to_string()).unwrap();
    }

    /// Lets a process that has to be gone connect while the daemon is stopped.
    fn let_go(&self) {
        wait_until("the process is ready", || self.dir.join("ready").exists());
        self.daemon.signal(Signal::STOP);
        fs::write(self.dir.join("go"), "").unwrap();
        wait_until("the process is gone", || self.dir.join("gone").exists());
        self.daemon.signal(Signal::CONT);
    }

    /// The answers that a process inside a call of `uid` gets.
    fn spy(&self, uid: u32, of: &str, how: &str, victim: u64, more: &Value) -> Seen {
        // The requestor of the victim may cancel it.
        self.order(how, Some(victim).filter(|_| uid != 0), more);
        let mut agent = None;
        let mut peer = None;
        if of == "agent" {
            let mut command = self.daemon.home.command(&["connect", "--agent", "agent"]);
            command.arg("--socket").arg(self.daemon.home.socket());
            command.env_remove("CEASED_CONFIG").uid(uid).gid(uid);
            let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
            let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}"#;
            std::io::Write::write_all(child.stdin.as_mut().unwrap(), hello.as_bytes()).unwrap();
            std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"\n").unwrap();
            agent = Some(child);
        } else {
            let mut caller = peer_as(&self.daemon.home, uid);
            match of {
                "ceased/run" => caller.request(of, &json!({"command": self.command}).to_string()),
                _ => caller.call(of, "{}"),
            };
            peer = Some(caller);
        }
        if how == "gone" {
            self.let_go();
        }
        let answers = self.dir.join("answers");
        wait_until("the process has its answers", || answers.exists());
        let answers = serde_json::from_str(&fs::read_to_string(answers).unwrap()).unwrap();
        if let Some(mut agent) = agent {
            drop(agent.stdin.take());
            agent.wait().unwrap();
        }
        drop(peer);
        assert!(!carriers(&self.victim_mark).is_empty(), "the victim runs");
        let connects = |(_, args): &(i32, String)| args.contains("spy.py spy");
        wait_until("the process is gone", || !carriers(&self.mark).iter().any(connects));
        let what = format!("{} of uid {uid} in {}, {how} {more}: {answers}", of, self.tier);
        Seen { what, answers }
    }
}

impl Stage {
    /// The first status on the stream of a link of the view.
    fn view(&self, url: &str) -> Value {
        let (_, code) = url.split_once('#').unwrap();
        let mut http = Http::tcp(self.daemon.http_address());
        let code = format!("Bearer {code}");
        let headers = [
            ("accept", "text/event-stream"),
            ("authorization", &*code),
            ("sec-fetch-site", "same-origin"),
        ];
        http.request("GET /events", &headers, "");
        assert_eq!(http.head().status, 200);
        http.message()["result"].take()
    }
}

impl Seen {
    /// The peer was refused, with a reason.
    fn is_refused(&self, because: &str) {
        let refused = self.answers["refused"].to_string();
        assert!(refused.contains("-31011") && refused.contains(because), "{}", self.what);
    }

    /// The peer is this user and no operator, and runs commands as that user alone.
    fn is_user(&self, uid: u32, runs: bool) {
        let (seen, what) = (&self.answers, &self.what);
        assert_eq!(seen["identity"], format!("uid:{uid}"), "{what}");
        assert_eq!(seen["operator"], false, "{what}");
        assert_eq!(seen["view"]["result"]["identity"], format!("uid:{uid}"), "{what}");
        for answer in seen["orders"].as_array().unwrap() {
            assert_eq!(answer["error"]["code"], -31011, "{what}");
        }
        assert!(seen["cancel"].is_null() || seen["cancel"]["error"].is_object(), "{what}");
        for (name, ran) in [("peer", &seen["peer"]), ("run", &seen["run"])] {
            match runs {
                true => assert_eq!(*ran, format!("{uid}\n"), "{name}: {what}"),
                false => assert!(ran.to_string().contains("not run"), "{name}: {what}"),
            }
        }
    }
}

/// SEC-05: with a daemon of root, however the process connects and whatever it forges. The callers
/// are root and an ordinary user; the processes are of root, of the caller and of a third user.
#[test]
fn process_inside_a_job_is_its_requestor_or_its_own_user() {
    if !is_root() {
        return;
    }
    let _turn = TURNS.take();
    for tier in ["cgroup", "guard"] {
        let Some(stage) = Stage::start(tier, |home| home.command(&["serve"])) else { continue };
        let (_root, victim) = stage.victim(0);
        let forged = json!({"job": victim});
        let ways = [
            ("direct", json!({})),
            ("orphan", json!({})),
            ("orphan", forged),
            ("gone", json!({})),
            ("orphan", json!({"job": victim, "http": true})),
        ];
        for (how, more) in &ways {
            let is_gone = *how == "gone";
            for caller in [0, BIN] {
                // Processes of the daemon's user.
                for of in ["daemon", "server_spy", "user_spy", "agent"] {
                    let seen = stage.spy(caller, of, how, victim, more);
                    assert_eq!(seen.answers["uid"], 0, "{}", seen.what);
                    match is_gone {
                        true => seen.is_refused("has ended"),
                        false => seen.is_user(caller, true),
                    }
                }
                // Processes of another user.
                stage.spy(caller, "games", how, victim, more).is_user(GAMES, true);
            }
            for of in ["peer", "own_spy"] {
                stage.spy(BIN, of, how, victim, more).is_user(BIN, true);
            }
        }
        // A process in a namespace of its own, and a command of the caller's own.
        for (how, caller) in [("direct", 0), ("direct", BIN), ("orphan", BIN)] {
            for of in ["isolated", "ceased/run"] {
                stage.spy(caller, of, how, victim, &json!({})).is_user(caller, true);
            }
        }
        // A link of the view has no more rights than the process that asked for it.
        let seen = stage.spy(0, "daemon", "direct", victim, &json!({}));
        let status = stage.view(seen.answers["view"]["result"]["url"].as_str().unwrap());
        assert_eq!((&status["identity"], &status["operator"]), (&json!("uid:0"), &json!(false)));
        // A server that serves all has no requestor.
        let seen = stage.spy(BIN, "shared_spy", "direct", victim, &json!({}));
        seen.is_refused("serves no single identity");
        // Outside of jobs nothing changes.
        assert_eq!(stage.daemon.status()["operator"], true, "{tier}");
        let games = peer_as(&stage.daemon.home, GAMES).result("ceased/status", "{}");
        assert_eq!(games["operator"], true, "{tier}: games is an operator by the configuration");
    }
}

/// `cgroup.procs` of the group of a process.
fn procs_of(pid: i32) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).unwrap();
    let shown = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let path = shown.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
    PathBuf::from(mount.split(' ').nth(1).unwrap()).join(path).join("cgroup.procs")
}

/// SEC-05: a process that joins the control group of another user's job does not become that user,
/// and neither does a process outside of jobs that is moved there.
#[test]
fn joined_group_gives_no_identity() {
    if !is_root() {
        return;
    }
    let _turn = TURNS.take();
    let Some(stage) = Stage::start("cgroup", |home| home.command(&["serve"])) else { return };
    let (_root, victim) = stage.victim(0);
    let pid = stage.victim_process();
    for how in ["direct", "orphan"] {
        let more = json!({"group": procs_of(pid), "job": victim});
        let seen = stage.spy(BIN, "daemon", how, victim, &more);
        assert_eq!(seen.answers["uid"], 0, "{}", seen.what);
        seen.is_refused("moved between control groups");
    }
    // Over HTTP as well. The group proves nothing any more, and descent does.
    let more = json!({"group": procs_of(pid), "http": true});
    stage.spy(BIN, "daemon", "orphan", victim, &more).is_refused("moved between control groups");
    stage.spy(BIN, "daemon", "direct", victim, &json!({})).is_user(BIN, true);
}

/// A control group that an ordinary user may divide.
struct Delegated(PathBuf);

impl Delegated {
    fn make(uid: u32) -> Option<Self> {
        let own = procs_of(std::process::id().cast_signed());
        let path = own.parent()?.join(format!("ordinary-{uid}"));
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        for path in [group.0.clone(), group.0.join("cgroup.procs")] {
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).ok()?;
        }
        Some(group)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        wait_until("the delegated group is empty", || fs::remove_dir(&self.0).is_ok());
    }
}

/// SEC-05: with a daemon of an ordinary user, in a delegated group and with guards. Its processes are
/// all of that user, and of its callers one is root.
#[test]
fn process_of_an_ordinary_daemon_is_its_requestor() {
    const OWNER: u32 = 231_848;
    if !is_root() {
        return;
    }
    let _turn = TURNS.take();
    for tier in ["cgroup", "guard"] {
        let mut group = None;
        let stage = Stage::start(tier, |home| {
            fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777)).unwrap();
            group = Delegated::make(OWNER);
            let procs = group.as_ref().map_or("/dev/null".into(), |it| it.0.join("cgroup.procs"));
            let line = format!(
                "echo $$ > {}; exec setpriv --reuid {OWNER} --regid {OWNER} --clear-groups \"$@\"",
                procs.display()
            );
            home.command_after(&line, &["serve"])
        });
        let Some(stage) = stage else { continue };
        let (_root, victim) = stage.victim(0);
        for (how, more) in
            [("direct", json!({})), ("orphan", json!({"job": victim})), ("gone", json!({}))]
        {
            for of in ["daemon", "server_spy", "user_spy", "agent"] {
                for caller in [0, BIN, OWNER] {
                    let seen = stage.spy(caller, of, how, victim, &more);
                    assert_eq!(seen.answers["uid"], OWNER, "{}", seen.what);
                    match how {
                        "gone" => seen.is_refused("has ended"),
                        _ => seen.is_user(caller, caller == OWNER),
                    }
                }
            }
        }
        if tier == "cgroup" {
            let pid = stage.victim_process();
            for how in ["direct", "orphan"] {
                let more = json!({"group": procs_of(pid), "job": victim});
                let seen = stage.spy(OWNER, "daemon", how, victim, &more);
                seen.is_refused("moved between control groups");
            }
        }
        drop(stage);
        drop(group);
    }
}
