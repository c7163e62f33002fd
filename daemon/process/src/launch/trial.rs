//! A trial of a start: whether the system lets us make a process at all.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::launch::prepared::Prepared;
use crate::null_device;
use crate::ready::ready;
use crate::sys::{self, Fault, Step};

/// Time limit of the trial of starting a command.
const TRIAL_WITHIN: Duration = Duration::from_secs(5);

/// Tests whether a command can be started: creates a process that finds no program, and waits for
/// it.
///
/// # Errors
///
/// If the system lacks the resources for that.
pub(crate) fn try_out(group: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let null = null_device::open()?;
    let prepared = Prepared::trial(Path::new("/dev/null/trial"), &[c"trial"], &[])
        .ok_or(io::ErrorKind::InvalidInput)?;
    let exec = prepared.exec([null.as_fd(); 4], group, false);
    let spawned = sys::spawn(exec)?;
    let exited = ready(spawned.pidfd.as_fd(), TRIAL_WITHIN)?;
    if !exited {
        let _ = pidfd_send_signal(&spawned.pidfd, Signal::KILL);
    }
    retry_on_intr(|| waitid(WaitId::PidFd(spawned.pidfd.as_fd()), WaitIdOptions::EXITED))?;
    match spawned.fault.fault() {
        Some(Fault { step: Step::Exec, .. }) => Ok(()),
        Some(Fault { step, errno }) => {
            let error = io::Error::from_raw_os_error(errno);
            Err(io::Error::new(
                error.kind(),
                format!("a process cannot be set up ({step:?}): {error}"),
            ))
        }
        None => Err(io::Error::other("a trial process without a program does not end")),
    }
}
