//! The supervisor's ends of a tool's pipes: output, progress, input.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::io::{Errno, ioctl_fionbio, read, write};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::launch::CommandPipes;
use crate::output::last_line::LastLine;
use crate::output::progress::{Lines, Progress};
use crate::output::{Captured, OutputOptions, SharedOutput, Stream, TakeOutput};

/// Maximum bytes read from one pipe per turn.
const TURN_BYTES: usize = 256 * 1024;
/// Maximum bytes read from a pipe after the last process of its job has ended. A pipe holds less;
/// more means that a process outside the job keeps writing.
const LAST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Progress pipes are small, so that many jobs stay below a user's limit of pipe memory.
const PROGRESS_PIPE_BYTES: usize = 4096;
/// Maximum number of progress reports of a job per [`PROGRESS_WINDOW`]; of excess ones, the latest
/// is delivered at the end of the window.
const PROGRESS_MAX: u32 = 100;
const PROGRESS_WINDOW: Duration = Duration::from_secs(1);

/// A descriptor registered with the supervisor's poll until it is closed.
#[derive(Debug, Default)]
pub(crate) struct Watched(Option<OwnedFd>);

impl Watched {
    /// Registers a descriptor.
    pub(crate) fn new(
        fd: OwnedFd,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<Self> {
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, interest)?;
        Ok(Self(Some(fd)))
    }

    /// Holds a descriptor that is registered already, or cannot be.
    pub(crate) const fn held(fd: OwnedFd) -> Self {
        Self(Some(fd))
    }

    /// The descriptor, while it is open.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }

    /// Closes it. Deregisters first: a child between fork and exec may hold a copy, for which the
    /// kernel would keep announcing events.
    pub(crate) fn close(&mut self, registry: &Registry) {
        if let Some(fd) = self.0.take() {
            let _ = registry.deregister(&mut SourceFd(&fd.as_raw_fd()));
        }
    }
}

/// The supervisor's ends of one job's pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    stdout: Watched,
    stderr: Watched,
    kept: SharedOutput,
    copy: Option<Arc<dyn TakeOutput>>,
    last_line: LastLine,
    progress: Watched,
    lines: Lines,
    throttle: Throttle,
    stdin: Watched,
    input: Vec<u8>,
    written: usize,
}

/// Identifies a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pipe {
    Stdout,
    Stderr,
    Progress,
    Stdin,
}

/// Remaining work for a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// An event will announce more.
    Waiting,
    /// More data is available without an event; continue in the next turn.
    More,
}

impl Pipes {
    /// Creates a job's pipes; also returns the tool's ends, for its descriptors 0 to 3.
    ///
    /// `null` is standard input of a tool without input.
    pub(crate) fn new(
        registry: &Registry,
        token: impl Fn(Pipe) -> Token,
        input: Option<Vec<u8>>,
        output: &OutputOptions,
        null: &File,
        handed_out: Option<&CommandPipes>,
    ) -> io::Result<(Self, [OwnedFd; 4])> {
        if let Some(pipes) = handed_out {
            return Self::beside(registry, &token, pipes, output, null);
        }
        let watch_read = |pipe| -> io::Result<(Watched, OwnedFd)> {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            ioctl_fionbio(&ours, true)?;
            Ok((Watched::new(ours, registry, token(pipe), Interest::READABLE)?, theirs))
        };
        let (stdout, stdout_theirs) = watch_read(Pipe::Stdout)?;
        let (stderr, stderr_theirs) = match output.merged {
            true => (Watched::default(), stdout_theirs.try_clone()?),
            false => watch_read(Pipe::Stderr)?,
        };
        let (progress, progress_theirs) = watch_read(Pipe::Progress)?;
        // Failure only costs memory.
        let _ = fcntl_setpipe_size(&progress_theirs, PROGRESS_PIPE_BYTES);
        let (stdin, stdin_theirs) = match &input {
            Some(_) => {
                let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
                ioctl_fionbio(&ours, true)?;
                (Watched::new(ours, registry, token(Pipe::Stdin), Interest::WRITABLE)?, theirs)
            }
            None => (Watched::default(), null.try_clone()?.into()),
        };
        let mut pipes = Self {
            stdout,
            stderr,
            kept: output.kept.clone(),
            copy: output.copy.clone(),
            last_line: LastLine::new(output.lines, output.progress.clone()),
            progress,
            lines: Lines::default(),
            throttle: Throttle::default(),
            stdin,
            input: input.unwrap_or_default(),
            written: 0,
        };
        // Most inputs fit the pipe, which saves the descriptor.
        pipes.write(registry);
        Ok((pipes, [stdin_theirs, stdout_theirs, stderr_theirs, progress_theirs]))
    }

