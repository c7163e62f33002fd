//! Ways to create a process, beside `posix_spawn` of the same program: sharing memory until exec, a
//! fork by a process of the size of a guard, a fork by one of the size of a daemon, and a fork in a
//! small helper process that is asked over a socket, as a keeper would be.
//!
//! `cargo bench -p ceased-process --features bench --bench spawn`
//!
//! All ways alternate, so that other load affects them alike: compare the ratios.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ceased_process::spawn_ways::{Way, start};
use rustix::process::{WaitId, WaitIdOptions, waitid};

const PROGRAM: &str = "/bin/true";
const TIMES: usize = 1000;
/// Bytes of written memory of a daemon with some connections and tasks.
const DAEMON_BYTES: usize = 16 << 20;
const PAGE: usize = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("helper") => return serve(Way::Forked, 0),
        Some("daemon") => return serve(Way::Forked, DAEMON_BYTES),
        Some("daemon-shared") => return serve(Way::Shared, DAEMON_BYTES),
        _ => {}
    }
    // `cargo test` runs the benchmark too, without `--bench`.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let [mut helper, mut daemon, mut shared] =
        ["helper", "daemon", "daemon-shared"].map(Helper::start);
    let names = [
        "posix_spawn",
        "shared memory, small process",
        "fork, small process",
        "shared memory, process of 16 MiB",
        "fork, process of 16 MiB",
        "fork in a helper, with its socket",
    ];
    let mut times: [Vec<Duration>; 6] = Default::default();
    for round in 0..TIMES + 20 {
        let all = [
            timed(posix_spawn),
            timed(|| wait(&start(PROGRAM, Way::Shared).unwrap())),
            timed(|| wait(&start(PROGRAM, Way::Forked).unwrap())),
            shared.run(),
            daemon.run(),
            timed(|| _ = helper.run()),
        ];
        if round >= 20 {
            times.iter_mut().zip(all).for_each(|(times, time)| times.push(time));
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    let alone = times[0][TIMES / 2].as_secs_f64();
    for (name, times) in names.iter().zip(&times) {
        let median = times[TIMES / 2].as_secs_f64();
        println!("{name:>34}: {:4.0} us, {:.2} of posix_spawn", median * 1e6, median / alone);
    }
}

fn timed(run: impl FnOnce()) -> Duration {
    let since = Instant::now();
    run();
    since.elapsed()
}

fn posix_spawn() {
    let mut command = Command::new(PROGRAM);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
}

fn wait(pidfd: &OwnedFd) {
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED).unwrap();
    assert_eq!(status.unwrap().exit_status(), Some(0));
}

/// A process that runs a program for each byte it reads, and answers with the time it took.
struct Helper {
    child: Child,
    socket: UnixStream,
}

impl Helper {
    fn start(name: &str) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(name).stdin(Stdio::from(OwnedFd::from(theirs)));
        Self { child: command.spawn().unwrap(), socket }
    }

    fn run(&mut self) -> Duration {
        self.socket.write_all(b"x").unwrap();
        let mut nanos = [0; 8];
        self.socket.read_exact(&mut nanos).unwrap();
        Duration::from_nanos(u64::from_ne_bytes(nanos))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(way: Way, bytes: usize) {
    let mut memory = vec![0_u8; bytes];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut socket = UnixStream::from(socket);
    while socket.read_exact(&mut [0]).is_ok() {
        let took = timed(|| wait(&start(PROGRAM, way).unwrap()));
        let nanos = u64::try_from(took.as_nanos()).unwrap();
        socket.write_all(&nanos.to_ne_bytes()).unwrap();
    }
    black_box(memory);
}
