//! Limits of the system that a start, or a command, can meet, and what raises them.

use std::io;

use rustix::io::Errno;

/// What raises the limit that an error speaks of; `None` for other errors.
pub(crate) fn remedy(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::MFILE | Errno::NFILE => {
            Some("raise the limit of open files (LimitNOFILE=, ulimit -n)")
        }
        Errno::AGAIN => {
            Some("raise the limit of processes and threads (TasksMax=, LimitNPROC=, ulimit -u)")
        }
        _ => None,
    }
}
