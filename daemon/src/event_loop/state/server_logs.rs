//! Standard error of instances of servers, while they run and afterwards, for `ceased logs SERVER`.

use std::collections::BTreeMap;
use std::time::Duration;

use ceased_core::action::Viewer;
use ceased_core::identity::Identity;
use ceased_core::ids::InstanceId;
use ceased_process::{Captured, SharedOutput, Stream};
use serde_json::{Value, json};

use super::job_output::since_place;

/// Ended instances of one server whose output is kept: those of a server that dies at each start
/// are soon many and all alike.
const ENDED_MAX: usize = 8;
/// Bytes in one answer to a reader that follows.
const PART_BYTES_MAX: usize = 64 * 1024;

/// Standard error of one instance.
#[derive(Debug)]
struct ServerLog {
    server: Box<str>,
    /// Identity whose requests it served; `None` for an instance that no client had yet.
    owner: Option<Identity>,
    output: SharedOutput,
    has_ended: bool,
}

/// Standard error of instances, by their number, which grows.
#[derive(Debug, Default)]
pub(crate) struct ServerLogs(BTreeMap<InstanceId, ServerLog>);

impl ServerLogs {
    /// An instance starts.
    pub(crate) fn begin(
        &mut self,
        id: InstanceId,
        server: &str,
        owner: Option<Identity>,
        output: SharedOutput,
    ) {
        let log = ServerLog { server: server.into(), owner, output, has_ended: false };
        self.0.insert(id, log);
    }

    /// An instance has ended: its output is kept while it is among the latest of its server.
    pub(crate) fn end(&mut self, id: InstanceId) {
        let Some(log) = self.0.get_mut(&id) else { return };
        log.has_ended = true;
        let server = log.server.clone();
        let ended = self.0.iter().filter(|(_, log)| log.has_ended && log.server == server);
        let ended: Vec<InstanceId> = ended.map(|(id, _)| *id).collect();
        for old in ended.iter().take(ended.len().saturating_sub(ENDED_MAX)) {
            self.0.remove(old);
        }
    }

    /// Output of an instance from a place on, and the next instance that has some.
    pub(crate) fn read(
        &self,
        server: &str,
        instance: Option<InstanceId>,
        (from, since): (u64, Option<Duration>),
        viewer: &Viewer,
    ) -> Option<Value> {
        let may_read = |log: &ServerLog| match &log.owner {
            _ if viewer.sees_all => true,
            None | Some(Identity::Anonymous) => false,
            Some(owner) => *owner == viewer.identity,
        };
        let mut own = self.0.iter().filter(|(_, log)| *log.server == *server && may_read(log));
        let wanted = |id: InstanceId| instance.is_none_or(|wanted| wanted <= id);
        let (id, log) = own.find(|(id, _)| wanted(**id))?;
        // Another one than the wanted, which is forgotten, is read from its beginning.
        let from = if instance.is_none_or(|wanted| wanted == *id) { from } else { 0 };
        let next = own.next().map(|(next, _)| next.get());
        // Looked at first: an ended instance prints nothing more.
        let has_ended = log.has_ended;
        let from = since_place(&log.output, Stream::Stderr, from, since);
        let captured = log.output.captured(Stream::Stderr);
        let (start, bytes) = captured.from(from, PART_BYTES_MAX);
        let is_last = start + bytes.len() as u64 == captured.total();
        let bytes = match has_ended && is_last {
            true => bytes,
            // The rest of a character may be on its way.
            false => Captured::whole_at_end(bytes),
        };
        Some(json!({
            "server": server,
            "instance": id.get(),
            "next": next,
            "ended": has_ended,
            "stderr": {
                "from": start,
                "next": start + bytes.len() as u64,
                "total": captured.total(),
                "text": String::from_utf8_lossy(bytes),
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use ceased_core::ids::ConnId;

    use super::*;
    use ceased_core::identity::Rights;

    fn viewer(uid: u32, sees_all: bool) -> Viewer {
        let (identity, rights) = (Identity::User(uid), Rights::Full);
        Viewer { identity, rights, conn: ConnId::new(1), sees_all }
    }

    fn logs(count: u64) -> ServerLogs {
        let mut logs = ServerLogs::default();
        for number in 1..=count {
            let id = InstanceId::new(number);
            let owner = Identity::User(u32::try_from(number % 2).unwrap_or_default());
            logs.begin(id, "a", Some(owner), SharedOutput::default());
            logs.end(id);
        }
        logs
    }

    #[test]
    fn latest_ended_instances_are_kept() {
        let logs = logs(20);
        let first = logs.read("a", None, (0, None), &viewer(0, true)).unwrap();
        assert_eq!((&first["instance"], &first["next"]), (&json!(13), &json!(14)));
        assert_eq!(logs.0.len(), ENDED_MAX);
        assert!(logs.read("b", None, (0, None), &viewer(0, true)).is_none());
    }

    /// TSK-39: the output of an instance is for the identity that it serves, and for operators.
    #[test]
    fn instances_of_others_are_not_read() {
        let logs = logs(4);
        let own = logs.read("a", None, (0, None), &viewer(1, false)).unwrap();
        assert_eq!((&own["instance"], &own["next"]), (&json!(1), &json!(3)));
        assert!(logs.read("a", None, (0, None), &viewer(7, false)).is_none());
    }
}
