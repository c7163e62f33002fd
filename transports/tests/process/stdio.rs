//! Standard input and output of every kind, and the state of shared descriptions afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::child::{FINISHED, LOST, UNSUITABLE};
use crate::{Test, child_command};

pub(crate) const TESTS: &[Test] = &[
    ("pipes", pipes),
    ("pipes_that_are_not_ours_to_open", pipes_that_are_not_ours_to_open),
    ("two_sockets", two_sockets),
    ("one_socket", one_socket),
    ("socket_in_pipe_out", socket_in_pipe_out),
    ("file_in_pipe_out", file_in_pipe_out),
    ("file_in_file_out", file_in_file_out),
    ("pipe_in_null_out", pipe_in_null_out),
    ("null_in_null_out", null_in_null_out),
    ("a_full_disk_is_a_loss", a_full_disk_is_a_loss),
    ("terminal", terminal),
    ("terminal_hangs_up", terminal_hangs_up),
    ("the_reader_of_the_output_goes", the_reader_of_the_output_goes),
    ("the_writer_of_the_input_goes_while_output_waits", output_waits),
    ("taken_over_output_ends_without_an_exit", taken_over_output_ends),
    ("unsuitable_descriptors_are_named", unsuitable_descriptors_are_named),
];

/// A child that does not outlive its test.
struct Running(Child);

impl Running {
    fn start(mode: &[&str], stdin: OwnedFd, stdout: OwnedFd) -> Self {
        let mut command = child_command(mode);
        Self(command.stdin(stdin).stdout(stdout).spawn().expect("the child starts"))
    }

