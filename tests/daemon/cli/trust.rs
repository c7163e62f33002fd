//! A configuration that comes with a checkout decides nothing before its user trusts it, and a
//! daemon without tools says so.

use std::fs;
use std::path::Path;

use ceased_tests::daemon::{Config, Daemon, Home, Ran, Signal, wait_until};

use crate::user::User;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
"#;
const PWN: &str = "[[tool]]\nname = \"pwn\"\ncommand = [\"touch\", \"pwned\"]\n";
const OWN: &str = "[[tool]]\nname = \"own\"\nbuiltin = \"echo\"\n";

/// Tools offered to a host that starts `ceased stdio` in a directory.
fn stdio(user: &User, dir: &Path) -> Ran {
    user.say_in(dir, &["stdio"], HELLO)
}

#[test]
fn cloned_configuration_is_offered_after_its_user_trusts_it() {
    let Some(ann) = User::new() else { return };
    ann.file(".config/ceased/config.toml", OWN);
    let file = ann.file("clone/ceased.toml", PWN);
    ann.file("clone/config.toml", PWN);
    let clone = ann.home().join("clone");

    let ran = stdio(&ann, &clone);
    assert!(ran.out.contains("\"own\"") && !ran.out.contains("pwn"), "{ran:?}");
    assert!(ran.err.contains("is not trusted") && ran.err.contains("`ceased trust "), "{ran:?}");
    let ran = ann.run_in(&clone, &["check"]);
    assert!(ran.err.contains("is not trusted") && !ran.out.contains("pwn"), "{ran:?}");

    let ran = ann.run_in(&clone, &["trust"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("pwn") && ran.out.contains("touch"), "what it runs is shown: {ran:?}");
    let ran = stdio(&ann, &clone);
    assert!(ran.out.contains("\"pwn\"") && !ran.out.contains("\"own\""), "{ran:?}");
    assert!(ann.run_in(&clone, &["check"]).out.contains("tool pwn"));
    let ran = ann.run(&["trust", "--list"]);
    assert!(ran.out.contains("trusted") && ran.out.contains("clone/ceased.toml"), "{ran:?}");

    // Pulled anew, with one more byte.
    fs::write(&file, format!("{PWN}\n")).unwrap();
    let ran = stdio(&ann, &clone);
    assert!(ran.err.contains("has changed since it was trusted"), "{ran:?}");
    assert!(!ran.out.contains("pwn"), "{ran:?}");
    assert!(ann.run(&["trust", "--list"]).out.contains("changed"));

    assert_eq!(ann.run_in(&clone, &["trust"]).code, Some(0));
    assert!(stdio(&ann, &clone).out.contains("\"pwn\""));
    let ran = ann.run(&["trust", "--revoke", "clone"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!stdio(&ann, &clone).out.contains("pwn"));
    assert_eq!(ann.run(&["trust", "--revoke", "clone"]).code, Some(1));
}

#[test]
fn shared_daemon_never_takes_the_configuration_of_a_project() {
    let Some(ann) = User::new() else { return };
    ann.file("clone/ceased.toml", PWN);
    let clone = ann.home().join("clone");
    assert_eq!(ann.run_in(&clone, &["trust"]).code, Some(0));
    let ran = ann.say_in(&clone, &["connect", "--spawn", "--eof-grace", "30s"], HELLO);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("\"tools\":[]"), "{ran:?}");
    let log = ann.home().join(".local/state/ceased/run/ceased.sock.log");
    let log = fs::read_to_string(log).unwrap();
    let place = ann.home().join(".config/ceased/config.toml");
    assert!(log.contains(&format!("create one at {}", place.display())), "{log}");
    assert!(ran.err.contains("ceased init"), "{ran:?}");
    let ran = ann.run_in(&clone, &["tools"]);
    assert!(ran.err.contains("ceased init"), "{ran:?}");
}

#[test]
fn file_of_another_user_cannot_be_trusted() {
    let (Some(ann), Some(bob)) = (User::new(), User::new()) else { return };
    let file = ann.file("clone/ceased.toml", PWN);
    let clone = ann.home().join("clone");
    let ran = bob.run_in(&clone, &["trust"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains(&format!("belongs to uid {}", ann.uid)), "{ran:?}");
    let ran = stdio(&bob, &clone);
    assert!(!ran.out.contains("pwn") && ran.err.contains("belongs to uid"), "{ran:?}");
    // A link in a directory of one's own leads to the same file.
    std::os::unix::fs::symlink(file, bob.home().join("ceased.toml")).unwrap();
    let ran = stdio(&bob, bob.home());
    assert!(!ran.out.contains("pwn") && ran.err.contains("belongs to uid"), "{ran:?}");
}

#[test]
fn configuration_that_appears_is_read_at_sighup() {
    let home = Home::new();
    let mut command = home.command(&["serve"]);
    let (config, socket) = (home.path().join("config"), home.socket());
    command.env("XDG_CONFIG_HOME", &config).env("XDG_RUNTIME_DIR", home.path());
    let file = config.join("ceased/config.toml");
    let daemon = ceased_tests::daemon::Program::start(&home, command);
    wait_until("it says that it has no tools", || daemon.err().contains("create one at"));
    assert!(daemon.err().contains(&file.display().to_string()), "{}", daemon.err());
    daemon.signal(Signal::HUP);
    wait_until("it says why nothing is reloaded", || {
        daemon.err().contains("not reloaded") && daemon.err().contains("no configuration file")
    });
    fs::create_dir_all(config.join("ceased")).unwrap();
    fs::write(&file, format!("[[listen]]\ntransport = \"unix\"\npath = {socket:?}\n{OWN}"))
        .unwrap();
    daemon.signal(Signal::HUP);
    // The file of the socket is there before the daemon listens.
    wait_until("it listens as the file says", || daemon.err().contains("listening on unix:"));
    let ran = home.run(&["tools", "--socket", &socket.to_string_lossy()]);
    assert!(ran.out.contains("own"), "{ran:?}");
}

#[test]
fn daemon_with_tools_says_nothing_about_them() {
    let daemon = Daemon::start(&Config::default());
    assert!(!daemon.home.log().contains("ceased init"), "{}", daemon.home.log());
}
