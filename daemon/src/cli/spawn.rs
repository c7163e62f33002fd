//! `ceased connect --spawn`: a daemon of this user, started when none runs.
//!
//! Whoever finds none takes a lock beside the socket and looks again; only who still finds none
//! starts one. So any number of connects at once start a single daemon and all reach it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};

use super::reach::{self, Reached};
use super::{Exit, Failure, Io, Site};
use crate::client::Endpoint;
use crate::{logging, service};

/// How long a daemon may take until it listens, besides what the one before it is given to end.
const WITHIN: Duration = Duration::from_secs(20);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// When a daemon nobody needs ends.
const IDLE_EXIT: &str = "10m";
/// Lines of a daemon's last words that are shown.
const LAST_WORDS_MAX: usize = 10;

/// A connection to the daemon at the first of `endpoints`, which is started there when it does
/// not run.
pub(super) fn connect(
    endpoints: &[Endpoint],
    site: &Site,
    io: &mut Io<'_>,
) -> Result<OwnedFd, Failure> {
    if let Site { config: Some(config), socket: None, .. } = site {
        let what = format!(
            "--spawn starts a daemon where the config says that it listens, and {} has no [[listen]] \
             with transport = \"unix\"; add one, or start the daemon with `ceased serve`",
            config.display()
        );
        return Err(Failure::new(Exit::Usage, what));
    }
    let is_elsewhere = |path: &Path| site.socket.as_deref().is_some_and(|socket| socket != path);
    let path = match endpoints.first() {
        Some(Endpoint::Unix(path)) if !is_elsewhere(path) => path,
        Some(_) | None => {
            return Err(Failure::new(
                Exit::Usage,
                "--spawn starts a daemon where the config says that it listens; unset \
                 $CEASED_SOCKET, which names another place",
            ));
        }
    };
    let patience = WITHIN + site.shutdown_grace;
    let until = Instant::now() + patience;
    let _turn = match turn(path, endpoints, until)? {
        Turn::Reached(socket) => return Ok(socket),
        Turn::Ours(lock) => lock,
    };
    let log = beside(path, ".log");
    let mut child = start(site, path, &log)?;
    io.say(&format!(
        "no daemon at unix:{}; started one, its log is {}",
        path.display(),
        log.display()
    ));
    let mut is_occupied = false;
    loop {
        // Looked at first: one that ends because another listens already is no failure.
        let ended = child.try_wait().map_err(|why| fail("watch the daemon", path, &why))?;
        if let Reached::Yes(socket) = reach::try_each(endpoints) {
            return Ok(socket);
        }
        match ended {
            // One that ends has the directory, and no socket any more, until all it ran is gone.
            Some(status) if was_occupied(status) && Instant::now() < until => {
                if !is_occupied {
                    io.say("another daemon still has the state directory; waiting for its end");
                }
                is_occupied = true;
                child = start(site, path, &log)?;
            }
            Some(status) => return Err(not_started(&format!("ended with {status}"), &log)),
            None if Instant::now() < until => {}
            None => {
                // Nobody would know of it.
                let _ = child.kill();
                let _ = child.wait();
                let late = format!("did not listen at {} within {patience:?}", path.display());
                return Err(not_started(&late, &log));
            }
        }
        sleep(PAUSE);
    }
}

fn was_occupied(status: ExitStatus) -> bool {
    status.code() == Some(Exit::Occupied.code().into())
}

enum Turn {
    /// Somebody else has started one.
    Reached(OwnedFd),
    /// It is ours to start one, as long as this lives.
    Ours(File),
}

fn turn(path: &Path, endpoints: &[Endpoint], until: Instant) -> Result<Turn, Failure> {
    let lock_path = beside(path, ".spawn");
    let lock = open(&lock_path).map_err(|why| fail("lock", &lock_path, &why))?;
    loop {
        let is_ours = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        match reach::try_each(endpoints) {
            Reached::Yes(socket) => return Ok(Turn::Reached(socket)),
            Reached::Broken(unreachable) => return Err(unreachable.into()),
            Reached::Absent if is_ours => return Ok(Turn::Ours(lock)),
            Reached::Absent => {}
        }
        if Instant::now() >= until {
            let what = format!(
                "another `ceased connect --spawn` has held {} for too long",
                lock_path.display()
            );
            return Err(Failure::new(Exit::Unreachable, what));
        }
        sleep(PAUSE);
    }
}

/// The lock file, which is never removed, or two could hold "the" lock on two files.
fn open(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
}

fn start(site: &Site, path: &Path, log: &Path) -> Result<Child, Failure> {
    spawn(site, log).map_err(|why| fail("start a daemon", path, &why))
}

/// Starts it apart from us: a session of its own, no descriptor of ours, its log a
/// file that it keeps small.
fn spawn(site: &Site, log: &Path) -> io::Result<Child> {
    let stderr = logging::create(log)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--idle-exit", IDLE_EXIT, "--own-session"]).arg(log);
    if let Some(config) = &site.config {
        command.arg("--config").arg(std::path::absolute(config)?);
    }
    for name in service::private_variables() {
        command.env_remove(name);
    }
    // Where it was first needed is no place for a daemon that others use, too.
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_dir());
    command.current_dir(home.unwrap_or_else(|| "/".into()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn()
}

/// `PATH` and a suffix.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn fail(what: &str, path: &Path, why: &io::Error) -> Failure {
    Failure::new(Exit::Unreachable, format!("cannot {what} ({}): {why}", path.display()))
}

/// What the daemon said last belongs to the message: nobody sees its log.
fn not_started(how: &str, log: &Path) -> Failure {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LAST_WORDS_MAX)..).unwrap_or_default();
    let said = last.join("\n");
    Failure::new(Exit::Unreachable, format!("the daemon that was started {how}\n{said}"))
}
