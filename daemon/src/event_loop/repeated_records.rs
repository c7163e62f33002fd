//! Records that repeat, from the side of the server.

use super::server::Server;

use super::origin::Party;
use super::repeats::{INTERVAL, Kind, Unwritten};
use crate::observability::audit::Happening;
use ceased_core::time::Now;

impl Server {
    /// Counts a record; whether it is to be written in full.
    pub(super) fn is_news(&mut self, now: Now, party: Party, kind: Kind) -> bool {
        self.repeats.note(now.at, party, kind)
    }

    /// Tells how many records were not written in intervals that have ended.
    pub(super) fn tell_repeats(&mut self, now: Now) {
        for Unwritten { party, kind, count } in self.repeats.take_due(now.at) {
            let party = party.map_or_else(|| "others".to_owned(), |party| party.to_string());
            let (of, limit, reason) = (kind.name(), kind.limit(), kind.reason());
            if kind != Kind::Connect {
                tracing::warn!(of, limit, reason, %party, count, within = ?INTERVAL, "suppressed repeated records");
            }
            let window = INTERVAL;
            self.audit(now, &Happening::Repeated { of, limit, reason, party, count, window });
        }
    }
}
