//! Standard streams of this process for a command that the daemon runs.
//!
//! The command opens pipes of this process by their paths in `/proc`, with the rights of its user,
//! which is that of this process. Threads copy between them and the streams of this process, so that files,
//! terminals and sockets work alike.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};

use super::{Exit, Failure, Io};

/// Bytes that are copied at once; the usual size of a pipe.
const CHUNK: usize = 64 * 1024;
/// Time between two looks whether the user wants to leave.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The pipes of one command.
pub(super) struct Streams {
    /// The end that the command reads; `None` if it gets an empty input.
    stdin: Option<OwnedFd>,
    /// The ends that the command writes. Open until its end, so that it cannot come too late.
    outputs: [OwnedFd; 2],
    /// Closed when both outputs are copied.
    copied: mpsc::Receiver<()>,
}

impl Streams {
    /// Opens the pipes and begins to copy.
    ///
    /// # Errors
    /// If the process is out of descriptors or threads.
    pub(super) fn open(io: &Io<'_>) -> Result<Self, Failure> {
        let fail = |why: io::Error| {
            Failure::new(Exit::Failed, format!("cannot pass the standard streams: {why}"))
        };
        let (done, copied) = mpsc::channel();
        let stdin = io.input.try_clone_to_owned().map_err(fail)?;
        let stdin = match is_readable(stdin.as_fd()) {
            true => {
                let (theirs, ours) =
                    pipe_with(PipeFlags::CLOEXEC).map_err(|why| fail(why.into()))?;
                copy(stdin, ours, None).map_err(fail)?;
                Some(theirs)
            }
            false => None,
        };
        let output = |to: io::Result<OwnedFd>| {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            copy(ours, to?, Some(done.clone()))?;
            Ok(theirs)
        };
        let stdout = output(io.output.try_clone_to_owned()).map_err(fail)?;
        let stderr = output(io::stderr().as_fd().try_clone_to_owned()).map_err(fail)?;
        Ok(Self { stdin, outputs: [stdout, stderr], copied })
    }

    /// The paths by which the command opens the pipes.
    pub(super) fn paths(&self) -> Value {
        let of = |fd: &OwnedFd| format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
        let [stdout, stderr] = self.outputs.each_ref().map(of);
        let stdin = self.stdin.as_ref().map_or_else(|| "/dev/null".to_owned(), of);
        json!({"stdin": stdin, "stdout": stdout, "stderr": stderr})
    }

    /// Waits until the output of an ended command is copied, or `is_left` says that the user does
    /// not want to wait.
    pub(super) fn finish(self, is_left: impl Fn() -> bool) {
        let Self { stdin, outputs, copied } = self;
        drop((stdin, outputs));
        while copied.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            if is_left() {
                return;
            }
        }
    }
}

/// Whether reading the input cannot stop this process: a shell stops a job in the background that
/// reads its terminal.
fn is_readable(stdin: BorrowedFd<'_>) -> bool {
    match rustix::termios::tcgetpgrp(stdin) {
        Ok(foreground) => foreground == rustix::process::getpgrp(),
        // It is no terminal.
        Err(_) => true,
    }
}

/// Copies in a thread until an end is closed. `done` is dropped then.
fn copy(from: OwnedFd, to: OwnedFd, done: Option<mpsc::Sender<()>>) -> io::Result<()> {
    let copy = move || {
        let _done = done;
        let (mut from, mut to) = (File::from(from), File::from(to));
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = match from.read(&mut chunk) {
                Ok(0) => return,
                Ok(read) => chunk.get(..read).unwrap_or_default(),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            // Without a reader the command gets SIGPIPE or an error, as it would without ceased.
            if to.write_all(read).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("stream".to_owned()).spawn(copy).map(drop)
}
