//! One run of the binary as a user starts it: its outputs and its exit code.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, kill_process};

use super::{Home, Signal, wait_until};

/// A running program. Killed when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    out: PathBuf,
    err: PathBuf,
    // Keeps the output files alive.
    _home: Home,
}

/// The result of a finished run.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Program {
    /// Starts a command of `home`.
    ///
    /// # Panics
    ///
    /// When the command cannot be started.
    #[must_use]
    pub fn start(home: &Home, mut command: Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let [out, err] = ["out", "err"].map(|name| home.path().join(format!("{name}-{n}")));
        let file = |path| File::create(path).expect("a file can be written");
        let child = command.stdout(file(&out)).stderr(file(&err)).spawn();
        let child = child.expect("the binary can be started");
        Self { child, out, err, _home: home.clone() }
    }

    /// Process id of the program.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Standard output so far.
    #[must_use]
    pub fn out(&self) -> String {
        read(&self.out)
    }

    /// Standard error so far.
    #[must_use]
    pub fn err(&self) -> String {
        read(&self.err)
    }

    /// Sends a signal to the program.
    ///
    /// # Panics
    ///
    /// When the program was already waited for.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal)
            .expect("the program is not yet waited for");
    }

    /// Whether the program has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Waits until the program ends.
    pub fn wait(mut self) -> Ran {
        wait_until("the program ends", || self.has_ended());
        let status = self.child.wait().expect("a child can be waited for");
        Ran { code: status.code(), out: self.out(), err: self.err() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &PathBuf) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

impl Home {
    /// Starts the binary with these arguments.
    #[must_use]
    pub fn start(&self, args: &[&str]) -> Program {
        Program::start(self, self.command(args))
    }

    /// Runs the binary with these arguments to its end.
    #[must_use]
    pub fn run(&self, args: &[&str]) -> Ran {
        self.start(args).wait()
    }
}
