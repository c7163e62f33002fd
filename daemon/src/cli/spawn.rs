//! `ceased connect --spawn`: starts a daemon of this user if none runs.
//!
//! A command that finds no daemon takes a lock beside the socket and looks again; if there is still
//! none, it starts one. So any number of concurrent commands start a single daemon and reach it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FlockOperation, OFlags, flock};

use super::discover::{self, Unreachable};
use super::{DaemonLocation, Exit, Failure, Io};
use crate::observability::logging;
use crate::store::directory::{Holder, Phase};
use crate::trust;
use ceased_client::Endpoint;
use ceased_process::daemon_support::variables_of_the_service_manager;

/// Time limit for a daemon to listen, in addition to the shutdown time of the previous one.
const WITHIN: Duration = Duration::from_secs(20);
/// Minimum wait after the end of the input: the startup time on a busy machine, since the input may
/// be complete already.
const INPUT_GRACE: Duration = Duration::from_secs(10);
/// Time limit for reaching a running daemon. One whose socket was removed listens again within two
/// seconds.
const LISTENS_ANEW_WITHIN: Duration = Duration::from_secs(5);
/// Polling interval.
const PAUSE: Duration = Duration::from_millis(10);
/// Idle exit time of a spawned daemon.
const IDLE_EXIT: &str = "10m";
/// Number of log lines shown of a daemon that failed to start.
const LOG_LINES_MAX: usize = 10;

/// Connects to the daemon at the first of `endpoints`, and starts it there if it does not run.
/// Waits for the startup time, and for `grace`, or a little longer, after the end of the input.
pub(super) fn connect(
    endpoints: &[Endpoint],
    site: &DaemonLocation,
    grace: Duration,
    io: &mut Io<'_>,
) -> Result<OwnedFd, Failure> {
    let path = place(endpoints, site)?;
    let answer_timeout = WITHIN + site.shutdown_grace;
    let mut wait = Wait::new(io.input, answer_timeout, grace);
    let _turn = match turn(path, endpoints, &mut wait, io)? {
        Turn::Reached(socket) => return Ok(socket),
        Turn::Ours(lock) => lock,
    };
    let mut spawned = Spawned { site, path, log: beside(path, ".log"), child: None, starts: 0 };
    loop {
        // Checked first: a daemon that exits because another one already listens is not a failure.
        let ended = spawned.end()?;
        if let Reached::Yes(socket) = attempt(endpoints, io)? {
            return Ok(socket);
        }
        match ended {
            Some(status) if !was_occupied(status) => {
                return Err(not_started(&format!("ended with {status}"), &spawned.log));
            }
            Some(_) | None => {}
        }
        if spawned.child.is_none() {
            match site.state_dir.as_deref().and_then(Holder::of) {
                Some(Holder { pid, phase: Phase::Serving }) if wait.is_lost() => {
                    return Err(lost(path, pid));
                }
                Some(Holder { phase: Phase::Serving, .. }) => {}
                // A daemon that is shutting down holds the directory, without a socket, until its
                // jobs have ended.
                Some(_) => wait.say_occupied(io),
                None => spawned.start(io)?,
            }
        }
        if let Err(why) = wait.pause() {
            let had = spawned.child.is_some();
            spawned.kill();
            return Err(match why {
                TooLate::Input => input_ended(),
                TooLate::Patience if had => {
                    let late =
                        format!("did not listen at {} within {answer_timeout:?}", path.display());
                    not_started(&late, &spawned.log)
                }
                TooLate::Patience => Failure::new(
                    Exit::Unreachable,
                    format!(
                        "another daemon has held the state directory for {answer_timeout:?} and does not \
                         listen at {}; see its log, or stop it",
                        path.display()
                    ),
                ),
            });
        }
    }
}

/// The path to start a daemon at: the configured socket.
fn place<'e>(endpoints: &'e [Endpoint], site: &DaemonLocation) -> Result<&'e Path, Failure> {
    if let DaemonLocation { config: Some(config), socket: None, .. } = site {
        let what = format!(
            "--spawn starts a daemon at the configured socket, but {} has no [[listen]] \
             with transport = \"unix\"; add one, or start the daemon with `ceased serve`",
            config.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    let is_elsewhere = |path: &Path| site.socket.as_deref().is_some_and(|socket| socket != path);
    match endpoints.first() {
        Some(Endpoint::Unix(path)) if !is_elsewhere(path) => Ok(path),
        Some(_) | None => Err(Failure::new(
            Exit::Usage,
            "--spawn starts a daemon at the configured socket; unset $CEASED_SOCKET, \
             which names another one",
        )),
    }
}

/// A daemon being started, repeatedly while a previous one is shutting down.
struct Spawned<'a> {
    site: &'a DaemonLocation,
    path: &'a Path,
    log: PathBuf,
    child: Option<Child>,
    starts: u32,
}

