//! `ceased connect`: copies stdin to a daemon and its output to stdout, without parsing.
//!
//! The end of stdin is passed on, and so is the daemon's output within a grace period, however
//! slowly stdout is read. Then the bridge disconnects, which ends the work of its peer: for an MCP
//! host, the end of stdin ends a session, as with `ceased stdio`. Standard streams keep their
//! blocking modes, and a full one does not stop the other direction.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::Shutdown;

use super::args::ConnectArgs;
use super::discover;
use super::{Backend, DaemonLocation, Exit, Failure, Io, spawn};
use ceased_client::Part;
use ceased_client::io::{NonblockingWriter, is_gone, poll, read};

/// Buffer size of each direction.
const LANE_BYTES: usize = 64 * 1024;
/// Maximum bytes read after the grace period: more than a daemon buffers for one peer.
const LATE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Time without progress of stdout after the end of the input at which the bridge gives up.
const READER_TIME_LIMIT: Duration = Duration::from_secs(10);

/// Runs the command.
pub(super) fn connect(
    args: &ConnectArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    let (endpoints, ignored) = discover::places(&args.daemon, io, backend)?;
    let token = discover::token(&args.daemon, io)?;
    let site = backend.site(args.daemon.config.as_deref());
    let configured =
        site.as_ref().map_or(DaemonLocation::default().eof_grace, |site| site.eof_grace);
    let grace = args.eof_grace.unwrap_or(configured);
    let reached = discover::first_reachable(&endpoints);
    let spawns = args.spawn && reached.as_ref().is_err_and(|unreachable| unreachable.is_absent);
    // The failure of a start names it as well.
    if let Some(ignored) = ignored.filter(|_| !spawns) {
        io.say(&ignored);
    }
    let daemon = match reached {
        Ok((socket, endpoint)) => {
            if args.spawn {
                spawn::check(&socket, endpoint, io)?;
            }
            socket
        }
        Err(_) if spawns => spawn::connect(&endpoints, &site?, grace, io)?,
        Err(unreachable) => return Err(unreachable.into()),
    };
    // A token is used only with `--tcp`, which is then the only endpoint.
    if let Some(endpoint) = endpoints.first() {
        if let Some(agent) = &args.agent {
            discover::introduce_to_agent(daemon.as_fd(), endpoint, token, agent)?;
        } else if let Some(profile) = &args.profile {
            discover::introduce_to(daemon.as_fd(), endpoint, token, Part::Profile(profile))?;
        } else if args.server.is_empty() {
            discover::introduce(daemon.as_fd(), endpoint, token)?;
        } else {
            discover::introduce_to(daemon.as_fd(), endpoint, token, Part::Servers(&args.server))?;
        }
    }
    match bridge(io.input, io.output, daemon.as_fd(), grace) {
        Ok(Ended::Input) => Ok(Exit::Done),
        Ok(Ended::Daemon) => Err(Failure::new(
            Exit::Unreachable,
            "the daemon closed the connection before the end of the input",
        )),
        Err(why) => {
            Err(Failure::new(Exit::Failed, format!("the connection to the daemon failed: {why}")))
        }
    }
}

/// The side that ended a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// The input.
    Input,
    /// The daemon.
    Daemon,
}

