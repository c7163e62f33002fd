//! A directory for one daemon with its configuration, and commands with a matching environment.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::binary::ceased;

/// Tools of every test daemon, besides `echo` and `sleep`. Each process of a tool with `{t}`
/// carries `t` as an argument.
const TOOLS: &str = r#"
[[tool]]
name = "echo"
description = "Returns its text"
builtin = "echo"

[[tool]]
name = "sleep"
description = "Waits"
builtin = "sleep"
task_support = "optional"

# One process that does what SIGTERM says.
[[tool]]
name = "hang"
description = "Runs one process"
max_output = "64KiB"
run_as = "daemon"
command = ["sleep", "{t}"]
task_support = "optional"
[tool.input.t]
type = "string"
required = true

# A family that does not: a child, a grandchild, one in a session of its own; says when it is there.
[[tool]]
name = "family"
description = "Runs several processes"
max_output = "64KiB"
run_as = "daemon"
command = [
  "sh",
  "-c",
  '''
  trap "" TERM
  sh -c 'sleep "$1" & echo 1/3 >&3; wait' child "$1" &
  setsid sh -c 'sleep "$1" & echo 2/3 >&3; wait' far "$1" &
  sleep "$1" &
  echo half
  sleep 0.05
  echo 3/3 >&3
  wait
  ''',
  "family",
  "{t}",
]
task_support = "optional"
kill_grace = "200ms"
[tool.input.t]
type = "string"
required = true

[[tool]]
name = "count"
description = "Counts to a number"
max_output = "64KiB"
run_as = "daemon"
command = [
  "sh",
  "-c",
  'i=0; while [ "$i" -lt "$1" ]; do i=$((i + 1)); echo "$i"; echo "$i/$1 counting" >&3; done',
  "count",
  "{n}",
]
task_support = "optional"
[tool.input.n]
type = "integer"
minimum = 1
maximum = 1000
default = 3

[[tool]]
name = "fail"
description = "Fails with a status"
max_output = "64KiB"
run_as = "daemon"
command = ["sh", "-c", "echo out; echo err >&2; exit 7"]
task_support = "optional"
"#;

/// Differences from a daemon with the usual tools, one Unix socket and the default limits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Config<'a> {
    /// Lines of `[daemon]`.
    pub daemon: &'a str,
    /// Lines of `[limits]`.
    pub limits: &'a str,
    /// Lines of `[tasks]`.
    pub tasks: &'a str,
    /// Further `[[tool]]` tables.
    pub tools: &'a str,
    /// Whether to add a TCP listener for anonymous peers.
    pub tcp: bool,
}

/// A temporary directory, removed with its last clone.
#[derive(Debug, Clone)]
pub struct Home {
    dir: Arc<TempDir>,
    /// Number of the directory in this process, which tells the users of parallel tests apart.
    number: u32,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// Creates an empty directory.
    ///
    /// # Panics
    ///
    /// When the directory cannot be created.
    #[must_use]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let dir = tempfile::Builder::new().prefix("ceased-test-").tempdir();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { dir: Arc::new(dir.expect("a temporary directory")), number }
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Path of the daemon's Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path().join("d.sock")
    }

    /// Path of the configuration file.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.path().join("config.toml")
    }

    /// Text of the configuration file.
    #[must_use]
    pub fn config_text(&self) -> String {
        fs::read_to_string(self.config_path()).unwrap_or_default()
    }

    /// Path of the log, the daemon's standard error.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.path().join("stderr")
    }

    /// Log of all daemons in this directory.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Writes the configuration file.
    pub fn configure(&self, config: &Config<'_>) {
        let Config { daemon, limits, tasks, tools, tcp } = config;
        let socket = self.socket();
        let tcp = if *tcp {
            "[[listen]]\ntransport = \"tcp\"\naddress = \"127.0.0.1:0\"\nanonymous = \"allow\"\n"
        } else {
            ""
        };
        self.configure_as(&format!(
            "[daemon]\n{daemon}\n[limits]\n{limits}\n[tasks]\n{tasks}\n\
             [[listen]]\ntransport = \"unix\"\npath = {socket:?}\n{tcp}{TOOLS}{tools}\n"
        ));
    }

    /// Writes a text as the configuration file.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub fn configure_as(&self, text: &str) {
        fs::write(self.config_path(), text).expect("the configuration can be written");
    }

    /// The binary with these arguments, in this directory, with its configuration if there is one,
    /// and without environment variables that could mislead it.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(ceased());
        self.prepare(&mut command);
        command.args(args);
        command
    }

    /// As [`Home::command`], run by a line of `sh` after other commands such as `ulimit -n 40`.
    #[must_use]
    pub fn command_after(&self, line: &str, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        self.prepare(&mut command);
        command.args(["-c", &format!("{line}; exec \"$@\""), "sh"]).arg(ceased()).args(args);
        command
    }

    /// The binary as another user with at most twelve processes and threads and with access to this
    /// directory; `None` if this process may not change its user. Each number is a different user
    /// of this directory alone, without other processes.
    #[must_use]
    pub fn command_as(&self, number: u32, args: &[&str]) -> Option<Command> {
        self.command_limited(number, 12, args)
    }

    /// As [`Home::command_as`], with at most `most` processes and threads.
    #[must_use]
    pub fn command_limited(&self, number: u32, most: u32, args: &[&str]) -> Option<Command> {
        // Ten users for each directory, a thousand directories for each process.
        let of_process = 1_000_000 + std::process::id() % 100_000 * 10_000;
        let uid = of_process + self.number % 1000 * 10 + number;
        let become_them = format!("setpriv --reuid {uid} --regid {uid} --clear-groups");
        // Sticky like /tmp, because the daemon rejects configurations in other writable
        // directories.
        let open = fs::Permissions::from_mode(0o1777);
        fs::set_permissions(self.path(), open).expect("the directory is ours");
        let line = format!("exec {become_them} prlimit --nproc={most} \"$@\"");
        let tried = self.command_after(&line, &["--version"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success()).then(|| self.command_after(&line, args))
    }

    fn prepare(&self, command: &mut Command) {
        command.current_dir(self.path()).stdin(Stdio::null()).stdout(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("CEASED_") || name_text.starts_with("XDG_") {
                command.env_remove(&name);
            }
        }
        command.env_remove("STATE_DIRECTORY").env("XDG_STATE_HOME", self.path().join("state"));
        if self.config_path().exists() {
            command.env("CEASED_CONFIG", self.config_path());
        }
    }
}
