//! Processes of a test: running one with a time limit, and finding and ending those with its mark.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Environment variable that marks every process of a test.
pub(crate) const MARK_VARIABLE: &str = "CEASED_SDK_TEST";

const POLL: Duration = Duration::from_millis(20);

/// Runs a command to its end, with both outputs in the file `log`.
///
/// # Errors
/// A description if the command does not end within `limit`; the command is then killed.
pub(crate) fn run(
    command: &mut Command,
    log: &Path,
    limit: Duration,
) -> Result<ExitStatus, String> {
    let child = start(command, log)?;
    wait(child, limit).ok_or_else(|| format!("{command:?} did not end within {limit:?}"))
}

/// Starts a command without input, with both outputs in the file `log`.
///
/// # Errors
/// The reason why the command could not be started.
pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Child, String> {
    let open = || File::options().create(true).append(true).open(log);
    let (stdout, stderr) = match (open(), open()) {
        (Ok(stdout), Ok(stderr)) => (stdout, stderr),
        (Err(why), _) | (_, Err(why)) => return Err(format!("{}: {why}", log.display())),
    };
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0);
    command.spawn().map_err(|why| format!("{command:?}: {why}"))
}

/// Waits for a child; kills it and returns `None` when it does not end within `limit`.
pub(crate) fn wait(mut child: Child, limit: Duration) -> Option<ExitStatus> {
    let status = until(limit, || child.try_wait().expect("a child can be waited for"));
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    status
}

/// Repeats `probe` until it returns a value or `limit` has passed.
pub(crate) fn until<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// Processes with `mark` in their command line or environment, except this one.
pub(crate) fn marked(mark: &str) -> Vec<(Pid, String)> {
    let carries = |bytes: &[u8]| bytes.windows(mark.len()).any(|part| part == mark.as_bytes());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is there").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // An unreadable process has ended or belongs to another user.
        let read = |name| fs::read(entry.path().join(name)).unwrap_or_default();
        let line = read("cmdline");
        if let Some(pid) = Pid::from_raw(pid)
            && (carries(&line) || carries(&read("environ")))
            && pid != rustix::process::getpid()
        {
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// Kills every process with a mark when the test ends, also when it fails.
#[derive(Debug)]
pub(crate) struct Sweep(pub(crate) String);

impl Drop for Sweep {
    fn drop(&mut self) {
        until(Duration::from_secs(10), || {
            let left = marked(&self.0);
            for (pid, _) in &left {
                // The process may have ended meanwhile.
                let _ = kill_process(*pid, Signal::KILL);
            }
            left.is_empty().then_some(())
        });
    }
}