impl Spawned<'_> {
    fn start(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        if self.starts == 0 {
            logging::keep(&self.log).map_err(|why| fail("keep the log", &self.log, &why))?;
        }
        self.child = Some(start(self.site, self.path, &self.log)?);
        if self.starts == 0 {
            let (path, log) = (self.path.display(), self.log.display());
            io.say(&format!("no daemon at unix:{path}; started one, its log is {log}"));
            if self.site.config.is_none() {
                io.say(
                    "it has no configuration file, so it has no tools; `ceased init` writes one",
                );
            }
        }
        self.starts += 1;
        Ok(())
    }

    /// Its exit status, if it has exited.
    fn end(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let ended = child.try_wait().map_err(|why| fail("watch the daemon", self.path, &why))?;
        if ended.is_some() {
            self.child = None;
        }
        Ok(ended)
    }

    /// Ends a daemon that failed to become reachable.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Why waiting ended.
enum TooLate {
    /// The input ended and its grace period is over.
    Input,
    /// The startup time limit has expired.
    Patience,
}

/// Time limits of waiting for a daemon.
struct Wait<'a> {
    until: Instant,
    input: BorrowedFd<'a>,
    /// Grace period after the end of the input.
    grace: Duration,
    /// Time of the end of the input.
    ended: Option<Instant>,
    /// Time at which a running but unreachable daemon was first seen.
    lost: Option<Instant>,
    has_said_occupied: bool,
}

impl<'a> Wait<'a> {
    fn new(input: BorrowedFd<'a>, answer_timeout: Duration, grace: Duration) -> Self {
        let (ended, lost, has_said_occupied) = (None, None, false);
        let grace = grace.max(INPUT_GRACE);
        Self {
            until: Instant::now() + answer_timeout,
            input,
            grace,
            ended,
            lost,
            has_said_occupied,
        }
    }

    /// Waits one polling interval.
    fn pause(&mut self) -> Result<(), TooLate> {
        let now = Instant::now();
        if self.ended.is_none() && has_hung_up(self.input) {
            self.ended = Some(now);
        }
        if self.ended.is_some_and(|ended| now >= ended + self.grace) {
            return Err(TooLate::Input);
        }
        if now >= self.until {
            return Err(TooLate::Patience);
        }
        sleep(PAUSE);
        Ok(())
    }

    /// Whether a running daemon has been unreachable for longer than it takes to listen again.
    fn is_lost(&mut self) -> bool {
        self.lost.get_or_insert_with(Instant::now).elapsed() > LISTENS_ANEW_WITHIN
    }

    fn say_occupied(&mut self, io: &mut Io<'_>) {
        if !std::mem::replace(&mut self.has_said_occupied, true) {
            io.say("another daemon still holds the state directory; waiting for its exit");
        }
    }
}

/// Whether a pipe or socket has no writer; buffered bytes may still be readable.
fn has_hung_up(input: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(input, PollFlags::RDHUP)];
    let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    let over = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR | PollFlags::NVAL;
    polled.is_ok() && fds.iter().any(|fd| fd.revents().intersects(over))
}

fn input_ended() -> Failure {
    let what = "the input ended before a daemon could be reached";
    Failure::new(Exit::Unreachable, what.to_owned())
}

/// Error for a running daemon without its socket.
fn lost(path: &Path, pid: u32) -> Failure {
    let what = format!(
        "a daemon runs (process {pid}) but is unreachable at {}: its socket was removed, or it \
         listens elsewhere; have it listen anew with `kill -HUP {pid}`, or end it with `kill {pid}`",
        path.display()
    );
    Failure::new(Exit::Unreachable, what)
}

fn was_occupied(status: ExitStatus) -> bool {
    status.code() == Some(Exit::Occupied.code().into())
}