    fn ends(mut self, wanted: u8) {
        let status: ExitStatus = self.0.wait().expect("our child");
        assert_eq!(status.code(), Some(wanted.into()), "{status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pipe: reading end, writing end.
fn pipe() -> (File, File) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("pipe");
    (reader.into(), writer.into())
}

fn sockets() -> (File, OwnedFd) {
    let (ours, theirs) = UnixStream::pair().expect("pair");
    (OwnedFd::from(ours).into(), theirs.into())
}

/// A child's end seen from outside, kept to see whether it is left alone.
fn watched(fd: &impl std::os::fd::AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().expect("a duplicate")
}

fn assert_left_alone(shared: BorrowedFd<'_>) {
    let flags = fcntl_getfl(shared).expect("flags");
    assert!(!flags.contains(OFlags::NONBLOCK), "the parent's description became {flags:?}");
}

/// Small lines, and one that fits into no pipe.
fn lines() -> Vec<u8> {
    let big = format!("{{\"big\":\"{}\"}}\n", "x".repeat(300_000));
    ["{\"id\":1}\n", &big, "{\"id\":2}\n"].concat().into_bytes()
}

/// Writes lines into the child and reads them back while it runs.
fn converse(to: &mut File, from: &mut File) {
    let (wanted, mut got) = (lines(), vec![]);
    to.write_all(&wanted).expect("the child reads");
    got.resize(wanted.len(), 0);
    from.read_exact(&mut got).expect("the child writes");
    assert!(got == wanted, "the echo is whole and in order");
}

fn pipes_with(mode: &str, served: &str) {
    let ((stdin, mut to), (mut from, stdout)) = (pipe(), pipe());
    let shared = [watched(&stdin), watched(&stdout)];
    let child = Running::start(&[mode, served, served], stdin.into(), stdout.into());
    converse(&mut to, &mut from);
    shared.iter().for_each(|fd| assert_left_alone(fd.as_fd()));
    drop((to, shared));
    assert_eq!(from.read(&mut [0]).expect("the end"), 0);
    child.ends(FINISHED);
}

fn pipes() {
    pipes_with("echo", "Own");
}

fn pipes_that_are_not_ours_to_open() {
    pipes_with("echo-barred", "Asked");
}

fn two_sockets() {
    let ((mut to, stdin), (mut from, stdout)) = (sockets(), sockets());
    let shared = [watched(&stdin), watched(&stdout)];
    let child = Running::start(&["echo", "Socket", "Socket"], stdin, stdout);
    converse(&mut to, &mut from);
    shared.iter().for_each(|fd| assert_left_alone(fd.as_fd()));
    drop(shared);
    // All of it goes, which on its own looks like a loss; but answers go to the other socket.
    to.write_all(b"{\"last\":1}").expect("the child reads");
    drop(to);
    let mut rest = String::new();
    from.read_to_string(&mut rest).expect("the end");
    assert_eq!(rest, "{\"last\":1}\n");
    child.ends(FINISHED);
}

fn one_socket() {
    let (mut to, theirs) = sockets();
    let shared = watched(&theirs);
    let stdout = theirs.try_clone().expect("a duplicate");
    let child = Running::start(&["echo", "Socket", "Socket"], theirs, stdout);
    let mut from = to.try_clone().expect("a duplicate");
    converse(&mut to, &mut from);
    assert_left_alone(shared.as_fd());
    drop(shared);
    to.write_all(b"{\"last\":1}").expect("the child reads");
    rustix::net::shutdown(&to, rustix::net::Shutdown::Write).expect("half-close");
    let mut rest = String::new();
    from.read_to_string(&mut rest).expect("the end");
    assert_eq!(rest, "{\"last\":1}\n");
    child.ends(FINISHED);
}

fn socket_in_pipe_out() {
    let ((mut to, stdin), (mut from, stdout)) = (sockets(), pipe());
    let child = Running::start(&["echo", "Socket", "Own"], stdin, stdout.into());
    converse(&mut to, &mut from);
    drop(to);
    assert_eq!(from.read(&mut [0]).expect("the end"), 0);
    child.ends(FINISHED);
}

fn file_with(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(content).expect("room on the disk");
    file.rewind().expect("a file can be rewound");
    file
}

fn null() -> OwnedFd {
    OpenOptions::new().read(true).write(true).open("/dev/null").expect("/dev/null").into()
}

fn file_in_pipe_out() {
    let (mut from, stdout) = pipe();
    let stdin = file_with(&lines());
    let child = Running::start(&["echo", "Socket", "Own"], stdin.into(), stdout.into());
    let mut got = vec![];
    from.read_to_end(&mut got).expect("the end");
    assert!(got == lines(), "the echo is whole and in order");
    child.ends(FINISHED);
}

fn file_in_file_out() {
    let (stdin, stdout) = (file_with(&lines()), file_with(b""));
    let mut written = stdout.try_clone().expect("a duplicate");
    Running::start(&["echo", "Socket", "Plain"], stdin.into(), stdout.into()).ends(FINISHED);
    let mut got = vec![];
    written.rewind().expect("a file can be rewound");
    written.read_to_end(&mut got).expect("the end");
    assert!(got == lines(), "the echo is whole and in order");
    assert_left_alone(written.as_fd());
}

fn pipe_in_null_out() {
    let (stdin, mut to) = pipe();
    let child = Running::start(&["echo", "Own", "Plain"], stdin.into(), null());
    to.write_all(&lines()).expect("the child reads");
    drop(to);
    child.ends(FINISHED);
}

fn null_in_null_out() {
    Running::start(&["echo", "Socket", "Plain"], null(), null()).ends(FINISHED);
}

fn a_full_disk_is_a_loss() {
    let (stdin, mut to) = pipe();
    let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let child = Running::start(&["echo", "Own", "Plain"], stdin.into(), full.into());
    to.write_all(b"{}\n").expect("the child reads");
    child.ends(LOST);
}

/// A pseudo-terminal: our side, the side of a child. It hands over whole lines and does not echo.
fn terminal_pair() -> (File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).expect("a terminal");
    grantpt(&ours).expect("grant");
    unlockpt(&ours).expect("unlock");
    let theirs = ioctl_tiocgptpeer(&ours, flags).expect("the other side");
    let mut modes = tcgetattr(&theirs).expect("modes");
    modes.local_modes -= LocalModes::ECHO;
    tcsetattr(&theirs, OptionalActions::Now, &modes).expect("modes");
    (ours.into(), theirs)
}

fn terminal() {
    let (mut ours, theirs) = terminal_pair();
    let shared = watched(&theirs);
    let stdout = theirs.try_clone().expect("a duplicate");
    let child = Running::start(&["echo", "Own", "Own"], theirs, stdout);
    // Many lines at once: one read gives one line, and no event announces the others.
    let lines: String = (0..50).map(|n| format!("{{\"id\":{n}}}\n")).collect();
    ours.write_all(lines.as_bytes()).expect("the child reads");
    let mut got = vec![0; lines.len() + 50];
    ours.read_exact(&mut got).expect("the child writes");
    assert_eq!(String::from_utf8_lossy(&got).replace('\r', ""), lines);
    assert_left_alone(shared.as_fd());
    ours.write_all(b"\x04").expect("the child reads");
    child.ends(FINISHED);
}

fn terminal_hangs_up() {
    let (mut ours, theirs) = terminal_pair();
    let stdout = theirs.try_clone().expect("a duplicate");
    let child = Running::start(&["echo", "Own", "Own"], theirs, stdout);
    ours.write_all(b"{}\n").expect("the child reads");
    ours.read_exact(&mut [0; 4]).expect("the child writes");
    drop(ours);
    child.ends(LOST);
}

fn the_reader_of_the_output_goes() {
    for mode in [["echo", "Own", "Own"], ["echo-barred", "Asked", "Asked"]] {
        let ((stdin, mut to), (mut from, stdout)) = (pipe(), pipe());
        let child = Running::start(&mode, stdin.into(), stdout.into());
        converse(&mut to, &mut from);
        // The child has nothing to write and must notice all the same.
        drop(from);
        child.ends(LOST);
    }
    let ((mut to, stdin), (mut from, stdout)) = (sockets(), sockets());
    let child = Running::start(&["echo", "Socket", "Socket"], stdin, stdout);
    converse(&mut to, &mut from);
    drop(from);
    child.ends(LOST);

    // Before it starts.
    let ((stdin, _to), (from, stdout)) = (pipe(), pipe());
    drop(from);
    Running::start(&["echo", "Own", "Own"], stdin.into(), stdout.into()).ends(LOST);
}

/// The input ends long before the output was read: a half-close, so nothing may be cut.
fn output_waits() {
    for mode in [["echo", "Own", "Own"], ["echo-barred", "Asked", "Asked"]] {
        let ((stdin, mut to), (mut from, stdout)) = (pipe(), pipe());
        let child = Running::start(&mode, stdin.into(), stdout.into());
        let wanted = lines().repeat(3);
        to.write_all(&wanted).expect("the child reads");
        drop(to);
        let mut got = vec![];
        from.read_to_end(&mut got).expect("the end");
        assert!(got == wanted, "the echo is whole and in order");
        child.ends(FINISHED);
    }
}

fn taken_over_output_ends() {
    let ((stdin, mut to), (mut from, stdout)) = (pipe(), pipe());
    let mode = ["echo-taken-over", "Own", "Own"];
    let child = Running::start(&mode, stdin.into(), stdout.into());
    to.write_all(b"{}\n").expect("the child reads");
    drop(to);
    let mut got = String::new();
    from.read_to_string(&mut got).expect("the end comes while the child lives");
    assert_eq!(got, "{}\n", "the stray print is not among the messages");
    drop(child);
}

fn unsuitable_descriptors_are_named() {
    let ((stdin, to), (_from, stdout)) = (pipe(), pipe());
    let directory = File::open(std::env::temp_dir()).expect("a directory");
    let read_only = File::open("/dev/null").expect("/dev/null");
    for (stdin, stdout, named) in [
        (OwnedFd::from(to), stdout.try_clone().expect("a duplicate").into(), "stdin is open for"),
        (directory.into(), OwnedFd::from(stdout), "stdin is a directory"),
        (stdin.into(), read_only.into(), "stdout is open for reading only"),
    ] {
        let errors = tempfile::NamedTempFile::new().expect("a file");
        let mut command = child_command(&["echo", "Own", "Own"]);
        command.stdin(stdin).stdout(stdout).stderr(errors.reopen().expect("a file"));
        Running(command.spawn().expect("the child starts")).ends(UNSUITABLE);
        let text = fs::read_to_string(errors.path()).expect("text");
        assert!(text.contains(named), "{text}");
    }
}
