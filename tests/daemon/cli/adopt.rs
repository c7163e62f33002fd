//! `ceased adopt` and `ceased import`: files of hosts on disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use ceased_tests::binary;
use ceased_tests::daemon::{Home, Program, Ran};
use ceased_tests::disk::SmallDisk;

const TEXT: &str = r#"{
  // Servers.
  "mcpServers": {
    "git": { "command": "uvx", "args": ["mcp-server-git"] },
    "docs": { "url": "https://example.org/mcp" },
  },
}
"#;

/// A home with a host's file.
struct Host(Home);

impl Host {
    fn new(text: &str) -> Self {
        let host = Self(Home::new());
        fs::write(host.file(), text).unwrap();
        host
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("mcp.json")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_on(&self.file(), args)
    }

    fn run_on(&self, file: &Path, args: &[&str]) -> Ran {
        let mut command = self.0.command(args);
        command.arg(file);
        Program::start(&self.0, command).wait()
    }
}

#[test]
fn adopt_shows_a_diff_writes_on_demand_and_takes_it_back() {
    let host = Host::new(TEXT);
    fs::set_permissions(host.file(), fs::Permissions::from_mode(0o640)).unwrap();
    let ran = host.run(&["adopt"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("-    \"git\": { \"command\": \"uvx\""), "{ran:?}");
    assert!(ran.err.contains("docs (line 5) is left as it is"), "{ran:?}");
    assert!(ran.err.contains("--write"), "{ran:?}");
    assert_eq!(host.read("mcp.json"), TEXT);
    assert!(!host.0.path().join("mcp.json.bak").exists());

    let ran = host.run(&["adopt", "--write"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let new = host.read("mcp.json");
    assert!(
        new.contains(r#"/ceased", "args": ["wrap", "--", "uvx", "mcp-server-git"] }"#),
        "{new}"
    );
    assert_eq!(host.read("mcp.json.bak"), TEXT);
    for name in ["mcp.json", "mcp.json.bak"] {
        let found = fs::metadata(host.0.path().join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, 0o640, "{name}");
    }
    let ran = host.run(&["adopt", "--write"]);
    assert!(ran.code == Some(0) && ran.err.contains("nothing to change"), "{ran:?}");

    let changed = new.replace("// Servers.", "// My servers.");
    fs::write(host.file(), &changed).unwrap();
    let ran = host.run(&["adopt", "--undo"]);
    assert!(ran.code == Some(0) && ran.err.contains("--undo --write"), "{ran:?}");
    assert!(ran.out.contains("+    \"git\": { \"command\": \"uvx\""), "{ran:?}");
    assert_eq!(host.read("mcp.json"), changed, "nothing is written without --write");
    let ran = host.run(&["adopt", "--undo", "--write"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(host.read("mcp.json"), TEXT.replace("// Servers.", "// My servers."));
    // An earlier copy is never overwritten.
    assert_eq!(host.read("mcp.json.bak"), TEXT);
    assert_eq!(host.read("mcp.json.bak.1"), changed);
    let left = fs::read_dir(host.0.path()).unwrap().flatten();
    assert!(!left.into_iter().any(|it| it.file_name().to_string_lossy().contains(".ceased-")));
}

#[test]
fn symbolic_link_stays_and_its_target_is_written() {
    let host = Host::new(TEXT);
    let link = host.0.path().join("link.json");
    symlink(host.file(), &link).unwrap();
    let ran = host.run_on(&link, &["adopt", "--write"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(host.read("mcp.json").contains("\"wrap\""));
    assert!(!fs::symlink_metadata(host.file()).unwrap().is_symlink());
}

#[test]
fn link_at_the_place_of_the_copy_is_not_followed() {
    let host = Host::new(TEXT);
    let victim = host.0.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, host.0.path().join("mcp.json.bak")).unwrap();
    let ran = host.run(&["adopt", "--write"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(host.read("victim"), "precious");
    assert_eq!(host.read("mcp.json.bak.1"), TEXT);
}

#[test]
fn files_that_cannot_be_used_are_refused_and_stay() {
    let host = Host::new(TEXT);
    fs::set_permissions(host.file(), fs::Permissions::from_mode(0o444)).unwrap();
    let ran = host.run(&["adopt", "--write"]);
    assert!(ran.code == Some(1) && ran.err.contains("chmod u+w"), "{ran:?}");
    assert_eq!(host.read("mcp.json"), TEXT);
    assert!(!host.0.path().join("mcp.json.bak").exists());

    for (text, why) in
        [(&b"{ \"mcpServers\": "[..], "not valid JSON"), (b"\xff", "UTF-8"), (b"{}", "no servers")]
    {
        fs::set_permissions(host.file(), fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(host.file(), text).unwrap();
        for command in [&["adopt", "--write"][..], &["adopt", "--undo"], &["import"]] {
            let ran = host.run(command);
            assert!(ran.code == Some(2) && ran.err.contains(why), "{ran:?}");
        }
        assert_eq!(fs::read(host.file()).unwrap(), text);
    }
    let file = fs::File::create(host.file()).unwrap();
    file.set_len(1 << 36).unwrap();
    let ran = host.run(&["adopt"]);
    assert!(ran.code == Some(2) && ran.err.contains("larger than"), "{ran:?}");
    let ran = host.run_on(host.0.path(), &["adopt"]);
    assert!(ran.code == Some(2) && ran.err.contains("no regular file"), "{ran:?}");
    let ran = host.run_on(&host.0.path().join("missing"), &["import"]);
    assert!(ran.code == Some(2) && ran.err.contains("cannot read"), "{ran:?}");
}

#[test]
fn file_of_another_user_is_not_written() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let host = Host::new(TEXT);
    std::os::unix::fs::chown(host.file(), Some(1234), None).unwrap();
    let ran = host.run(&["adopt", "--write"]);
    assert!(ran.code == Some(1) && ran.err.contains("uid 1234"), "{ran:?}");
    assert_eq!(host.read("mcp.json"), TEXT);
    // The owner may.
    fs::set_permissions(host.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = host.0.path().join("ceased");
    binary::write_program(&program, &fs::read(binary::ceased()).unwrap());
    let mut command = std::process::Command::new(program);
    command.uid(1234).arg("adopt").arg("--write").arg(host.file());
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert!(host.read("mcp.json").contains("\"wrap\""));
}

#[test]
fn import_prints_tables_and_warns_of_secrets() {
    let text = r#"{"servers": {"a": {"type": "stdio", "command": "x", "env": {"TOKEN": "s3cret"}},
                  "b": {"type": "http", "url": "https://example.org"}}}"#;
    let host = Host::new(text);
    let ran = host.run(&["import"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let read: toml::Table = ran.out.parse().unwrap();
    assert_eq!(read["server"][0]["env"]["TOKEN"].as_str(), Some("s3cret"));
    assert!(ran.err.contains("pass_env") && !ran.err.contains("s3cret"), "{ran:?}");
    assert_eq!(read["server"][1]["url"].as_str(), Some("https://example.org"));
}

/// A diff shows no value of a variable, neither in changed lines nor around them.
#[test]
fn diff_hides_values_of_variables() {
    let text = r#"{"servers": {"a": {"command": "x", "env": {"TOKEN": "s3cret"}},
        "b": {"command": "y",
            "env": {
                "TOKEN": "s3cret" } } } }"#;
    let host = Host::new(text);
    for options in [&["adopt"][..], &["adopt", "--shared"]] {
        let ran = host.run(options);
        assert!(ran.code == Some(0) && ran.out.contains("TOKEN"), "{ran:?}");
        assert!(!ran.out.contains("s3cret") && !ran.err.contains("s3cret"), "{ran:?}");
    }
    let ran = host.run(&["adopt", "--write"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(host.read("mcp.json").matches("s3cret").count(), 2);
}

/// `--shared` moves the servers into the daemon's configuration, and `--undo` gives the host its file
/// back.
#[test]
fn shared_servers_move_into_the_daemon() {
    let text = r#"{"mcpServers": {
        "git": { "command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "s3cret"} },
        "asks": { "command": "x", "args": ["${input:token}"] },
        "bare": { "command": "y" },
        "far": { "type": "http", "url": "https://example.org/mcp" } } }"#;
    let host = Host::new(text);
    let config = host.0.path().join("own.toml");
    host.0.configure_as("[[server]]\nname = \"bare\"\ncommand = [\"z\"]\n");
    fs::rename(host.0.config_path(), &config).unwrap();
    let options = ["adopt", "--shared", "--write", "--config", config.to_str().unwrap()];
    let ran = host.run(&options);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("asks (line 3) is left as it is"), "{ran:?}");
    assert!(!ran.out.contains("s3cret"), "{ran:?}");
    let read: toml::Table = host.read("own.toml").parse().unwrap();
    let names: Vec<_> =
        read["server"].as_array().unwrap().iter().map(|it| it["name"].as_str()).collect();
    assert_eq!(names, [Some("bare"), Some("git"), Some("bare-2"), Some("far")]);
    assert_eq!(read["server"][3]["url"].as_str(), Some("https://example.org/mcp"));
    assert!(ran.err.contains("far (line 5): the file has no credentials for it"), "{ran:?}");
    assert_eq!(read["server"][1]["env"]["TOKEN"].as_str(), Some("s3cret"));
    let new: serde_json::Value = serde_json::from_str(&host.read("mcp.json")).unwrap();
    let place = config.canonicalize().unwrap();
    let place = place.to_str().unwrap();
    let expected =
        ["connect", "--spawn", "--config", place, "--server", "git", "--", "uvx", "mcp-server-git"];
    assert_eq!(new["mcpServers"]["git"]["args"], serde_json::json!(expected));
    assert_eq!(new["mcpServers"]["bare"]["args"][5], "bare-2");
    assert_eq!(new["mcpServers"]["asks"]["command"], "x");
    let expected = ["connect", "--spawn", "--config", place, "--server", "far", "--", "--url"];
    let expected = [&expected[..], &["https://example.org/mcp", "http"]].concat();
    assert_eq!(new["mcpServers"]["far"]["args"], serde_json::json!(expected));
    let ran = host.run(&options);
    assert!(ran.code == Some(0) && ran.err.contains("nothing to change"), "{ran:?}");
    let ran = host.run(&["adopt", "--undo", "--write"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(host.read("mcp.json"), text);
}

/// Without a configuration one is made for its user alone, since it can hold secrets.
#[test]
fn shared_servers_make_a_configuration() {
    let host = Host::new(TEXT);
    let mut command = host.0.command(&["adopt", "--shared", "--write"]);
    let place = host.0.path().join("etc");
    command.arg(host.file()).env("XDG_CONFIG_HOME", &place);
    let ran = Program::start(&host.0, command).wait();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let path = place.join("ceased/config.toml");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&path).unwrap().contains("name = \"git\""));
    let mut check = host.0.command(&["check", "--config"]);
    check.arg(&path);
    let ran = Program::start(&host.0, check).wait();
    assert!(ran.code == Some(0) && ran.out.contains("server git"), "{ran:?}");
}

/// The daemon's configuration is as it was if the host's file cannot be written after it.
#[test]
fn shared_servers_are_moved_whole_or_not_at_all() {
    for old in [None, Some("[[server]]\nname = \"bare\"\ncommand = [\"z\"]\n")] {
        let host = Host::new(TEXT);
        // There is no longer name for the copy.
        let file = host.0.path().join(format!("{}.json", "x".repeat(250)));
        fs::copy(host.file(), &file).unwrap();
        let config = host.0.path().join("etc/ceased/config.toml");
        if let Some(old) = old {
            fs::create_dir_all(config.parent().unwrap()).unwrap();
            fs::write(&config, old).unwrap();
        }
        let mut command = host.0.command(&["adopt", "--shared", "--write"]);
        command.arg(&file).env("XDG_CONFIG_HOME", host.0.path().join("etc"));
        let ran = Program::start(&host.0, command).wait();
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("config.toml is as it was"), "{ran:?}");
        assert_eq!(fs::read_to_string(&config).ok().as_deref(), old);
        assert_eq!(fs::read_to_string(&file).unwrap(), TEXT);
    }
}

/// The output of `import` is a configuration.
#[test]
fn check_accepts_the_output_of_import() {
    let host = Host::new(TEXT);
    let ran = host.run(&["import"]);
    host.0.configure_as(&ran.out);
    let ran = Program::start(&host.0, host.0.command(&["check"])).wait();
    assert!(ran.code == Some(0) && ran.out.contains("server git"), "{ran:?}");
}

/// A full disk: the file stays as it was, the failure is told, and no half of a file is left.
#[test]
fn full_disk_changes_nothing() {
    let Some(disk) = SmallDisk::mount(256 << 10) else { return };
    let host = Host::new("");
    let file = disk.path().join("mcp.json");
    // Longer than the free space that a file system rounds up to.
    let text = TEXT.replace("// Servers.", &format!("// {}", "a long comment ".repeat(2000)));
    fs::write(&file, &text).unwrap();
    disk.fill();
    let before = names(disk.path());
    let ran = host.run_on(&file, &["adopt", "--write"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("mcp.json") && ran.err.contains("No space left"), "{ran:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert_eq!(names(disk.path()), before);
    // With room again, the same command succeeds, and a disk that is full then keeps the undo from
    // destroying anything.
    fs::remove_file(disk.path().join("filler")).unwrap();
    assert_eq!(host.run_on(&file, &["adopt", "--write"]).code, Some(0));
    let adopted = fs::read_to_string(&file).unwrap();
    assert_ne!(adopted, text);
    disk.fill();
    let before = names(disk.path());
    let ran = host.run_on(&file, &["adopt", "--undo", "--write"]);
    if ran.code == Some(0) {
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    } else {
        assert!(ran.err.contains("No space left"), "{ran:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), adopted);
        assert_eq!(names(disk.path()), before);
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A user with a home and a project, where hosts have their files.
struct User {
    home: Home,
}

impl User {
    fn new() -> Self {
        let user = Self { home: Home::new() };
        fs::create_dir_all(user.project()).unwrap();
        user
    }

    fn project(&self) -> PathBuf {
        self.home.path().join("work/app")
    }

    fn write(&self, place: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.home.command(args);
        command
            .env("HOME", self.home.path())
            .env("XDG_CONFIG_HOME", self.home.path().join(".config"));
        for name in ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "OPENCODE_CONFIG"] {
            command.env_remove(name);
        }
        command.current_dir(self.project());
        Program::start(&self.home, command).wait()
    }
}

const SERVER: &str = r#"{"mcpServers": {"a": {"command": "uvx", "args": ["x"]}}}"#;

/// Files of hosts at their usual places, each with its text.
const PLACES: &[(&str, &str, &str)] = &[
    ("claude", ".claude.json", SERVER),
    ("claude", "work/app/.mcp.json", SERVER),
    ("claude-desktop", ".config/Claude/claude_desktop_config.json", SERVER),
    ("cursor", ".cursor/mcp.json", SERVER),
    ("cursor", "work/app/.cursor/mcp.json", SERVER),
    ("vscode", "work/app/.vscode/mcp.json", r#"{"servers": {"a": {"command": "uvx"}}}"#),
    ("vscode", ".config/Code/User/mcp.json", r#"{"servers": {"a": {"command": "uvx"}}}"#),
    ("zed", ".config/zed/settings.json", r#"{"context_servers": {"a": {"command": "uvx"}}}"#),
    ("windsurf", ".codeium/windsurf/mcp_config.json", SERVER),
    ("cline", ".cline/data/settings/cline_mcp_settings.json", SERVER),
    ("gemini", ".gemini/settings.json", SERVER),
    ("codex", ".codex/config.toml", "[mcp_servers.a]\ncommand = \"uvx\"\nargs = [\"x\"]\n"),
    (
        "opencode",
        ".config/opencode/opencode.json",
        r#"{"mcp": {"a": {"type": "local", "command": ["uvx", "x"]}}}"#,
    ),
    (
        "goose",
        ".config/goose/config.yaml",
        "extensions:\n  a:\n    cmd: uvx\n    args:\n      - x\n",
    ),
    ("continue", ".continue/config.yaml", "mcpServers:\n  - name: a\n    command: uvx\n"),
    (
        "copilot",
        ".copilot/mcp-config.json",
        r#"{"mcpServers": {"a": {"type": "local", "command": "uvx"}}}"#,
    ),
];

/// The name of a host stands for its files of the user and of the project; without a name all are
/// shown, and none is written.
#[test]
fn hosts_are_adopted_by_their_names() {
    let user = User::new();
    let files: Vec<_> =
        PLACES.iter().map(|(_, place, text)| (user.write(place, text), *text)).collect();
    user.write("work/app/.vscode/settings.json", "{}");
    let ran = user.run(&["adopt"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out.matches("+++ ").count(), files.len(), "{ran:?}");
    assert!(ran.err.contains("a (line 1) would run behind `ceased wrap`"), "{ran:?}");
    assert!(ran.err.contains("`ceased adopt cursor --write`"), "{ran:?}");
    let ran = user.run(&["adopt", "--write"]);
    assert!(ran.code == Some(2) && ran.err.contains("needs a host or a file"), "{ran:?}");
    assert!(files.iter().all(|(path, text)| fs::read_to_string(path).unwrap() == *text));

    let mut hosts: Vec<_> = PLACES.iter().map(|(host, _, _)| *host).collect();
    hosts.dedup();
    for host in &hosts {
        let ran = user.run(&["adopt", host, "--write"]);
        assert!(ran.code == Some(0) && ran.err.contains("runs behind"), "{host} {ran:?}");
    }
    let is_adopted = |path: &PathBuf| fs::read_to_string(path).unwrap().contains("wrap");
    assert!(files.iter().all(|(path, _)| is_adopted(path)));
    for host in &hosts {
        let ran = user.run(&["adopt", host, "--undo", "--write"]);
        assert_eq!(ran.code, Some(0), "{host} {ran:?}");
    }
    assert!(files.iter().all(|(path, text)| fs::read_to_string(path).unwrap() == *text));
    let ran = user.run(&["adopt", "cursor", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["files"].as_array().unwrap().len(), 2, "{ran:?}");
}

#[test]
fn unknown_names_and_missing_files_are_explained() {
    let user = User::new();
    let ran = user.run(&["adopt", "cursr"]);
    assert!(ran.code == Some(2) && ran.err.contains("did you mean cursor?"), "{ran:?}");
    let ran = user.run(&["adopt", "cursor"]);
    assert!(ran.code == Some(2) && ran.err.contains(".cursor/mcp.json"), "{ran:?}");
    let ran = user.run(&["adopt"]);
    assert!(ran.code == Some(0) && ran.err.contains("no file of a host is found"), "{ran:?}");
    user.write(".claude.json", SERVER);
    let ran = user.run(&["adopt", "claude"]);
    assert!(ran.code == Some(0) && ran.err.contains("claude-desktop is Claude Desktop"), "{ran:?}");
}

/// A secret of several lines, and those beside a change, are in no output.
#[test]
fn secrets_of_several_lines_are_never_shown() {
    let user = User::new();
    let pem = r"-----BEGIN\nhunter2\n-----END";
    let json = format!(
        r#"{{"mcpServers": {{
  "a": {{
    "command": "x",
    "args": ["--api-key", "hunter2", "-H", "A: hunter2", "l\nhunter2", "${{input:hunter}}"],
    "env": {{ "K": "{pem}" }}
  }},
  // "K": "hunter2"
  "b": {{ "command": "y" }} }},
  "primaryApiKey": "hunter2" }}"#
    );
    let file = user.write("work/app/.mcp.json", &json);
    let yaml = "mcpServers:\n  - name: a\n    command: x\n    env:\n      K: |\n        -----BEGIN\n        hunter2\n";
    let yaml = user.write("work/app/.continue/mcpServers/a.yaml", yaml);
    let toml =
        "[mcp_servers.a]\ncommand = \"x\"\n[mcp_servers.a.env]\nK = \"\"\"\nhunter2\n\"\"\"\n";
    let toml = user.write("work/app/.codex/config.toml", toml);
    for file in [file, yaml, toml] {
        let file = file.to_str().unwrap();
        for options in
            [&["adopt"][..], &["adopt", "--shared"], &["adopt", "--json"], &["adopt", "--undo"]]
        {
            let ran = user.run(&[options, &[file]].concat());
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert!(!ran.out.contains("hunter2") && !ran.err.contains("hunter2"), "{ran:?}");
        }
        let ran = user.run(&["import", file]);
        assert!(ran.code == Some(0) && !ran.err.contains("hunter2"), "{ran:?}");
    }
    for (name, text) in
        [("bad.json", "{\"a\": hunter2"), ("bad.toml", "a = hunter2"), ("bad.yaml", "a: \"hunter2")]
    {
        let file = user.write(name, text);
        let ran = user.run(&["adopt", file.to_str().unwrap()]);
        assert!(ran.code == Some(2) && !ran.err.contains("hunter2"), "{ran:?}");
    }
}

/// `--shared` writes a configuration with which a daemon starts, or nothing at all.
#[test]
fn shared_servers_are_checked_as_serve_does() {
    let user = User::new();
    let text =
        r#"{"mcpServers": {"a": {"command": "node", "args": ["./s.js"], "envFile": ".env"}}}"#;
    let file = user.write("work/app/.mcp.json", text);
    let config = user.home.path().join(".config/ceased/config.toml");
    let ran = user.run(&["adopt", "claude", "--shared", "--write"]);
    assert!(ran.code == Some(2) && ran.err.contains(".env"), "{ran:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert!(!config.exists(), "{ran:?}");

    let env = user.write("work/app/.env", "KEY=x\n");
    fs::set_permissions(&env, fs::Permissions::from_mode(0o600)).unwrap();
    let ran = user.run(&["adopt", "claude", "--shared", "--write"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let written: toml::Table = fs::read_to_string(&config).unwrap().parse().unwrap();
    let server = &written["server"][0];
    assert_eq!(server["cwd"].as_str(), user.project().to_str());
    assert_eq!(server["env_file"].as_str(), env.to_str());

    // A file of the user belongs to no project.
    let file = user.write(".cursor/mcp.json", r#"{"mcpServers": {"b": {"command": "./run"}}}"#);
    let ran = user.run(&["adopt", file.to_str().unwrap(), "--shared"]);
    assert!(ran.code == Some(0) && ran.err.contains("is of no project"), "{ran:?}");
    assert!(ran.err.contains("./run"), "{ran:?}");
}

/// Hunks do not overlap, and `patch` takes them as they are.
#[test]
fn diffs_apply_with_patch() {
    let user = User::new();
    let entry = |n: usize| {
        format!(
            "    \"s{n}\": {{\n      \"command\": \"uvx\",\n      \"args\": [\"x{n}\"],\n      \"env\": {{}}\n    }}"
        )
    };
    let entries: Vec<String> = (0..6).map(entry).collect();
    let text = format!("{{\n  \"mcpServers\": {{\n{}\n  }}\n}}", entries.join(",\n"));
    let file = user.write("mcp.json", &text);
    let ran = user.run(&["adopt", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let change = user.write("change.diff", &ran.out);
    let patched =
        std::process::Command::new("patch").arg("--fuzz=0").arg(&file).arg(&change).output();
    let Ok(patched) = patched else { return eprintln!("skipped: needs patch") };
    let said = String::from_utf8_lossy(&patched.stdout).into_owned();
    assert!(patched.status.success() && !said.contains("offset"), "{said} {}", ran.out);
    assert_eq!(fs::read_to_string(&file).unwrap().matches("wrap").count(), 6);
}

#[test]
fn containers_get_a_warning_and_command_lines_are_left() {
    let host = Host::new(
        r#"{"mcpServers": {"a": {"command": "docker", "args": ["run", "-i", "x"]},
            "b": {"command": "python3 -m http.server"}}}"#,
    );
    let ran = host.run(&["adopt"]);
    assert!(ran.code == Some(0) && ran.err.contains("warning: a (line 1): docker"), "{ran:?}");
    assert!(ran.err.contains("b (line 2) is left as it is: its command is a whole"), "{ran:?}");
    assert!(!ran.out.contains("+            \"b\""), "{ran:?}");
}
