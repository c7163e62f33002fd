//! Daemons that cannot start: their errors, exit codes and absence of leftovers; and the errors of
//! `check` for the same configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ceased_tests::daemon::{
    Config, Daemon, Home, Program, Ran, wait_until, wait_until_no_group_of,
};

/// A home with these further tables.
fn home(tables: &str) -> Home {
    let home = Home::new();
    home.configure(&Config { tools: tables, ..Config::default() });
    home
}

/// Runs a command that must exit with 2 and leave no control group, which the next daemon would
/// take for one of a killed daemon.
fn refused(home: &Home, args: &[&str], tier: Option<&str>) -> Ran {
    let mut command = home.command(args);
    command.env("CEASED_CONTAINMENT", tier.unwrap_or_default());
    let program = Program::start(home, command);
    let pid = program.pid();
    let ran = program.wait();
    assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
    assert!(ran.out.is_empty(), "{ran:?}");
    wait_until_no_group_of(pid);
    ran
}

/// The line of the output that is no log record.
fn complaint(ran: &Ran) -> String {
    let said: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("ceased: ")).collect();
    assert_eq!(said.len(), 1, "{ran:?}");
    said.concat()
}

/// An unwritable audit log is a configuration error, reported by `check` too.
#[test]
fn unwritable_audit_log_is_reported_by_check() {
    let home = home("[log]\naudit = \"nowhere/a.jsonl\"\n");
    let path = home.path().join("nowhere/a.jsonl");
    let said = complaint(&refused(&home, &["serve"], None));
    assert!(said.contains(&format!("cannot open the audit log {}", path.display())), "{said}");
    assert!(said.contains("No such file") && said.contains("`audit` in [log]"), "{said}");
    for args in [&["stdio"][..], &["call", "echo", "text=x"], &["check"]] {
        assert_eq!(complaint(&refused(&home, args, None)), said, "{args:?}");
    }

    // A directory or link is refused; a regular or missing file is accepted.
    fs::create_dir_all(&path).expect("the home is ours");
    for args in ["serve", "check"] {
        let said = complaint(&refused(&home, &[args], None));
        assert!(said.contains("a.jsonl: Is a directory"), "{said}");
    }
    fs::remove_dir(&path).expect("the directory is empty");
    assert_eq!(home.run(&["check"]).code, Some(0));
    assert!(!path.exists(), "a check creates no file");
    fs::write(&path, "before\n").expect("the file is ours");
    assert_eq!(home.run(&["check"]).code, Some(0));
    assert_eq!(fs::read_to_string(&path).expect("the file exists"), "before\n");
    let link = home.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("the link is ours");
    home.configure_as(&home.config_text().replace("nowhere/a.jsonl", "link"));
    let said = complaint(&refused(&home, &["serve"], None));
    assert_eq!(complaint(&refused(&home, &["check"], None)), said);
}

/// A recording overwrites no file, and the error names the option.
#[test]
fn impossible_recording_is_refused() {
    let home = home("");
    let there = home.path().join("recording");
    fs::write(&there, "precious").expect("the file is ours");
    let nowhere = home.path().join("nowhere/recording");
    for (path, why) in [(&there, "File exists"), (&nowhere, "No such file")] {
        let path = path.to_str().expect("a path of letters");
        for command in ["serve", "stdio"] {
            let said = complaint(&refused(&home, &[command, "--record", path], None));
            assert!(said.contains(&format!("{path} (--record): {why}")), "{said}");
        }
    }
    assert_eq!(fs::read_to_string(&there).expect("the file exists"), "precious");
}

/// A start that fails after creating its recording removes the file, because an empty file would
/// block the next start with the same option.
#[test]
fn failed_start_leaves_no_recording() {
    let home = home("");
    home.configure_as(&home.config_text().replace("d.sock", "config.toml/d.sock"));
    let path = home.path().join("recording");
    let path = path.to_str().expect("a path of letters");
    for _ in 0..2 {
        let said = complaint(&refused(&home, &["serve", "--record", path], None));
        assert!(said.contains("Not a directory"), "{said}");
        assert!(!home.path().join("recording").exists());
    }
}

/// A failed start removes its control group, in every way of getting one.
#[test]
fn failed_start_leaves_no_control_group() {
    let home = home("");
    let path = home.path().join("recording");
    fs::write(&path, "").expect("the file is ours");
    let path = path.to_str().expect("a path of letters");
    for tier in [None, Some("cgroup")] {
        refused(&home, &["serve", "--record", path], tier);
    }
    fs::remove_file(path).expect("ours");
    home.configure_as(&home.config_text().replace("d.sock", "config.toml/d.sock"));
    refused(&home, &["serve"], None);
}