/// Result of trying every endpoint.
enum Reached {
    Yes(OwnedFd),
    /// No socket exists.
    Absent,
    /// A socket exists, but no usable daemon.
    Broken(Unreachable),
}

/// Tries every place; a daemon at a place of this user must not be another user's.
fn attempt(endpoints: &[Endpoint], io: &Io<'_>) -> Result<Reached, Failure> {
    match discover::first_reachable(endpoints) {
        Ok((socket, endpoint)) => {
            check(&socket, endpoint, io)?;
            Ok(Reached::Yes(socket))
        }
        Err(unreachable) if unreachable.is_absent => Ok(Reached::Absent),
        Err(unreachable) => Ok(Reached::Broken(unreachable)),
    }
}

enum Turn {
    /// Another process has started one.
    Reached(OwnedFd),
    /// This process starts one, while it holds the lock.
    Ours(File),
}

fn turn(
    path: &Path,
    endpoints: &[Endpoint],
    wait: &mut Wait<'_>,
    io: &Io<'_>,
) -> Result<Turn, Failure> {
    let lock_path = beside(path, ".spawn");
    if let Some(dir) = path.parent() {
        make_directory(dir).map_err(|why| fail("use the runtime directory", dir, &why))?;
    }
    let lock = open(&lock_path).map_err(|why| fail("lock", &lock_path, &why))?;
    loop {
        let is_ours = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        match attempt(endpoints, io)? {
            Reached::Yes(socket) => return Ok(Turn::Reached(socket)),
            Reached::Broken(unreachable) => return Err(unreachable.into()),
            Reached::Absent if is_ours => return Ok(Turn::Ours(lock)),
            Reached::Absent => {}
        }
        match wait.pause() {
            Ok(()) => {}
            Err(TooLate::Input) => return Err(input_ended()),
            Err(TooLate::Patience) => {
                let what = format!(
                    "another `ceased connect --spawn` has held {} for too long",
                    lock_path.display()
                );
                return Err(Failure::new(Exit::Unreachable, what));
            }
        }
    }
}

/// Creates the directory of the socket if it is missing, and checks its owner.
fn make_directory(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    trust::check_directory(dir)
}

/// Checks a daemon that was reached at a place of this user: it must not be another user's. The
/// daemon of the system has a user of its own.
pub(super) fn check(socket: &OwnedFd, endpoint: &Endpoint, io: &Io<'_>) -> Result<(), Failure> {
    let Endpoint::Unix(path) = endpoint else { return Ok(()) };
    if io.env.sockets.system.as_ref() == Some(path) {
        return Ok(());
    }
    let dir = path.parent().unwrap_or(path);
    trust::check_directory(dir).map_err(|why| fail("use the runtime directory", dir, &why))?;
    trust::check_daemon(socket).map_err(|why| fail("use the daemon", path, &why))
}

/// Opens the lock file, which is never removed: otherwise two processes could lock different files.
fn open(path: &Path) -> io::Result<File> {
    trust::check_type(path)?;
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)?;
    trust::check_file(&file, path)?;
    Ok(file)
}

fn start(site: &DaemonLocation, path: &Path, log: &Path) -> Result<Child, Failure> {
    let stderr = logging::create(log).map_err(|why| fail("use the log", log, &why))?;
    spawn(site, log, stderr).map_err(|why| fail("start a daemon", path, &why))
}

/// Starts the daemon independent of this process: a session of its own, no inherited descriptors,
/// and its log in a rotated file.
fn spawn(site: &DaemonLocation, log: &Path, stderr: File) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--idle-exit", IDLE_EXIT, "--own-session"]).arg(log);
    if let Some(config) = &site.config {
        command.arg("--config").arg(std::path::absolute(config)?);
    }
    for name in variables_of_the_service_manager() {
        command.env_remove(name);
    }
    // The current directory is unsuitable for a shared daemon.
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_dir());
    command.current_dir(home.unwrap_or_else(|| "/".into()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn()
}

/// `PATH` with a suffix.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn fail(what: &str, path: &Path, why: &io::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("cannot {what} ({}): {why}", path.display()))
}

/// Includes the end of the daemon's log in the message.
fn not_started(how: &str, log: &Path) -> Failure {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LOG_LINES_MAX)..).unwrap_or_default();
    let said = last.join("\n");
    Failure::new(Exit::Unreachable, format!("the daemon that was started {how}\n{said}"))
}
