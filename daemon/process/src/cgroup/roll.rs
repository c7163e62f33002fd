//! The roll: processes that a control group may not show, written down for the keeper.
//!
//! It is a file in memory that the supervisor and the keeper share. The supervisor writes; the
//! keeper reads once the supervisor is dead. To write a line down wakes nobody.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;

use rustix::process::Pid;

use crate::proc::descent::Followed;
use crate::proc::table::Stat;

/// Bytes of a line: a process id, four bytes of nothing, and the moment it started.
const LINE_BYTES: usize = 16;
/// The same, as a position in the file.
const LINE: u64 = LINE_BYTES as u64;
/// Start of a process that was written down when it was started, before that could be looked up:
/// the leader of a session.
const UNKNOWN: u64 = 0;

/// The supervisor's side.
#[derive(Debug)]
pub(crate) struct Roll {
    file: File,
    free: Vec<Line>,
    next: u64,
}

/// The number of a line of the roll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line(u64);

impl Roll {
    /// An empty roll.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { file: crate::nameless_file::nameless_file()?, free: Vec::new(), next: 0 })
    }

    /// Writes a process down. `None` when there is no memory for it.
    pub(crate) fn enter(&mut self, pid: Pid, start: Option<u64>) -> Option<Line> {
        let line = self.free.pop().unwrap_or(Line(self.next));
        let mut bytes = [0; LINE_BYTES];
        bytes[..4].copy_from_slice(&pid.as_raw_nonzero().get().to_le_bytes());
        bytes[8..].copy_from_slice(&start.unwrap_or(UNKNOWN).to_le_bytes());
        self.next = self.next.max(line.0 + 1);
        if self.file.write_all_at(&bytes, line.0 * LINE).is_err() {
            self.free.push(line);
            return None;
        }
        Some(line)
    }

    /// Strikes a line out.
    pub(crate) fn strike(&mut self, line: Line) {
        // A line that cannot be cleared names a process that is gone, which the keeper finds out.
        let _ = self.file.write_all_at(&[0; LINE_BYTES], line.0 * LINE);
        self.free.push(line);
    }
}

impl AsFd for Roll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The processes on a roll that are alive.
pub(crate) fn read(file: &File) -> Followed {
    let mut found = Followed::default();
    let mut bytes = [0; LINE_BYTES];
    for line in 0.. {
        if file.read_exact_at(&mut bytes, line * LINE).is_err() {
            break;
        }
        let (pid, start) = bytes.split_at(8);
        let pid = pid.first_chunk().map(|raw| i32::from_le_bytes(*raw)).filter(|raw| *raw > 0);
        let start = start.first_chunk().map_or(UNKNOWN, |raw| u64::from_le_bytes(*raw));
        if let Some(pid) = pid.and_then(Pid::from_raw)
            && let Some(stat) = Stat::of(pid)
            && match start {
                UNKNOWN => stat.session == pid.as_raw_nonzero().get(),
                start => stat.start == start,
            }
        {
            found.add(pid, stat);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn live_processes_are_read_back() {
        let mut child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        let mut dead = Command::new("true").stdin(Stdio::null()).spawn().unwrap();
        let (pid, gone) = (Pid::from_child(&child), Pid::from_child(&dead));
        let start = Stat::of(pid).unwrap().start;
        dead.wait().unwrap();
        let mut roll = Roll::new().unwrap();
        let read = |roll: &Roll| read(&roll.as_fd().try_clone_to_owned().unwrap().into()).all();
        let lines = [
            roll.enter(gone, Some(start)).unwrap(),
            roll.enter(pid, Some(start + 1)).unwrap(),
            // It leads no session.
            roll.enter(pid, None).unwrap(),
        ];
        assert_eq!(read(&roll), []);
        let line = roll.enter(pid, Some(start)).unwrap();
        assert_eq!(read(&roll), [(pid, start)]);
        lines.into_iter().for_each(|line| roll.strike(line));
        assert_eq!(read(&roll), [(pid, start)]);
        roll.strike(line);
        assert_eq!(read(&roll), []);
        assert_eq!(roll.enter(pid, Some(start)), Some(line), "its place is used again");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
