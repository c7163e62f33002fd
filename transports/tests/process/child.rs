//! The child: an echo over its standard input and output, and the commands of the other tests.

use std::process::ExitCode;

use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::Frame;
use ceased_core::rpc::send_queue::SendQueue;
use ceased_transports::{Flow, Link, SCRATCH_BYTES, Sent, Stdio, StdioError};
use mio::{Events, Poll, Token};
use rustix::fs::{Mode, fchmod};

use crate::limits;

/// The peer closed its end.
pub(crate) const FINISHED: u8 = 0;
/// Standard input or output is served in another way than the test expects.
pub(crate) const UNEXPECTED: u8 = 3;
/// Standard input or output is unsuitable.
pub(crate) const UNSUITABLE: u8 = 4;
/// The peer is lost.
pub(crate) const LOST: u8 = 9;

pub(crate) fn main(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["echo", input, output] => echo(Stdio::open(), input, output),
        ["echo-barred", input, output] => {
            bar_the_way();
            echo(Stdio::open(), input, output)
        }
        ["echo-taken-over", input, output] => {
            let stdio = Stdio::take_over();
            println!("a stray print");
            echo(stdio, input, output);
            // Only a signal ends this: the input of the peer must not depend on our exit.
            loop {
                std::thread::park();
            }
        }
        ["exhaust", dir] => limits::exhaust(dir),
        ["modes", dir] => limits::modes(dir),
        ["accept", path] => limits::accept(path),
        _ => panic!("unknown child {args:?}"),
    }
}

/// Makes opening standard input and output anew impossible, as when another user made them.
fn bar_the_way() {
    for fd in [rustix::stdio::stdin(), rustix::stdio::stdout()] {
        fchmod(fd, Mode::empty()).expect("the pipe is ours");
    }
    if rustix::process::geteuid().is_root() {
        let nobody = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
    }
}

/// Sends every line back; how it ended.
fn echo(stdio: Result<Stdio, StdioError>, input: &str, output: &str) -> ExitCode {
    let stdio = match stdio {
        Ok(stdio) => stdio,
        Err(error) => {
            eprintln!("{error}");
            return UNSUITABLE.into();
        }
    };
    let served = format!("{stdio:?}");
    if !served.contains(&format!("input: {input}"))
        || !served.contains(&format!("output: {output}"))
    {
        eprintln!("wanted {input} and {output}: {served}");
        return UNEXPECTED.into();
    }
    let mut link = Link::new(Box::new(stdio), FrameLimits::default());
    let mut poll = Poll::new().expect("poll");
    link.register(poll.registry(), Token(0)).expect("register");
    let (mut events, mut queue) = (Events::with_capacity(8), SendQueue::new());
    let mut scratch = vec![0; SCRATCH_BYTES];
    let mut finished = false;
    loop {
        let flow = link.receive(&mut scratch, SCRATCH_BYTES, &mut |frame: Frame<'_>| match frame {
            Frame::Line(line) => queue.line(line),
            Frame::TooLong(_) | Frame::NotJsonRpc(_) => panic!("{frame:?}"),
        });
        match flow {
            Ok(flow) => finished |= flow == Flow::Finished,
            Err(lost) => {
                eprintln!("{lost}");
                return LOST.into();
            }
        }
        let sent = link.send(&mut queue, poll.registry());
        if finished && sent == Sent::Everything {
            return FINISHED.into();
        }
        if flow.is_ok_and(|flow| flow != Flow::More) && sent != Sent::Lost {
            poll.poll(&mut events, None).expect("poll");
            events.iter().for_each(|event| link.on_event(event));
        }
    }
}
