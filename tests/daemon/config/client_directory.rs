//! Tools that run in the directory of their client, below the roots, as the user that calls.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;

use ceased_tests::daemon::{Daemon, Home, Peer};
use serde_json::{Value, json};

use crate::user::User;

const TOOL: &str = "[[tool]]\nname = \"where\"\ncommand = [\"sh\", \"-c\", \"pwd; id -u\"]\n\
                    cwd = \"client\"\ntask_support = \"optional\"\n";

/// A user whose daemon has the tool and runs, started in its home.
fn user() -> Option<User> {
    let ann = User::new()?;
    ann.file(".config/ceased/config.toml", TOOL);
    let ran = ann.run(&["connect", "--spawn"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    Some(ann)
}

fn shows(text: &str, dir: &Path, uid: u32) -> bool {
    let lines: Vec<&str> = text.lines().collect();
    lines.windows(2).any(|pair| pair == [&*dir.to_string_lossy(), &*uid.to_string()])
}

#[test]
fn tool_of_the_shared_daemon_runs_where_its_caller_is() {
    let Some(ann) = user() else { return };
    for name in ["src/one", "src/two"] {
        let dir = ann.dir(name);
        let ran = ann.run_in(&dir, &["call", "where"]);
        assert!(ran.code == Some(0) && shows(&ran.out, &dir, ann.uid), "{ran:?}");
    }
    let ran = ann.run(&["call", "where"]);
    assert!(shows(&ran.out, ann.home(), ann.uid), "{ran:?}");
    // A task whose caller leaves at once.
    let dir = ann.dir("src/three");
    let ran = ann.run_in(&dir, &["call", "where", "--detach"]);
    let ran = ann.run(&["result", ran.out.trim()]);
    assert!(shows(&ran.out, &dir, ann.uid), "{ran:?}");
}

#[test]
fn bridge_and_a_server_of_its_own_have_the_directory_they_started_in() {
    let Some(ann) = user() else { return };
    let dir = ann.dir("src/one");
    let lines = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"where","arguments":{}}}"#,
        "\n"
    );
    let config = ann.home().join(".config/ceased/config.toml");
    let config = config.to_string_lossy();
    fs::write(&*config, format!("[daemon]\neof_grace = \"30s\"\n{TOOL}")).unwrap();
    for args in [&["connect", "--eof-grace", "30s"][..], &["stdio"]] {
        let ran = ann.say_in(&dir, args, lines);
        let answers = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let answer = answers.into_iter().find(|answer| answer["id"] == 2);
        let answer = answer.unwrap_or_else(|| panic!("{args:?}: {ran:?}"));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(shows(text, &dir, ann.uid), "{args:?}: {answer}");
    }
}

/// SEC-03: a client chooses no directory outside of the roots, whatever links lead there.
#[test]
fn directory_outside_of_the_roots_runs_nothing() {
    let Some(ann) = user() else { return };
    symlink("/usr", ann.home().join("link")).unwrap();
    for dir in [Path::new("/"), Path::new("/usr"), &ann.home().join("link")] {
        let ran = ann.run_in(dir, &["call", "where"]);
        assert_eq!(ran.code, Some(1), "{dir:?}: {ran:?}");
        let said = format!("{}{}", ran.out, ran.err);
        assert!(said.contains("is not below") && said.contains("`roots`"), "{said}");
    }
}

#[test]
fn first_root_of_a_client_comes_before_the_directory_of_its_process() {
    let home = Home::new();
    let (one, two) = (home.path().join("one"), home.path().join("two"));
    for dir in [&one, &two] {
        fs::create_dir(dir).unwrap();
    }
    symlink("/usr", one.join("out")).unwrap();
    let roots = format!("[daemon]\nroots = [{:?}]\n", home.path());
    let socket = home.socket();
    let listen = format!("[[listen]]\ntransport = \"unix\"\npath = {socket:?}\n");
    home.configure_as(&format!("{roots}{listen}{TOOL}"));
    let command = home.command(&["serve"]);
    let daemon = Daemon::start_with(home, command);
    let mut peer = Peer::of_socket(UnixStream::connect(daemon.socket()).unwrap().into());
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "t", "version": "1"},
    });
    peer.result("initialize", &params.to_string());
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let mut call = |root: &str| {
        let call = peer.call("where", "{}");
        let question = std::iter::from_fn(|| peer.message())
            .find(|message| message["method"] == "roots/list")
            .expect("the roots are asked for");
        let answer = json!({
            "jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": root}]},
        });
        peer.send(&answer.to_string());
        peer.answer(call).to_string()
    };
    for dir in [&one, &two] {
        let said = call(&format!("file://{}", dir.display()));
        assert!(said.contains(&format!("{}\\n", dir.display())), "{said}");
    }
    let said = call("file:///usr");
    assert!(said.contains("is not below"), "{said}");
    let said = call(&format!("file://{}/out", one.display()));
    assert!(said.contains("cannot enter the working directory"), "{said}");
}

/// The daemon of root, and a user of this machine.
#[test]
fn root_runs_a_tool_in_the_directory_of_its_caller_as_the_caller() {
    if User::root().is_none() {
        return;
    }
    let home = Home::new();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = home.path().join("project");
    fs::create_dir(&dir).unwrap();
    let daemon_user = 1;
    chown(&dir, Some(daemon_user), Some(daemon_user)).unwrap();
    let socket = home.socket();
    home.configure_as(&format!(
        "[daemon]\nroots = [{:?}]\n[[listen]]\ntransport = \"unix\"\npath = {socket:?}\nmode = \"0666\"\n\
         {TOOL}run_as = \"peer\"\n{}",
        home.path(),
        TOOL.replace("where", "as-root"),
    ));
    let command = home.command(&["serve"]);
    let daemon = Daemon::start_with(home, command);
    let caller = User::with_uid(daemon_user);
    let socket = socket.to_string_lossy();
    let ran = caller.run_in(&dir, &["call", "where", "--socket", &socket]);
    assert!(ran.code == Some(0) && shows(&ran.out, &dir, daemon_user), "{ran:?}");
    // A directory that the caller may not enter, and a tool that would run there as root.
    let closed = daemon.home.path().join("closed");
    fs::create_dir(&closed).unwrap();
    let ran = caller.run_in(&dir, &["call", "as-root", "--socket", &socket]);
    let said = format!("{}{}", ran.out, ran.err);
    assert!(ran.code == Some(2) && said.contains("no tool"), "it is not offered: {ran:?}");
}