/// Copies until the daemon closes, or until `grace` after the end of the input; bytes read by then
/// are written.
fn bridge(
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    daemon: BorrowedFd<'_>,
    grace: Duration,
) -> io::Result<Ended> {
    let mut up = Lane::new(input, daemon)?;
    let mut down = Lane::new(daemon, output)?;
    let mut is_shut = false;
    let now = Instant::now();
    let mut leaving = Leaving { at: None, written: now, taken: now, late: 0 };
    while !down.is_done() {
        if up.is_done() && !is_shut {
            // A disconnected daemon is detected by the read.
            let _ = rustix::net::shutdown(daemon, Shutdown::Write);
            is_shut = true;
        }
        let deadline = leaving.deadline(&up, &down);
        let steps = ready(&up, &down, leaving.at.is_none(), deadline)?;
        if deadline.is_some_and(|at| at <= Instant::now()) && !leaving.is_put_off(&steps) {
            break;
        }
        for step in steps {
            match step {
                Step::ReadUp => {
                    up.read()?;
                    leaving.at = up.has_ended.then(|| Instant::now() + grace);
                }
                Step::ReadDown => {
                    down.read()?;
                    leaving.note_read(&down);
                }
                Step::WriteUp => {
                    // Output of the daemon before it stopped reading is still passed on.
                    up.write().unwrap_or_else(|_| up.give_up());
                    leaving.taken = Instant::now();
                }
                // The rest of the input is not read before the daemon accepts the earlier part.
                Step::InputEnds => leaving.at = Some(Instant::now() + grace),
                Step::WriteDown => {
                    down.write()?;
                    leaving.written = Instant::now();
                }
                Step::OutputGone => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }
    Ok(if leaving.at.is_some() { Ended::Input } else { Ended::Daemon })
}

/// When the bridge disconnects.
struct Leaving {
    /// End of the grace period; `None` before the end of the input.
    at: Option<Instant>,
    /// Time of the last progress of the output.
    written: Instant,
    /// Time of the last progress of the daemon's input.
    taken: Instant,
    /// Bytes read after the grace period.
    late: usize,
}

impl Leaving {
    /// Bytes waiting for a slow reader were sent in time: wait for the output as well as for the
    /// daemon.
    fn deadline(&self, up: &Lane<'_>, down: &Lane<'_>) -> Option<Instant> {
        let mut at = self.at?;
        for (lane, since) in [(up, self.taken), (down, self.written)] {
            if lane.wants_write() {
                at = at.max(since + READER_TIME_LIMIT);
            }
        }
        Some(at)
    }

    /// Whether bytes sent in time, as far as known, are available.
    fn is_put_off(&self, steps: &[Step]) -> bool {
        steps.contains(&Step::WriteDown)
            || steps.contains(&Step::WriteUp)
            || steps.contains(&Step::ReadUp)
            || steps.contains(&Step::ReadDown) && self.late < LATE_BYTES_MAX
    }

    fn note_read(&mut self, down: &Lane<'_>) {
        if self.at.is_some_and(|at| at <= Instant::now()) {
            self.late += down.end - down.start;
        }
    }
}

/// A step that does not block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    ReadUp,
    ReadDown,
    WriteUp,
    WriteDown,
    /// The input has no writer, while the daemon has not accepted all of it.
    InputEnds,
    /// The output has no reader.
    OutputGone,
}

/// Waits until a step is possible, or until the deadline.
fn ready(
    up: &Lane<'_>,
    down: &Lane<'_>,
    is_open: bool,
    deadline: Option<Instant>,
) -> io::Result<Vec<Step>> {
    let wishes = [
        (Step::ReadUp, up.wants_read(), up.from, PollFlags::IN),
        (Step::WriteUp, up.wants_write(), up.to, PollFlags::OUT),
        (Step::ReadDown, down.wants_read(), down.from, PollFlags::IN),
        (Step::WriteDown, down.wants_write(), down.to, PollFlags::OUT),
        // Without requested events, poll still reports errors and hang-ups.
        (Step::InputEnds, is_open && !up.has_ended && up.wants_write(), up.from, PollFlags::RDHUP),
        (Step::OutputGone, !down.wants_write(), down.to, PollFlags::empty()),
    ];
    let wishes: Vec<_> = wishes.into_iter().filter(|(_, is_wanted, ..)| *is_wanted).collect();
    let mut fds: Vec<PollFd<'_>> =
        wishes.iter().map(|(_, _, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    poll(&mut fds, deadline)?;
    let steps = wishes.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
    Ok(steps.map(|((step, ..), _)| *step).collect())
}

/// One direction.
struct Lane<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    nozzle: NonblockingWriter,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    has_ended: bool,
}

impl<'a> Lane<'a> {
    fn new(from: BorrowedFd<'a>, to: BorrowedFd<'a>) -> io::Result<Self> {
        let bytes = vec![0; LANE_BYTES].into();
        let nozzle = NonblockingWriter::of(to)?;
        Ok(Self { from, to, nozzle, bytes, start: 0, end: 0, has_ended: false })
    }

    /// Whether all bytes were passed on and the source has ended.
    const fn is_done(&self) -> bool {
        self.has_ended && !self.wants_write()
    }

    const fn wants_read(&self) -> bool {
        !self.has_ended && !self.wants_write()
    }

    const fn wants_write(&self) -> bool {
        self.start < self.end
    }

    fn read(&mut self) -> io::Result<()> {
        match read(self.from, &mut self.bytes) {
            Ok(Some(0)) => self.has_ended = true,
            Ok(Some(count)) => (self.start, self.end) = (0, count),
            Ok(None) => {}
            Err(why) if is_gone(&why) => self.has_ended = true,
            Err(why) => return Err(why),
        }
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let rest = self.bytes.get(self.start..self.end).unwrap_or_default();
        if let Some(count) = self.nozzle.write(self.to, rest)? {
            self.start += count;
        }
        Ok(())
    }

    fn give_up(&mut self) {
        self.has_ended = true;
        self.start = self.end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    /// The bridge in a thread, and the far ends of its three descriptors. Dropping the daemon's end
    /// stops it.
    struct Bridge {
        input: Option<io::PipeWriter>,
        output: io::PipeReader,
        daemon: UnixStream,
        thread: thread::JoinHandle<io::Result<Ended>>,
    }

    fn start() -> Bridge {
        start_with(Duration::from_secs(60))
    }

    fn start_with(grace: Duration) -> Bridge {
        let (stdin, input) = io::pipe().unwrap();
        let (output, stdout) = io::pipe().unwrap();
        let (daemon, ours) = UnixStream::pair().unwrap();
        let thread =
            thread::spawn(move || bridge(stdin.as_fd(), stdout.as_fd(), ours.as_fd(), grace));
        Bridge { input: Some(input), output, daemon, thread }
    }

    #[test]
    fn end_of_input_is_passed_on_and_answers_are_received() {
        let mut bridge = start();
        bridge.input.take().unwrap().write_all(b"not even JSON").unwrap();
        let mut heard = String::new();
        bridge.daemon.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "not even JSON");
        bridge.daemon.write_all(b"late answer").unwrap();
        drop(bridge.daemon);
        bridge.output.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "not even JSONlate answer");
        assert_eq!(bridge.thread.join().unwrap().unwrap(), Ended::Input);
    }

    #[test]
    fn daemon_that_continues_after_the_grace_period_is_disconnected() {
        let mut bridge = start_with(Duration::from_millis(50));
        drop(bridge.input.take());
        let mut heard = String::new();
        bridge.output.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "");
        assert_eq!(bridge.thread.join().unwrap().unwrap(), Ended::Input);
        drop(bridge.daemon);
    }

    /// More than the buffers of bridge and pipe.
    #[test]
    fn output_sent_in_time_is_passed_on_to_a_slow_reader() {
        let mut bridge = start_with(Duration::ZERO);
        let said = "x".repeat(150_000);
        bridge.daemon.write_all(said.as_bytes()).unwrap();
        drop(bridge.input.take());
        let mut heard = String::new();
        bridge.output.read_to_string(&mut heard).unwrap();
        assert!(heard == said, "{} of {} bytes", heard.len(), said.len());
        assert_eq!(bridge.thread.join().unwrap().unwrap(), Ended::Input);
        drop(bridge.daemon);
    }

    /// Bytes the daemon has not accepted hide the end of the input.
    #[test]
    fn end_of_input_is_detected_although_the_daemon_does_not_read() {
        let mut bridge = start_with(Duration::ZERO);
        let input = bridge.input.take().unwrap();
        rustix::io::ioctl_fionbio(&input, true).unwrap();
        let mut since = Instant::now();
        // Until all buffers between the two are full.
        while since.elapsed() < Duration::from_secs(1) {
            match rustix::io::write(&input, &[b'x'; 4096]) {
                Ok(_) => since = Instant::now(),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        drop(input);
        assert_eq!(bridge.thread.join().unwrap().unwrap(), Ended::Input);
        drop(bridge.daemon);
    }

    #[test]
    fn long_input_is_passed_on_to_a_slow_daemon() {
        let mut bridge = start_with(Duration::ZERO);
        let mut input = bridge.input.take().unwrap();
        let feed = thread::spawn(move || input.write_all(&[b'x'; 1_000_000]));
        let mut heard = 0;
        let mut part = [0; 50_000];
        while heard < 1_000_000 {
            thread::sleep(Duration::from_millis(20));
            let count = bridge.daemon.read(&mut part).unwrap();
            assert!(count > 0, "{heard} bytes were passed on");
            heard += count;
        }
        feed.join().unwrap().unwrap();
        assert_eq!(bridge.thread.join().unwrap().unwrap(), Ended::Input);
        drop(bridge.daemon);
    }

    #[test]
    fn closing_daemon_ends_the_bridge_while_stdin_is_open() {
        let mut bridge = start();
        bridge.daemon.write_all(b"bye").unwrap();
        drop(bridge.daemon);
        let mut heard = String::new();
        bridge.output.read_to_string(&mut heard).unwrap();
        assert_eq!(bridge.thread.join().unwrap().unwrap(), Ended::Daemon);
        assert_eq!(heard, "bye");
        drop(bridge.input);
    }

    #[test]
    fn full_stdout_does_not_block_stdin() {
        const MUCH: usize = 4 * 1024 * 1024;
        let mut bridge = start();
        let mut talker = bridge.daemon.try_clone().unwrap();
        let talk = thread::spawn(move || talker.write_all(&vec![b'd'; MUCH]));
        // Standard output has no reader yet.
        let mut input = bridge.input.take().unwrap();
        let feed = thread::spawn(move || input.write_all(&vec![b'u'; MUCH]));
        let mut up = Vec::new();
        bridge.daemon.read_to_end(&mut up).unwrap();
        assert_eq!(up.len(), MUCH);
        feed.join().unwrap().unwrap();
        let mut down = vec![0; MUCH];
        bridge.output.read_exact(&mut down).unwrap();
        talk.join().unwrap().unwrap();
        assert!(up.iter().all(|b| *b == b'u') && down.iter().all(|b| *b == b'd'));
        drop(bridge.daemon);
        bridge.thread.join().unwrap().unwrap();
    }

    #[test]
    fn closed_stdout_ends_the_bridge() {
        let bridge = start();
        drop(bridge.output);
        let error = bridge.thread.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        drop((bridge.input, bridge.daemon));
    }
}
