//! The limit of the system that an error speaks of.

use std::io;

use rustix::io::Errno;

/// What raises the limit that an error speaks of; `None` for other errors.
#[must_use]
pub fn limit_hint(error: &io::Error) -> Option<&'static str> {
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