/// A token file accepted by `check` is accepted by `serve`.
#[test]
fn missing_token_file_is_reported_by_check() {
    let listen = "[[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\n\
                  token_file = \"tokens\"\n";
    let home = home(listen);
    let said = complaint(&refused(&home, &["serve"], None));
    assert!(said.contains("tokens") && said.contains("No such file"), "{said}");
    assert_eq!(complaint(&refused(&home, &["check"], None)), said);
    // All mistakes are reported at once.
    let more = format!("{}\n[log]\naudit = \"nowhere/a\"\n", home.config_text());
    home.configure_as(&more);
    let ran = refused(&home, &["check"], None);
    assert_eq!(ran.err.lines().count(), 2, "{ran:?}");
    assert!(ran.err.contains(&said) && ran.err.contains("the audit log"), "{ran:?}");
}

/// A system limit that is too low for a daemon is named, with the setting that raises it.
#[test]
fn system_limits_that_are_too_low_are_named() {
    let home = home("");
    let few = home.command_after("ulimit -n 20", &["serve"]);
    let ran = Program::start(&home, few).wait();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = complaint(&ran);
    assert!(said.contains("Too many open files") && said.contains("LimitNOFILE="), "{said}");
    let Some(alone) = home.command_limited(0, 1, &["serve"]) else {
        eprintln!("SKIPPED: cannot become another user");
        return;
    };
    let ran = Program::start(&home, alone).wait();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = complaint(&ran);
    assert!(said.contains("TasksMax=") && !ran.err.contains("panicked"), "{ran:?}");
}

/// A user of the binary cannot change its `main`, so the warning names another remedy.
#[test]
fn missing_containment_is_a_warning() {
    let home = home("");
    let mut command = home.command(&["serve"]);
    command.env("CEASED_CONTAINMENT", "groups");
    let daemon = Daemon::start_with(home, command);
    // The daemon listens before its log is written.
    wait_until("the warning is logged", || daemon.home.log().contains("not fully contained"));
    let log = daemon.home.log();
    let said = log.lines().find(|line| line.contains("not fully contained"));
    let said = said.expect("the warning was logged");
    assert!(said.contains("leave CEASED_CONTAINMENT unset"), "{said}");
    assert!(!said.contains("main"), "{said}");
}

/// A missing program is a warning and no error, because it may be installed later.
#[test]
fn missing_programs_are_warnings() {
    let home = home(
        r#"
[[tool]]
name = "lost"
command = ["nosuchprog"]
[[tool]]
name = "far"
command = ["./nowhere/prog"]
[[tool]]
name = "plain"
command = ["./config.toml"]
[[tool]]
name = "elsewhere"
command = ["sh"]
env = { PATH = "/nonexistent" }
"#,
    );
    let ran = home.run(&["check"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("config.toml: ok"), "{ran:?}");
    let said: Vec<&str> = ran.err.lines().collect();
    assert_eq!(said.len(), 4, "{ran:?}");
    for (line, words) in said.iter().zip([
        ["\"lost\"", "\"nosuchprog\"", "not found in its PATH"],
        ["\"far\"", "nowhere/prog\"", "which does not exist"],
        ["\"plain\"", "config.toml\"", "not an executable file"],
        ["\"elsewhere\"", "\"sh\"", "/nonexistent"],
    ]) {
        assert!(line.starts_with("ceased: warning: the tool "), "{line}");
        assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
    }
}

/// SEC-02: every command that would run tools refuses a configuration that another user can write,
/// or in a directory that another user can write, and names the remedy.
#[test]
fn configuration_writable_by_another_user_is_refused() {
    let home = home("");
    let (file, dir) = (home.config_path(), home.path().to_owned());
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the file is ours");
    };
    let judged = |want: &[&str]| {
        for args in [&["serve"][..], &["stdio"], &["call", "echo", "text=x"], &["check"]] {
            let said = refused(&home, args, None).err;
            for want in want {
                assert!(said.contains(want), "{args:?}: {want} in {said}");
            }
        }
    };
    let (path, place) = (file.display().to_string(), dir.display().to_string());
    chmod(&file, 0o666);
    judged(&[&path, "mode 0666", &format!("chmod go-w {path}")]);
    chmod(&file, 0o644);
    chmod(&dir, 0o777);
    judged(&[&format!("the directory {place} "), "mode 0777", &format!("chmod go-w {place}")]);
    chmod(&dir, 0o700);
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Root accepts only files of root, whatever the mode; other users accept files of root too.
    std::os::unix::fs::chown(&file, Some(1), None).expect("root can change the owner");
    judged(&[&format!("{path} belongs to uid 1 (mode 0644)"), &format!("chown 0 {path}")]);
    std::os::unix::fs::chown(&file, Some(0), None).expect("root can");
    std::os::unix::fs::chown(&dir, Some(1), None).expect("root can");
    judged(&[&format!("the directory {place} belongs to uid 1")]);
    std::os::unix::fs::chown(&dir, Some(0), None).expect("root can");
    for (owner, mode, code) in [(0, 0o644, 0), (0, 0o666, 2), (2, 0o644, 2), (2, 0o666, 2)] {
        std::os::unix::fs::chown(&file, Some(owner), None).expect("root can");
        chmod(&file, mode);
        for args in [&["check"][..], &["call", "echo", "text=x"]] {
            let Some(command) = home.command_limited(1, 64, args) else { return };
            let ran = Program::start(&home, command).wait();
            // A call first tries the usual socket.
            assert_eq!(ran.code == Some(0), code == 0, "uid {owner}, mode {mode:o}: {ran:?}");
            let is_told = ran.err.contains("rejected the configuration");
            assert_eq!(is_told, code != 0, "uid {owner}, mode {mode:o}: {ran:?}");
        }
    }
}

