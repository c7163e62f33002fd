//! Completion in real shells on a terminal. A test reports a missing shell and ends.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{Config, Daemon};
use ceased_tests::screen::Screen;
use tempfile::TempDir;

/// A tool whose argument has few values.
const PICK: &str = r#"
[[tool]]
name = "pick"
command = ["echo", "{colour}"]
[tool.input.colour]
type = "string"
enum = ["red", "green", "blue$(echo code)", "black;echo code", "brown`echo code`"]
required = true
"#;

/// A shell with `ceased` in its `PATH`, beside a daemon with a task.
struct Shell {
    daemon: Daemon,
    task: String,
    dir: TempDir,
}

impl Shell {
    fn new() -> Self {
        let daemon = Daemon::start(&Config { tools: PICK, ..Config::default() });
        let task = daemon.peer().create_task("sleep", r#"{"ms":600000}"#);
        let dir = tempfile::tempdir().unwrap();
        symlink(ceased(), dir.path().join("ceased")).unwrap();
        fs::write(dir.path().join("evil$(echo code).toml"), "").unwrap();
        Self { daemon, task, dir }
    }

    /// Starts the shell, types the beginning of lines with `\t` for the key, and expects whole lines.
    fn completes(&self, program: &str, args: &[&str], prepare: &str) {
        let id = &self.task;
        let begun = format!("ceased cancel {}\t", &id[..6]);
        let whole = format!("ceased cancel {id}");
        let job = format!("job:{}", self.daemon.status()["jobs"][0]["job"]);
        let (of_job, cancelled) = (format!("ceased get {job}"), format!("ceased cancel {job}"));
        let cases = [
            ("ceased conn\t", "ceased connect"),
            ("ceased call cou\t", "ceased call count"),
            // No space after the sign: a value follows.
            ("ceased call count n\t5", "ceased call count n=5"),
            ("ceased call pick colour=g\t", "ceased call pick colour=green"),
            // Names and values that are more than a word to a shell are no candidates.
            ("ceased call pick colour=blu\t", "ceased call pick colour=blu"),
            ("ceased call pick colour=bla\t", "ceased call pick colour=bla"),
            ("ceased call pick colour=br\t", "ceased call pick colour=br"),
            // A file name is one word.
            ("ceased check --config evil\t", "ceased check --config evil$(echo code).toml"),
            ("ceased cancel --tool cou\t", "ceased cancel --tool count"),
            (&*begun, &*whole),
            ("ceased get job:\t", &*of_job),
            ("ceased cancel jo\t", &*cancelled),
            ("ceased tasks --js\t", "ceased tasks --json"),
        ];
        let mut command = Command::new(program);
        let home = self.daemon.home.command(&[]);
        for (name, value) in home.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.args(args).env("PATH", format!("{}:{path}", self.dir.path().display()));
        command.env("HOME", self.dir.path()).env("CEASED_SOCKET", self.daemon.socket());
        command.env("PS1", "% ").env("LC_ALL", "C.UTF-8").current_dir(self.dir.path());
        let screen = Screen::start(&command, (50, 132));
        screen.press(&format!("{prepare}; echo prepared, 'it' is\r"));
        screen.wait("the shell is prepared", |text| text.contains("prepared, it is"));
        for (typed, expected) in cases {
            // Ctrl-A leads to the beginning of the line.
            screen.press(&format!("{typed}\x01echo 'RES':: \r"));
            let shown = format!("RES:: {expected}");
            let is_shown = |text: &str| text.lines().any(|line| line.trim_end() == shown);
            screen.wait(&format!("{program}: {typed:?} becomes {expected:?}"), is_shown);
        }
        screen.press("exit\r");
    }
}

fn has(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: there is no {shell} on this machine");
    }
    found
}

#[test]
fn bash_completes() {
    if has("bash") {
        let args = ["--norc", "--noprofile", "-i"];
        Shell::new().completes("bash", &args, "source <(ceased completions bash)");
    }
}

#[test]
fn zsh_completes_with_a_sourced_script() {
    if has("zsh") {
        let prepare = "bindkey -e; autoload -Uz compinit; compinit -u -D; \
                       source <(ceased completions zsh)";
        Shell::new().completes("zsh", &["-f", "-i"], prepare);
    }
}

/// As the package installs it: the first completion loads the file.
#[test]
fn zsh_completes_with_an_installed_script() {
    if has("zsh") {
        let shell = Shell::new();
        let script = Command::new(ceased()).args(["completions", "zsh"]).output().unwrap().stdout;
        fs::create_dir(shell.dir.path().join("functions")).unwrap();
        fs::write(shell.dir.path().join("functions/_ceased"), script).unwrap();
        let prepare =
            "bindkey -e; fpath=(~/functions $fpath); autoload -Uz compinit; compinit -u -D";
        shell.completes("zsh", &["-f", "-i"], prepare);
    }
}

#[test]
fn fish_completes() {
    if has("fish") {
        Shell::new().completes("fish", &["--no-config", "-i"], "ceased completions fish | source");
    }
}
