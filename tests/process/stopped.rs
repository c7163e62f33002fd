//! A tool on an unresponsive file system delays only itself.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use ceased::process::JobId;
use ceased::process::{
    Containment, Ending, Isolation, Launch, Order, Orphans, Report, Stopped, Supervisor,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::process_kit::{Rig, TIME_LIMIT, Tier, eventually};
use crate::rig;

/// Larger than any request of the kernel.
const REQUEST_BYTES_MAX: usize = 256 * 1024;
/// Requests of the protocol, by their numbers.
const LOOKUP: u32 = 1;
const INIT: u32 = 26;

/// A FUSE file system served by this test, which answers on demand.
struct UnresponsiveFs {
    server: File,
    at: TempDir,
}

/// A pending request of the kernel.
struct Question(u64);

impl UnresponsiveFs {
    /// `None` with a printed line if this process may not mount.
    fn mount() -> Option<Self> {
        let server = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::CLOEXEC.bits().cast_signed())
            .open("/dev/fuse");
        let Ok(server) = server.inspect_err(|error| eprintln!("SKIPPED, /dev/fuse: {error}"))
        else {
            return None;
        };
        let at = TempDir::new().unwrap();
        let fd = server.as_raw_fd();
        let data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other");
        let data = CString::new(data).unwrap();
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        if let Err(error) = mount("unresponsive", at.path(), "fuse", flags, data.as_c_str()) {
            eprintln!("SKIPPED: cannot mount a file system: {error}");
            return None;
        }
        let mut stuck_fs = Self { server, at };
        let Question(id) = stuck_fs.question(INIT);
        // Version 7.31, with room for a page per write.
        let words = [7u32, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let body: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        stuck_fs.answer(Question(id), 0, &body);
        Some(stuck_fs)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.at.path().join(name)
    }

    /// The next request of a kind. Not even SIGKILL ends a process that waits for its answer.
    fn question(&mut self, kind: u32) -> Question {
        loop {
            assert!(is_ready(&self.server), "no request of the kernel");
            let mut bytes = vec![0; REQUEST_BYTES_MAX];
            let n = self.server.read(&mut bytes).unwrap();
            assert!(n >= 16, "{n}");
            if bytes[4..8] == kind.to_ne_bytes() {
                return Question(u64::from_ne_bytes(bytes[8..16].try_into().unwrap()));
            }
        }
    }

    fn answer(&mut self, Question(id): Question, error: i32, body: &[u8]) {
        let bytes = u32::try_from(16 + body.len()).unwrap().to_ne_bytes();
        let head = [bytes, error.to_ne_bytes()].concat();
        self.server.write_all(&[&head, &id.to_ne_bytes()[..], body].concat()).unwrap();
    }

    fn answer_not_there(&mut self, question: Question) {
        self.answer(question, -rustix::io::Errno::NOENT.raw_os_error(), &[]);
    }
}

impl Drop for UnresponsiveFs {
    /// Dropping the server fails every pending request.
    fn drop(&mut self) {
        let _ = unmount(self.at.path(), UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

fn is_ready(fd: &impl std::os::fd::AsFd) -> bool {
    let answer_timeout = Timespec::try_from(TIME_LIMIT).unwrap();
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&answer_timeout)).unwrap() > 0
}

/// Other jobs start, run and end meanwhile.
pub(crate) fn assert_others_run(rig: &mut Rig) {
    let other = rig.run(&["echo", "well"]);
    assert_eq!(rig.wait_exit(other).stdout.head(), b"well\n");
    let killed = rig.run(&["sleep", "1000"]);
    rig.order(Order::Kill(killed));
    assert_eq!(rig.wait_exit(killed).stopped, Stopped::Killed);
}

/// A command on this file system whose program, or directory, does not exist.
fn stuck(rig: &mut Rig, stuck_fs: &UnresponsiveFs, is_program: bool) -> (Launch, &'static str) {
    let path = stuck_fs.path("tool");
    if is_program {
        return (rig.command(&[path.to_str().unwrap()]), "cannot run");
    }
    let launch = rig.command(&["true"]);
    (Launch { cwd: Some(path.into()), ..launch }, "cannot enter the working directory")
}

/// Whether SIGTERM is pending for the one process of a job.
fn is_told(rig: &Rig, job: JobId) -> bool {
    rig.order(Order::Survey { ticket: 1, jobs: vec![job] });
    let report = rig.report();
    let Report::Surveyed { processes, .. } = report else { panic!("{report:?}") };
    let [(_, processes)] = processes.try_into().unwrap();
    let [process] = processes.try_into().unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap();
    let waiting = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    u64::from_str_radix(waiting.trim(), 16).unwrap() & 1 << (Signal::TERM.as_raw() - 1) != 0
}

// STOP-01
fn a_tool_on_an_unresponsive_file_system(tier: Tier) {
    let Some(mut rig) = rig(tier) else { return };
    let Some(mut stuck_fs) = UnresponsiveFs::mount() else { return };
    for is_program in [true, false] {
        let (launch, complaint) = stuck(&mut rig, &stuck_fs, is_program);
        let job = rig.launch(launch);
        let question = stuck_fs.question(LOOKUP);
        assert_others_run(&mut rig);
        stuck_fs.answer_not_there(question);
        if is_program {
            // The child checks whether the program's interpreter is missing.
            let question = stuck_fs.question(LOOKUP);
            stuck_fs.answer_not_there(question);
        }
        let ending = rig.wait_ending(job);
        let Ending::NotStarted(reason) = ending else { panic!("{ending:?}") };
        assert!(reason.contains(complaint) && reason.contains("No such file"), "{reason}");

        let (launch, _) = stuck(&mut rig, &stuck_fs, is_program);
        let job = rig.launch(launch);
        let question = stuck_fs.question(LOOKUP);
        rig.order(Order::Terminate(job));
        eventually("the signal is pending", || is_told(&rig, job));
        // The process does not count as gone while the kernel keeps it.
        assert_others_run(&mut rig);
        stuck_fs.answer_not_there(question);
        let exit = rig.wait_exit(job);
        assert_eq!((exit.signal, exit.stopped), (Some(15), Stopped::Terminated));
    }
}

#[test]
fn tool_on_an_unresponsive_file_system_in_a_control_group() {
    a_tool_on_an_unresponsive_file_system(Tier::Cgroup);
}

#[test]
fn tool_on_an_unresponsive_file_system_behind_a_guard() {
    a_tool_on_an_unresponsive_file_system(Tier::Guard);
}

#[test]
fn tool_on_an_unresponsive_file_system_in_a_process_group() {
    a_tool_on_an_unresponsive_file_system(Tier::Groups);
}

/// A blocked tool keeps no foreign end of a pipe or connection open.
#[test]
fn blocked_tool_holds_no_foreign_descriptors() {
    let Some(mut rig) = rig(Tier::Groups) else { return };
    let Some(mut stuck_fs) = UnresponsiveFs::mount() else { return };
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (launch, _) = stuck(&mut rig, &stuck_fs, false);
    let job = rig.launch(launch);
    let question = stuck_fs.question(LOOKUP);
    drop(writer);
    // Other tests of this process hold copies until their commands have started.
    let mut byte = [0];
    let closed = is_ready(&reader.as_fd()) && rustix::io::read(&reader, &mut byte) == Ok(0);
    stuck_fs.answer_not_there(question);
    assert!(matches!(rig.wait_ending(job), Ending::NotStarted(_)));
    assert!(closed, "the writing end is still open");
}

/// Shutdown of a supervisor does not wait for a process that survives SIGKILL, and reports it.
#[test]
fn blocked_tool_does_not_delay_shutdown() {
    let Some(mut rig) = rig(Tier::Groups) else { return };
    let Some(mut stuck_fs) = UnresponsiveFs::mount() else { return };
    let (launch, _) = stuck(&mut rig, &stuck_fs, true);
    rig.launch(launch);
    let question = stuck_fs.question(LOOKUP);
    let (done, is_done) = channel();
    let supervisor = rig.supervisor;
    std::thread::spawn(move || done.send(supervisor.shutdown(Duration::from_millis(10))));
    let is_clean = is_done.recv_timeout(TIME_LIMIT).expect("shutdown returns");
    assert!(!is_clean, "shutdown reports the leftover process");
    stuck_fs.answer_not_there(question);
}

/// `shutdown` of a blocked supervisor returns within its bound.
#[test]
fn shutdown_of_a_blocked_supervisor_is_bounded() {
    let (let_go, held) = channel::<()>();
    let (told, reports) = channel();
    let report = Box::new(move |report| {
        let _ = told.send(report);
        let _ = held.recv();
    });
    let containment = Containment::Groups;
    let orphans = Orphans::Leave;
    let supervisor = Supervisor::start(containment, orphans, report).unwrap();
    let launch = Launch {
        job: JobId::new(1),
        argv: vec!["true".into()],
        cwd: None,
        env: Vec::new(),
        inherit: ceased::process::Inherit::default(),
        stdin: None,
        pipes: None,
        user: None,
        isolation: Isolation::None,
        bounds: ceased::process::Bounds::default(),
        output: ceased::process::OutputOptions::default(),
    };
    supervisor.order(Order::Launch(Box::new(launch))).unwrap();
    reports.recv_timeout(TIME_LIMIT).unwrap();
    let (done, is_done) = channel();
    std::thread::spawn(move || done.send(supervisor.shutdown(Duration::from_millis(10))));
    let is_clean = is_done.recv_timeout(TIME_LIMIT).expect("shutdown returns");
    assert!(!is_clean, "a blocked supervisor cannot vouch for its jobs");
    drop(let_go);
}
