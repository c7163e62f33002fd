//! Commands whose pipes are handed out, questions about the birth of their processes, and the end
//! of processes by their birth.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ceased::process::{
    Evidence, JobId, Launch, Order, Orphans, OwnPipes, Report, Stopped, Stream, stdio_pipes,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::process_kit::{Rig, TIME_LIMIT, Tier, assert_none_left, carriers, eventually, marker};
use crate::{argument, rig_with, run_alone, run_ordinary};

/// A server that obeys lines: each starts processes that carry `$1`, and is answered by a line.
const SERVER: &str = r#"
while read -r line; do
  case "$line" in
    child) sleep "$1" & ;;
    session) setsid sleep "$1" & ;;
    double) (setsid sh -c 'sleep "$0" & exec sleep "$0"' "$1" &) ;;
    stubborn) setsid sh -c 'trap "" TERM; sleep "$0"; true' "$1" & ;;
    heir) setsid sh -c 'trap "setsid sleep $0 & exit" TERM; sleep "$0" & wait' "$1" & ;;
    burn) i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done ;;
    complain) echo "something is wrong" >&2 ;;
  esac
  echo "done $line"
done
"#;

/// A launched server and the caller's ends of its pipes.
struct Server {
    job: JobId,
    stdin: File,
    stdout: BufReader<File>,
    marker: String,
}

impl Server {
    /// Starts the server below shells, as `npx` does.
    fn start(rig: &mut Rig, adapt: impl FnOnce(&mut Launch)) -> Self {
        let marker = marker();
        let nested = "sh -c 'sh -c \"$0\" sh \"$1\"; true' \"$0\" \"$1\"; true";
        let mut launch = rig.command(&["sh", "-c", nested, SERVER, &marker]);
        adapt(&mut launch);
        let (ours, theirs) = stdio_pipes().unwrap();
        launch.pipes = Some(theirs);
        let job = rig.launch(launch);
        let OwnPipes { stdin, stdout } = ours;
        let stdout = BufReader::new(stdout.into());
        let mut server = Self { job, stdin: stdin.into(), stdout, marker };
        // Its own shells are older than every instant that a test takes from here on.
        server.tell("begin");
        server
    }

    /// Sends a line and waits for its answer.
    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
        assert_eq!(self.hear(), format!("done {line}\n"));
    }

    fn hear(&mut self) -> String {
        let mut answer = String::new();
        while let Err(error) = self.stdout.read_line(&mut answer) {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            wait_readable(self.stdout.get_ref());
        }
        answer
    }

    /// Number of live processes that sleep for the marker.
    fn sleepers(&self) -> usize {
        let is_sleep = |(_, line): &(i32, String)| line.starts_with("sleep ");
        carriers(&self.marker).iter().filter(|found| is_sleep(found)).count()
    }

    fn wait_sleepers(&self, number: usize) {
        eventually("the sleepers run", || self.sleepers() == number);
    }
}

fn wait_readable(file: &File) {
    let within = Timespec::try_from(TIME_LIMIT).unwrap();
    let mut fds = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&within)).unwrap(), 1, "no output in time");
}

/// An instant that later births cannot share a clock tick with, nor earlier ones.
fn boundary() -> Instant {
    sleep(Duration::from_millis(25));
    let boundary = Instant::now();
    sleep(Duration::from_millis(25));
    boundary
}

fn examine(rig: &Rig, job: JobId, since: Instant) -> Evidence {
    rig.order(Order::Examine { ticket: 11, job, births: since.into() });
    loop {
        if let Report::Examined { ticket, evidence } = rig.report() {
            assert_eq!(ticket, 11);
            return evidence;
        }
    }
}

/// Numbers of ended and remaining processes.
fn end_born(rig: &Rig, job: JobId, since: Instant, grace: Duration) -> (u32, u32) {
    rig.order(Order::EndBorn { ticket: 12, job, births: since.into(), grace });
    loop {
        if let Report::BornEnded { ticket, ended, left, .. } = rig.report() {
            assert_eq!(ticket, 12);
            return (ended, left);
        }
    }
}