    /// Creates the pipes of a job whose standard input and output are handed out to the caller.
    fn beside(
        registry: &Registry,
        token: &impl Fn(Pipe) -> Token,
        handed_out: &CommandPipes,
        output: &OutputOptions,
        null: &File,
    ) -> io::Result<(Self, [OwnedFd; 4])> {
        let [stdin_theirs, stdout_theirs] = handed_out.copies()?;
        let (ours, stderr_theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        ioctl_fionbio(&ours, true)?;
        let pipes = Self {
            stdout: Watched::default(),
            stderr: Watched::new(ours, registry, token(Pipe::Stderr), Interest::READABLE)?,
            kept: output.kept.clone(),
            copy: output.copy.clone(),
            last_line: LastLine::new(output.lines, None),
            progress: Watched::default(),
            lines: Lines::default(),
            throttle: Throttle::default(),
            stdin: Watched::default(),
            input: Vec::new(),
            written: 0,
        };
        Ok((pipes, [stdin_theirs, stdout_theirs, stderr_theirs, null.try_clone()?.into()]))
    }

    /// Transfers available data of one pipe, at most one turn's worth.
    pub(crate) fn turn(
        &mut self,
        pipe: Pipe,
        registry: &Registry,
        scratch: &mut [u8],
        told: &mut dyn FnMut(Progress),
    ) -> Flow {
        match pipe {
            Pipe::Stdin => {
                self.write(registry);
                Flow::Waiting
            }
            Pipe::Stdout => self.pull_output(Stream::Stdout, registry, scratch, TURN_BYTES, told),
            Pipe::Stderr => self.pull_output(Stream::Stderr, registry, scratch, TURN_BYTES, told),
            Pipe::Progress => {
                let (lines, throttle, now) = (&mut self.lines, &mut self.throttle, Instant::now());
                let mut found = |progress| throttle.pass(now, progress, told);
                pull(&mut self.progress, registry, scratch, TURN_BYTES, |bytes| {
                    lines.push(bytes, &mut found);
                })
            }
        }
    }

    /// Reads the available data of an output stream.
    fn pull_output(
        &mut self,
        stream: Stream,
        registry: &Registry,
        scratch: &mut [u8],
        bytes_max: usize,
        told: &mut dyn FnMut(Progress),
    ) -> Flow {
        let (pipe, number) = match stream {
            Stream::Stdout => (&mut self.stdout, 0),
            Stream::Stderr => (&mut self.stderr, 1),
        };
        let (kept, last_line) = (&self.kept, &mut self.last_line);
        let copy = self.copy.as_ref().filter(|_| stream == Stream::Stderr);
        let (throttle, now) = (&mut self.throttle, Instant::now());
        pull(pipe, registry, scratch, bytes_max, |bytes| {
            kept.push(stream, bytes);
            if let Some(copy) = copy {
                copy.take(bytes);
            }
            last_line.push(number, bytes, &mut |progress| throttle.pass(now, progress, told));
        })
    }

    /// The last line of output, when it is time to report it.
    pub(super) fn take_line(&mut self) -> Option<String> {
        if self.last_line.waits() { self.last_line.take(Instant::now()) } else { None }
    }

    /// Delivers a delayed progress report when due; true while one is delayed.
    pub(crate) fn tick(&mut self, told: &mut dyn FnMut(Progress)) -> bool {
        self.throttle.tick(Instant::now(), told);
        self.throttle.latest.is_some()
    }

    /// Whether a progress report or a line is held back.
    pub(crate) const fn holds_reports(&self) -> bool {
        self.throttle.latest.is_some() || self.last_line.waits()
    }

    /// Reads the remaining data of an ended job without waiting for end of file, which a process
    /// outside the job may prevent forever.
    pub(crate) fn finish(
        &mut self,
        registry: &Registry,
        scratch: &mut [u8],
        told: &mut dyn FnMut(Progress),
    ) -> (Captured, Captured) {
        let max = LAST_BYTES_MAX;
        self.pull_output(Stream::Stdout, registry, scratch, max, told);
        self.pull_output(Stream::Stderr, registry, scratch, max, told);
        let (lines, throttle, now) = (&mut self.lines, &mut self.throttle, Instant::now());
        let mut found = |progress| throttle.pass(now, progress, told);
        pull(&mut self.progress, registry, scratch, max, |bytes| lines.push(bytes, &mut found));
        lines.finish(&mut found);
        if let Some(progress) = self.throttle.latest.take() {
            told(progress);
        }
        self.close(registry);
        (self.kept.captured(Stream::Stdout), self.kept.captured(Stream::Stderr))
    }

    /// Closes the pipes and drops unreported data.
    pub(crate) fn discard(&mut self, registry: &Registry) {
        self.close(registry);
        self.kept = SharedOutput::default();
        self.throttle.latest = None;
        self.last_line = LastLine::new(false, None);
    }

    fn close(&mut self, registry: &Registry) {
        for pipe in [&mut self.stdout, &mut self.stderr, &mut self.progress, &mut self.stdin] {
            pipe.close(registry);
        }
        self.input = Vec::new();
    }

    /// Writes as much input as the tool accepts; closes the pipe after the last byte, or if it has
    /// no reader.
    fn write(&mut self, registry: &Registry) {
        while let Some(fd) = self.stdin.fd() {
            let left = self.input.get(self.written..).unwrap_or_default();
            if !left.is_empty() {
                match write(fd, left) {
                    Ok(n) => {
                        self.written += n;
                        continue;
                    }
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) => return,
                    Err(_) => {}
                }
            }
            self.stdin.close(registry);
            self.input = Vec::new();
        }
    }
}

