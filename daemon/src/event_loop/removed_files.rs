//! Files that others may remove while the daemon runs: its sockets and its store. The system
//! announces none of that where it counts (a mount that is taken away, a directory renamed further
//! up), so they are looked at now and then.

use super::server::Server;
use super::shutdown::Stopping;

use std::time::Duration;

use ceased_core::time::{Instant, Now};

/// How often the files are looked at. One look takes some microseconds.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Server {
    /// Looks at the files when it is time to.
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

    /// Looks at the files, and makes again what is missing.
    pub(super) fn look_at_files(&mut self, now: Now) {
        self.upkeep.look_at_files = Some(now.at + LOOK_EVERY);
        self.renew_doors(now);
        self.verify_store();
    }
}