/// SEC-02: the working directory is not searched for a configuration.
#[test]
fn configuration_in_the_working_directory_is_not_read() {
    let home = home("");
    let alone = |args: &[&str]| {
        let mut command = home.command(args);
        command.env_remove("CEASED_CONFIG").env("HOME", home.path());
        command
    };
    if Path::new("/etc/ceased/config.toml").exists() {
        eprintln!("SKIPPED: the system has a configuration");
        return;
    }
    let ran = Program::start(&home, alone(&["check"])).wait();
    assert!(ran.out.starts_with("no configuration file: the defaults"), "{ran:?}");
    let mut command = alone(&["call", "echo", "text=x"]);
    command.env("XDG_RUNTIME_DIR", home.path());
    let ran = Program::start(&home, command).wait();
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("no config to run the tool from"), "{ran:?}");
}

/// SEC-04: `check` refuses a tool whose callers could write code, and accepts the same input as an
/// argument of the code.
#[test]
fn input_in_code_is_refused_by_check() {
    let home = Home::new();
    let check = |command: &str, more: &str| {
        home.configure_as(&format!(
            "[[tool]]\nname = \"a\"\ncommand = {command}\n{more}\n[tool.input.v]\ntype = \"string\"\n"
        ));
        home.run(&["check"])
    };
    for command in [
        r#"["sh", "-c{v}"]"#,
        r#"["bash", "-ec", "echo {v}"]"#,
        r#"["python3", "-c{v}"]"#,
        r#"["env", "-S", "sh -c {v}"]"#,
        r#"["node", "-p", "{v}"]"#,
        r#"["node", "--eval={v}"]"#,
        r#"["php", "-r", "{v}"]"#,
        r#"["su", "-c", "{v}"]"#,
        r#"["script", "-qc", "{v}", "/dev/null"]"#,
        r#"["watch", "ls {v}"]"#,
        r#"["awk", "/{v}/"]"#,
        r#"["deno", "eval", "{v}"]"#,
        r#"["sudo", "-u", "bin", "timeout", "5", "perl", "-ne", "{v}"]"#,
    ] {
        let ran = check(command, "");
        assert_eq!(ran.code, Some(2), "{command}: {ran:?}");
        assert!(ran.err.contains("puts an argument into code") || ran.err.contains("an option of"));
    }
    assert_eq!(check(r#"["sh"]"#, "stdin = \"echo {v}\"").code, Some(2));
    for (command, warning) in [
        (r#"["sh", "-c", "echo \"$1\"", "sh", "{v}"]"#, false),
        (r#"["grep", "-c", "--", "{v}"]"#, false),
        (r#"["sh", "{v}"]"#, true),
        (r#"["sh", "--", "{v}"]"#, false),
    ] {
        let ran = check(command, "");
        assert_eq!(ran.code, Some(0), "{command}: {ran:?}");
        assert_eq!(ran.err.contains("as an option"), warning, "{command}: {ran:?}");
    }
}