/// Reads until the pipe is empty, has ended, or `bytes_max` is reached.
fn pull(
    pipe: &mut Watched,
    registry: &Registry,
    scratch: &mut [u8],
    bytes_max: usize,
    mut take: impl FnMut(&[u8]),
) -> Flow {
    let mut taken = 0;
    while let Some(fd) = pipe.fd() {
        if taken >= bytes_max {
            return Flow::More;
        }
        match read(fd, &mut *scratch) {
            Ok(n) if n > 0 => {
                taken += n;
                take(scratch.get(..n).unwrap_or_default());
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Ok(_) | Err(_) => pipe.close(registry),
        }
    }
    Flow::Waiting
}

/// Rate limit of progress reports.
#[derive(Debug, Default)]
struct Throttle {
    window: Option<Instant>,
    passed: u32,
    latest: Option<Progress>,
}

impl Throttle {
    fn pass(&mut self, now: Instant, progress: Progress, told: &mut dyn FnMut(Progress)) {
        self.roll(now);
        if self.passed < PROGRESS_MAX {
            self.passed += 1;
            self.latest = None;
            told(progress);
        } else {
            self.latest = Some(progress);
        }
    }

    fn tick(&mut self, now: Instant, told: &mut dyn FnMut(Progress)) {
        self.roll(now);
        if let Some(progress) = self.latest.take_if(|_| self.passed < PROGRESS_MAX) {
            self.passed += 1;
            told(progress);
        }
    }

    fn roll(&mut self, now: Instant) {
        let is_over = self.window.is_none_or(|start| now - start >= PROGRESS_WINDOW);
        if is_over {
            self.window = Some(now);
            self.passed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_of_progress_delivers_the_last_report() {
        let mut throttle = Throttle::default();
        let mut told = Vec::new();
        let start = Instant::now();
        let report = |n: u32| Progress { progress: n.into(), total: None, message: None };
        for n in 0..1000 {
            throttle.pass(start, report(n), &mut |p| told.push(p.progress));
        }
        throttle.tick(start, &mut |p| told.push(p.progress));
        assert_eq!(told.len(), 100);
        let later = start + PROGRESS_WINDOW;
        throttle.tick(later, &mut |p| told.push(p.progress));
        throttle.tick(later, &mut |p| told.push(p.progress));
        assert_eq!(told.get(100..), Some(&[999.0][..]));
        throttle.pass(later, report(1000), &mut |p| told.push(p.progress));
        assert_eq!(told.last(), Some(&1000.0));
    }
}
