//! The keeper: a process that ends a daemon's control groups when the daemon is dead.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::cgroup;
use super::wire::ToSupervisorSocket;

/// How long a keeper tries to end what cannot be killed at once, such as a process in a hung
/// system call.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Waits for the daemon's death, then ends every process in the tree of control groups at `path`
/// and removes it. A daemon that shuts down in good order has removed it before.
pub(super) fn keep(control: &ToSupervisorSocket, path: &Path) -> io::Result<()> {
    loop {
        match control.receive() {
            Ok(None) => break,
            Ok(Some(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    cgroup::end(path, ENDS_WITHIN)
}