type Scenario = fn(&mut Rig, Tier);

/// Runs each scenario in every tier.
macro_rules! in_every_tier {
    ($($scenario:ident),+ $(,)?) => {
        const SCENARIOS: &[(&str, Scenario)] = &[$((stringify!($scenario), $scenario)),+];
        mod cgroup {
            $(#[test] fn $scenario() { super::run(super::Tier::Cgroup, super::$scenario); })+
        }
        mod guard {
            $(#[test] fn $scenario() { super::run(super::Tier::Guard, super::$scenario); })+
        }
        mod groups {
            $(#[test] fn $scenario() { super::run(super::Tier::Groups, super::$scenario); })+
        }
    };
}

in_every_tier!(
    pipes_carry_both_directions_and_end,
    full_pipe_blocks_no_caller,
    births_are_counted_from_an_instant,
    processes_born_since_end_and_the_others_live,
    process_that_ignores_sigterm_is_killed_after_the_grace,
    sigkill_after_the_grace_waits_for_no_poll,
    heir_of_a_stray_is_ended,
    process_born_after_the_order_lives,
    cpu_time_grows_with_work_only,
    end_of_file_then_signals_end_the_whole_tree,
);

fn run(tier: Tier, scenario: Scenario) {
    let Some(mut rig) = rig_with(tier, Orphans::Leave) else { return };
    scenario(&mut rig, tier);
    assert!(rig.supervisor.shutdown(TIME_LIMIT));
}

/// UPS-05, UPS-07, with the rights and the control groups of an ordinary user.
#[test]
fn ordinary_user_has_the_same_evidence() {
    for tier in ["Cgroup", "Guard", "Groups"] {
        if !run_ordinary("births::every_scenario", tier) {
            return;
        }
    }
}

/// As the daemon does: it adopts the orphans of its jobs, which only a process of its own may.
#[test]
fn adopting_process_has_the_same_evidence() {
    for tier in ["Cgroup", "Guard", "Groups"] {
        run_alone("births::every_scenario", tier);
    }
}

#[test]
#[ignore = "started by other tests"]
fn every_scenario() {
    let tier = match argument().as_deref() {
        Some("Cgroup") => Tier::Cgroup,
        Some("Guard") => Tier::Guard,
        Some("Groups") => Tier::Groups,
        _ => return,
    };
    for (name, scenario) in SCENARIOS {
        let Some(mut rig) = rig_with(tier, Orphans::Adopt) else { return };
        eprintln!("{tier:?} {name}");
        scenario(&mut rig, tier);
        assert!(rig.supervisor.shutdown(TIME_LIMIT));
    }
}

fn pipes_carry_both_directions_and_end(rig: &mut Rig, _: Tier) {
    let mut server = Server::start(rig, |_| {});
    server.tell("one");
    server.tell("complain");
    let mut nothing = [0];
    let error = server.stdout.read(&mut nothing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "the caller's end is non-blocking");
    let Server { job, stdin, mut stdout, .. } = server;
    drop(stdin);
    let exit = rig.wait_exit(job);
    assert_eq!((exit.code, exit.stopped), (Some(0), Stopped::No));
    assert_eq!(exit.stderr.text(), "something is wrong\n");
    assert_eq!(exit.stdout.total(), 0, "its caller reads it");
    assert_eq!(stdout.read(&mut nothing).unwrap(), 0, "no copy of the pipe is left");
}

fn full_pipe_blocks_no_caller(rig: &mut Rig, _: Tier) {
    let mut launch = rig.command(&["sh", "-c", "read -r line; exec cat"]);
    let (ours, theirs) = stdio_pipes().unwrap();
    launch.pipes = Some(theirs);
    let kept = launch.output.kept.clone();
    let job = rig.launch(launch);
    let (mut stdin, mut stdout) = (File::from(ours.stdin), File::from(ours.stdout));
    // The pipes and cat hold some hundred KiB.
    let block = [b'\n'; 4096];
    let (mut written, until) = (0, Instant::now() + TIME_LIMIT);
    let error = loop {
        match stdin.write(&block) {
            Ok(n) => written += n,
            Err(error) => break error,
        }
        assert!(Instant::now() < until && written < 64 << 20, "the pipe never fills");
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    drop(stdin);
    let (mut read, mut bytes) = (0, vec![0; 64 << 10]);
    loop {
        match stdout.read(&mut bytes) {
            Ok(0) => break,
            Ok(n) => read += n,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                wait_readable(&stdout);
            }
        }
    }
    assert_eq!(read + 1, written, "all but the line that the shell took");
    assert_eq!(rig.wait_exit(job).code, Some(0));
    assert_eq!(kept.captured(Stream::Stdout).total(), 0);
}

fn births_are_counted_from_an_instant(rig: &mut Rig, tier: Tier) {
    let mut server = Server::start(rig, |_| {});
    server.tell("child");
    server.wait_sleepers(1);
    let since = boundary();
    let none = examine(rig, server.job, since).born;
    // Process groups cannot exclude a process in a session of its own.
    assert_eq!(none, (tier != Tier::Groups).then_some(0));
    server.tell("session");
    server.wait_sleepers(2);
    assert_eq!(examine(rig, server.job, since).born, Some(1));
    server.tell("double");
    server.wait_sleepers(4);
    let born = examine(rig, server.job, since).born;
    // The parents of the last two have exited, so process groups have lost them.
    assert_eq!(born, Some(if tier == Tier::Groups { 1 } else { 3 }));
    let later = boundary();
    assert_eq!(examine(rig, server.job, later).born, none);
    assert_eq!(examine(rig, JobId::new(9999), later).born, Some(0), "a job that has ended");
    finish(rig, server, tier);
}

fn processes_born_since_end_and_the_others_live(rig: &mut Rig, tier: Tier) {
    let mut server = Server::start(rig, |_| {});
    server.tell("child");
    server.wait_sleepers(1);
    let since = boundary();
    server.tell("session");
    server.tell("child");
    server.wait_sleepers(3);
    if tier != Tier::Groups {
        server.tell("double");
        server.wait_sleepers(5);
    }
    let (ended, left) = end_born(rig, server.job, since, TIME_LIMIT);
    assert_eq!((ended, left), (if tier == Tier::Groups { 2 } else { 4 }, 0));
    assert_eq!(server.sleepers(), 1, "the process from before");
    server.tell("one");
    assert_eq!(end_born(rig, server.job, since, TIME_LIMIT), (0, 0));
    finish(rig, server, tier);
}

fn process_that_ignores_sigterm_is_killed_after_the_grace(rig: &mut Rig, tier: Tier) {
    let mut server = Server::start(rig, |_| {});
    let since = boundary();
    server.tell("stubborn");
    server.wait_sleepers(1);
    let grace = Duration::from_millis(200);
    let begun = Instant::now();
    let (ended, left) = end_born(rig, server.job, since, grace);
    assert!(begun.elapsed() >= grace, "{:?}", begun.elapsed());
    // The shell and its child, which inherits that it ignores the signal.
    assert_eq!((ended, left), (2, 0));
    assert_eq!(server.sleepers(), 0);
    server.tell("one");
    finish(rig, server, tier);
}

/// UPS-05: a grace between two polls of the supervisor, which are 20 ms apart; on a busy machine one
/// of several ends is in time.
fn sigkill_after_the_grace_waits_for_no_poll(rig: &mut Rig, tier: Tier) {
    let mut server = Server::start(rig, |_| {});
    let (grace, mut least) = (Duration::from_millis(110), Duration::MAX);
    let limit = Duration::from_millis(8);
    for _ in 0..40 {
        let since = boundary();
        server.tell("stubborn");
        server.wait_sleepers(1);
        let all = carriers(&server.marker);
        let (pid, _) = all.iter().find(|it| it.1.starts_with("sleep ")).unwrap();
        let process = pidfd_open(Pid::from_raw(*pid).unwrap(), PidfdFlags::empty()).unwrap();
        let begun = Instant::now();
        rig.order(Order::EndBorn { ticket: 12, job: server.job, births: since.into(), grace });
        wait_readable(&File::from(process));
        least = least.min(begun.elapsed().checked_sub(grace).expect("not before the grace"));
        while !matches!(rig.report(), Report::BornEnded { ended: 2, left: 0, .. }) {}
        if least < limit {
            break;
        }
    }
    assert!(least < limit, "{least:?} after the grace");
    finish(rig, server, tier);
}

/// A process that starts another one when it is told to end.
fn heir_of_a_stray_is_ended(rig: &mut Rig, tier: Tier) {
    if tier == Tier::Groups {
        // An orphan in a session of its own cannot be found there.
        return;
    }
    let mut server = Server::start(rig, |_| {});
    let since = boundary();
    server.tell("heir");
    server.wait_sleepers(1);
    let (ended, left) = end_born(rig, server.job, since, Duration::from_millis(200));
    assert!(ended >= 2 && left == 0, "{ended} {left}");
    // The heir may have been started after the last look, in the place of a dead shell.
    while examine(rig, server.job, since).born != Some(0) {
        end_born(rig, server.job, since, Duration::ZERO);
    }
    assert_eq!(server.sleepers(), 0);
    finish(rig, server, tier);
}

/// Later work of the server is not ended together with the strays.
fn process_born_after_the_order_lives(rig: &mut Rig, tier: Tier) {
    let mut server = Server::start(rig, |_| {});
    let since = boundary();
    server.tell("stubborn");
    server.wait_sleepers(1);
    let (job, grace) = (server.job, Duration::from_secs(1));
    rig.order(Order::EndBorn { ticket: 1, job, births: since.into(), grace });
    // Orders are taken one after the other: with this report, the one before it has been taken.
    examine(rig, job, since);
    boundary();
    server.tell("child");
    let report = loop {
        let report = rig.report();
        if matches!(report, Report::BornEnded { .. }) {
            break report;
        }
    };
    assert!(matches!(report, Report::BornEnded { ended: 2, left: 0, .. }), "{report:?}");
    assert_eq!(server.sleepers(), 1);
    finish(rig, server, tier);
}

fn cpu_time_grows_with_work_only(rig: &mut Rig, tier: Tier) {
    let mut server = Server::start(rig, |_| {});
    server.tell("one");
    let before = examine(rig, server.job, Instant::now()).cpu.unwrap();
    let still = examine(rig, server.job, Instant::now()).cpu.unwrap();
    assert!(still - before < Duration::from_millis(50), "{before:?} {still:?}");
    server.tell("burn");
    let after = examine(rig, server.job, Instant::now()).cpu.unwrap();
    assert!(after >= still + Duration::from_millis(20), "{still:?} {after:?}");
    finish(rig, server, tier);
}

/// UPS-07
fn end_of_file_then_signals_end_the_whole_tree(rig: &mut Rig, tier: Tier) {
    let mut server = Server::start(rig, |_| {});
    server.tell("child");
    server.tell("stubborn");
    server.wait_sleepers(2);
    if tier != Tier::Groups {
        server.tell("double");
        server.wait_sleepers(4);
    }
    finish(rig, server, tier);
}

/// The stop sequence: end of file, SIGTERM, SIGKILL; then no process is left.
fn finish(rig: &Rig, server: Server, tier: Tier) {
    let Server { job, stdin, stdout, marker } = server;
    drop((stdin, stdout));
    rig.order(Order::Terminate(job));
    rig.order(Order::Kill(job));
    rig.wait_exit(job);
    if tier == Tier::Groups {
        // Processes in sessions of their own outlive a job in this tier, as documented.
        for (pid, _) in carriers(&marker) {
            let pid = Pid::from_raw(pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        eventually("they end", || carriers(&marker).is_empty());
    }
    assert_none_left(&marker);
}
