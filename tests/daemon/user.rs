//! A user of this machine with the environment that an SDK passes to programs: HOME, LOGNAME, PATH,
//! SHELL, TERM and USER.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use ceased_tests::binary::ceased;
use ceased_tests::daemon::{Home, Program, Ran, Signal, wait_until};
use rustix::process::{Pid, geteuid, kill_process};

/// A user with a home. Its processes are killed when dropped.
pub(crate) struct User {
    home: Home,
    pub(crate) uid: u32,
}

impl User {
    /// A new user without files; `None` with a printed line if this process may not change its
    /// user.
    pub(crate) fn new() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !geteuid().is_root() {
            eprintln!("SKIPPED: two users require root");
            return None;
        }
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Self::with_uid(1_000_000 + std::process::id() % 100_000 * 100 + n % 100))
    }

    /// Root, with a separate home.
    pub(crate) fn root() -> Option<Self> {
        geteuid().is_root().then(|| Self::with_uid(0))
    }

    /// The user with this uid.
    pub(crate) fn with_uid(uid: u32) -> Self {
        let home = Home::new();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let user = Self { home, uid };
        user.own(user.home());
        user
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Changes the owner of a file or directory to this user.
    pub(crate) fn own(&self, path: &Path) {
        chown(path, Some(self.uid), Some(self.uid)).unwrap();
    }

    /// Creates a directory of this user, below its home.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.home().join(name);
        fs::create_dir_all(&path).unwrap();
        for made in Path::new(name).ancestors().filter(|part| !part.as_os_str().is_empty()) {
            self.own(&self.home().join(made));
        }
        path
    }

    /// Writes a file of this user, below its home.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home().join(name);
        if let Some(dir) = Path::new(name).parent().filter(|dir| !dir.as_os_str().is_empty()) {
            self.dir(&dir.to_string_lossy());
        }
        fs::write(&path, text).unwrap();
        self.own(&path);
        path
    }

    /// The binary as this user, in its home.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_in(self.home(), args)
    }

    /// The binary as this user, in a directory.
    pub(crate) fn command_in(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        let (uid, name) = (self.uid.to_string(), format!("u{}", self.uid));
        command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups"]);
        command.arg(ceased()).args(args).current_dir(dir).env_clear();
        command.env("HOME", self.home()).env("LOGNAME", &name).env("USER", &name);
        command.env("SHELL", "/bin/sh").env("TERM", "xterm");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Runs the binary as this user, in its home.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_in(self.home(), args)
    }

    /// Runs the binary as this user, in a directory, with these lines as its input.
    pub(crate) fn say_in(&self, dir: &Path, args: &[&str], lines: &str) -> Ran {
        let input = self.file("input", lines);
        let mut command = self.command_in(dir, args);
        command.stdin(fs::File::open(input).unwrap());
        self.start(command).wait()
    }

    /// Runs the binary as this user, in a directory.
    pub(crate) fn run_in(&self, dir: &Path, args: &[&str]) -> Ran {
        Program::start(&self.home, self.command_in(dir, args)).wait()
    }

    /// Starts a command of this user.
    pub(crate) fn start(&self, command: Command) -> Program {
        Program::start(&self.home, command)
    }

    /// Processes of this user with this argument.
    pub(crate) fn processes(&self, argument: &str) -> Vec<i32> {
        use std::os::unix::fs::MetadataExt as _;
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let processes = entries.filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let is_ours = entry.metadata().ok()?.uid() == self.uid;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let has = line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes());
            // Other processes of root are excluded by their environment.
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let home = format!("HOME={}", self.home().display());
            let lives_here = environment.split(|byte| *byte == 0).any(|v| v == home.as_bytes());
            (is_ours && has && lives_here).then_some(pid)
        });
        processes.collect()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        for pid in self.processes("serve") {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        if !std::thread::panicking() {
            wait_until("the user's daemons end", || self.processes("serve").is_empty());
        }
    }
}
