//! Processes of a test: running one with a limit, and finding and ending what carries its mark.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The environment variable by which everything a test starts is known.
pub(crate) const MARK_VARIABLE: &str = "CEASED_SDK_TEST";

const POLL: Duration = Duration::from_millis(20);

/// Runs a command to its end, both of its outputs in the file `log`.
///
/// # Errors
/// What happened instead of an end within `limit`; it is killed then.
pub(crate) fn run(
    command: &mut Command,
    log: &Path,
    limit: Duration,
) -> Result<ExitStatus, String> {
    let child = start(command, log)?;
    wait(child, limit).ok_or_else(|| format!("{command:?} did not end within {limit:?}"))
}

/// Starts a command without input, both of its outputs in the file `log`.
///
/// # Errors
/// Why it could not be started.
pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Child, String> {
    let open = || File::options().create(true).append(true).open(log);
    let (stdout, stderr) = match (open(), open()) {
        (Ok(stdout), Ok(stderr)) => (stdout, stderr),
        (Err(why), _) | (_, Err(why)) => return Err(format!("{}: {why}", log.display())),
    };
    command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).process_group(0);
    command.spawn().map_err(|why| format!("{command:?}: {why}"))
}

/// Waits for a child; `None`, and the child killed, when it does not end within `limit`.
pub(crate) fn wait(mut child: Child, limit: Duration) -> Option<ExitStatus> {
    let status = until(limit, || child.try_wait().expect("a child can be waited for"));
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    status
}

/// Asks again and again until there is something.
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

/// The processes with `mark` in their command line or environment, but for this one.
pub(crate) fn marked(mark: &str) -> Vec<(Pid, String)> {
    let carries = |bytes: &[u8]| bytes.windows(mark.len()).any(|part| part == mark.as_bytes());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is there").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // What cannot be read has ended, or is not ours.
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

/// Ends everything that carries a mark when the test ends, however it ends.
#[derive(Debug)]
pub(crate) struct Sweep(pub(crate) String);

impl Drop for Sweep {
    fn drop(&mut self) {
        until(Duration::from_secs(10), || {
            let left = marked(&self.0);
            for (pid, _) in &left {
                // It may have ended meanwhile.
                let _ = kill_process(*pid, Signal::KILL);
            }
            left.is_empty().then_some(())
        });
    }
}
