//! What moving bytes takes: frames cut out of what was read, and answers written, through a socket
//! of this machine as the daemon uses it.
//!
//! `cargo bench -p ceased-transports --bench link`
//!
//! A harness of its own, as the engine's benchmark has, and for the same reason.

#![allow(clippy::disallowed_methods, reason = "a benchmark asks for the time")]

use std::hint::black_box;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ceased_core::frame::{Frame, Outbox};
use ceased_core::limits::FrameLimits;
use ceased_transports::{Link, SCRATCH_BYTES, Sent, Socket};
use mio::{Poll, Token};

/// Runs of which the quickest counts: what else the machine does only ever takes longer.
const RUNS: usize = 51;
/// Bytes of a small message, such as a call and its answer.
const SMALL: usize = 128;
/// Bytes of a large one.
const LARGE: usize = 1 << 20;

fn main() -> io::Result<()> {
    // `cargo test` runs it too; there is nothing to time then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("{:36} {:>12} {:>12}", "", "ns each", "MB/s");
    for count in [1, 16, 128] {
        let name = format!("receive {count} frames of {SMALL} bytes");
        show(&name, count, SMALL, || receive(count, SMALL))?;
    }
    show("receive a frame of 1 MiB", 1, LARGE, || receive(1, LARGE))?;
    for count in [1, 16, 128] {
        let name = format!("send {count} frames of {SMALL} bytes");
        show(&name, count, SMALL, || send(count, SMALL))?;
    }
    show("send a frame of 1 MiB", 1, LARGE, || send(1, LARGE))
}

/// Prints what one of `count` frames of `bytes` takes.
fn show(
    name: &str,
    count: usize,
    bytes: usize,
    run: impl Fn() -> io::Result<Duration>,
) -> io::Result<()> {
    let mut least = Duration::MAX;
    for _ in 0..RUNS {
        least = least.min(run()?);
    }
    let nanos = least.as_nanos() as f64 / count as f64;
    println!("{name:36} {nanos:>12.0} {:>12.0}", bytes as f64 * 1000.0 / nanos);
    Ok(())
}

fn pair() -> io::Result<(Poll, Link, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut link = Link::new(Box::new(Socket::from_unix(ours)?), FrameLimits::default());
    let poll = Poll::new()?;
    link.register(poll.registry(), Token(0))?;
    Ok((poll, link, theirs))
}

/// A message of so many bytes, with its line end.
fn line(bytes: usize) -> Vec<u8> {
    let mut line = br#"{"text":""#.to_vec();
    line.resize(bytes - 3, b'x');
    line.extend_from_slice(b"\"}\n");
    line
}

/// The time it takes to read frames that have arrived, or arrive meanwhile.
fn receive(count: usize, bytes: usize) -> io::Result<Duration> {
    let (_poll, mut link, mut theirs) = pair()?;
    let text = line(bytes).repeat(count);
    let writer = std::thread::spawn(move || theirs.write_all(&text).map(|()| theirs));
    // Small ones are all there before the clock starts.
    let theirs = if count * bytes < SCRATCH_BYTES { Some(writer.join()) } else { None };
    let mut scratch = vec![0; SCRATCH_BYTES];
    let (mut frames, mut size) = (0, 0);
    let began = Instant::now();
    while frames < count {
        link.note(ceased_transports::Readiness { readable: true, ..Default::default() });
        let flow = link.receive(&mut scratch, usize::MAX, &mut |frame: Frame<'_>| {
            if let Frame::Line(line) = frame {
                frames += 1;
                size += line.len();
            }
        });
        let _ = black_box(flow.map_err(|lost| io::Error::other(lost.to_string()))?);
    }
    let took = began.elapsed();
    assert_eq!(size, count * (bytes - 1));
    drop(theirs);
    Ok(took)
}

/// The time it takes to write frames and hand them to the system.
fn send(count: usize, bytes: usize) -> io::Result<Duration> {
    let (poll, mut link, mut theirs) = pair()?;
    let text = line(bytes);
    let text = text.trim_ascii_end();
    let all = count * bytes;
    let reader = std::thread::spawn(move || {
        let mut left = vec![0; all];
        theirs.read_exact(&mut left).map(|()| theirs)
    });
    let mut outbox = Outbox::new();
    let began = Instant::now();
    for _ in 0..count {
        outbox.line(text);
    }
    loop {
        link.note(ceased_transports::Readiness { writable: true, ..Default::default() });
        match link.send(&mut outbox, poll.registry()) {
            Sent::Everything => break,
            Sent::Blocked => std::thread::yield_now(),
            Sent::Lost => return Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
    let took = began.elapsed();
    let whole = reader.join().map_err(|_| io::Error::other("the reader panicked"))?;
    whole.map(|_| took)
}
