//! The keeper: a process that ends a daemon's control groups when the daemon is dead.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use crate::cgroup;
use crate::cgroup::roll;
use crate::guard::protocol::ToSupervisorSocket;

/// How long a keeper tries to end what cannot be killed at once, such as a process in a hung
/// system call.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Waits for the daemon's death, then ends every process in the tree of control groups at `path`
/// and those on the roll, and removes the tree. A daemon that shuts down in good order has removed
/// it before.
pub(crate) fn keep(
    control: &ToSupervisorSocket,
    path: &Path,
    on_roll: Option<OwnedFd>,
) -> io::Result<()> {
    loop {
        match control.receive() {
            Ok(None) => break,
            Ok(Some(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let kin = on_roll.map_or_else(Default::default, |file| roll::read(&file.into()));
    cgroup::end(path, kin, ENDS_WITHIN)
}
