//! Checks of files that others may remove while the daemon runs: its sockets and its store. inotify
//! does not report the important cases (an unmounted file system, a renamed parent directory), so
//! the files are polled.

use super::server::Server;
use super::shutdown::Stopping;

use std::time::Duration;

use ceased_core::time::{Instant, Now};

/// How often the files are looked at. One look takes some microseconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Server {
    /// Checks the files when due.
    pub(super) fn look_at_files_when_due(&mut self, now: Now) {
        let has_files = self.has_socket_files() || self.store_has_files();
        if !has_files || self.stopping != Stopping::No {
            self.upkeep.look_at_files = None;
            return;
        }
        let due: Instant = *self.upkeep.look_at_files.get_or_insert(now.at + LOOK_EVERY);
        if due <= now.at {
            self.look_at_files(now);
        }
    }

    /// Checks the files and recreates missing ones.
    pub(super) fn look_at_files(&mut self, now: Now) {
        self.upkeep.look_at_files = Some(now.at + LOOK_EVERY);
        self.renew_doors(now);
        self.verify_store();
    }
}
