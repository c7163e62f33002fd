//! `ceased probe-server`: the program that a probed client starts. It passes bytes between its standard
//! streams and the probe, has a child process, and ends neither at the end of its input nor on
//! SIGTERM, so that the end of both shows the client's work.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Longest life of either process, should the containment of the probe fail.
const LIFE: Duration = Duration::from_secs(600);
const PIECE_BYTES: usize = 64 * 1024;

/// Runs the server, or its child if there is no socket.
///
/// # Errors
///
/// When the probe is gone, or no process can be started.
pub fn serve(socket: Option<&Path>) -> io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let Some(socket) = socket else {
        thread::sleep(LIFE);
        return Ok(());
    };
    let stream = UnixStream::connect(socket)?;
    let mut child = start_child()?;
    let hello = json!({"pid": std::process::id(), "child": child.id()});
    (&stream).write_all(format!("{hello}\n").as_bytes())?;
    let passed = pass(&stream);
    let _ = child.kill();
    let _ = child.wait();
    passed
}

/// A process that holds none of the client's pipes.
fn start_child() -> io::Result<Child> {
    let mut child = Command::new(std::env::current_exe()?);
    child.arg("probe-server").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    child.spawn()
}

/// Passes bytes until the probe closes the socket, or for a lifetime.
fn pass(stream: &UnixStream) -> io::Result<()> {
    let to_probe = stream.try_clone()?;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    thread::spawn(move || {
        let _ = copy(input, &to_probe);
        // The probe learns the end of the input from the end of this direction.
        let _ = to_probe.shutdown(Shutdown::Write);
    });
    thread::spawn(|| {
        thread::sleep(LIFE);
        std::process::exit(1);
    });
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut from_probe = stream;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = from_probe.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        // A client that has closed its end reads no more; the server stays.
        let _ = (&output).write_all(piece.get(..count).unwrap_or_default());
    }
}

fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = from.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(piece.get(..count).unwrap_or_default())?;
    }
}
