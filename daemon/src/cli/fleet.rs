//! `ceased fleet` and `ceased fleet init`: the daemons that share one table of tasks, and its database.

use std::time::Duration;

use serde_json::{Value, json};

use super::args::{FleetArgs, FleetCommand};
use super::format::{self, clean};
use super::view::span;
use super::{Backend, Exit, Failure, Io};

/// The daemons of a fleet, and its database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetView {
    /// Version of the PostgreSQL server.
    pub server: String,
    /// Name of the database.
    pub database: String,
    /// The role of the connection.
    pub role: String,
    /// Standbys that confirm each commit, as the server names them; empty without.
    pub synchronous: String,
    /// Servers that follow this one.
    pub standbys: u64,
    /// Ways in which the database can lose acknowledged writes.
    pub flaws: Vec<String>,
    /// Whether jobs of this configuration's node end before its lease does.
    pub stops: bool,
    /// Nodes, the newest first.
    pub nodes: Vec<FleetNode>,
}

/// A daemon of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetNode {
    /// Number of this start of the daemon.
    pub epoch: i64,
    /// Its name.
    pub name: String,
    /// `live`, `draining`, `left` or `dead`.
    pub state: String,
    /// Its lease.
    pub lease: Duration,
    /// Time until its lease is over, in milliseconds; negative after that.
    pub left_ms: i64,
    /// Its tasks that have not ended.
    pub tasks: u64,
    /// Version of its program.
    pub version: String,
}

impl FleetView {
    /// The promises, whether each holds, and the reason if not.
    fn promises(&self) -> [(&'static str, bool, Option<String>); 2] {
        let flaw = (!self.flaws.is_empty()).then(|| self.flaws.join("; "));
        let finishes = (!self.stops).then(|| "on_engine_loss = \"finish\" here".to_owned());
        [
            ("a task that was told of is found, and its end stays", flaw.is_none(), flaw),
            ("work has ended when a task is failed for its lost node", self.stops, finishes),
        ]
    }

    /// As one JSON document.
    #[must_use]
    pub fn json(&self) -> Value {
        let nodes = self.nodes.iter().map(|node| {
            json!({
                "epoch": node.epoch, "name": node.name, "state": node.state, "tasks": node.tasks,
                "leaseMs": u64::try_from(node.lease.as_millis()).unwrap_or(u64::MAX),
                "leftMs": node.left_ms, "version": node.version,
            })
        });
        let promises = self.promises();
        let promises = promises
            .iter()
            .map(|(promise, holds, why)| json!({"promise": promise, "holds": holds, "why": why}));
        json!({
            "database": {
                "server": self.server, "name": self.database, "role": self.role,
                "standbys": self.standbys, "synchronous": self.synchronous,
            },
            "promises": promises.collect::<Vec<_>>(),
            "nodes": nodes.collect::<Vec<_>>(),
        })
    }

    /// The database in one line.
    #[must_use]
    pub fn database_in_words(&self) -> String {
        let standbys = match (self.standbys, self.synchronous.is_empty()) {
            (0, true) => "no standby".to_owned(),
            (count, true) => format!("standbys: {count}, none synchronous"),
            (count, false) => format!("standbys: {count}, synchronous: {}", self.synchronous),
        };
        format!(
            "PostgreSQL {}, database {:?} as role {:?}, {standbys}",
            self.server, self.database, self.role
        )
    }
}

/// Runs the command.
pub(super) fn fleet(
    args: &FleetArgs,
    io: &mut Io<'_>,
    backend: &dyn Backend,
) -> Result<Exit, Failure> {
    if let Some(FleetCommand::Init(init)) = &args.command {
        let config = init.config.config.as_deref();
        let view = backend.fleet(config, init.database.as_deref(), true)?;
        io.say(&format!("the tables are there: {}", view.database_in_words()));
        return Ok(Exit::Done);
    }
    let view = backend.fleet(args.config.config.as_deref(), None, false)?;
    if args.json {
        format::json(&view.json(), io)?;
        return Ok(Exit::Done);
    }
    writeln!(io.out, "{}", clean(&view.database_in_words()))?;
    for (promise, holds, why) in view.promises() {
        let held = if holds { "holds" } else { "DOES NOT HOLD" };
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        writeln!(io.out, "{promise}: {held}{}", clean(&why))?;
    }
    writeln!(io.out, "\n{}", row(["NODE", "STATE", "TASKS", "LEASE", "LEFT", "EPOCH", "VERSION"]))?;
    for node in &view.nodes {
        let is_member = ["live", "draining"].contains(&node.state.as_str());
        let left = u64::try_from(node.left_ms).map_or_else(|_| "over".to_owned(), span);
        let lease = u64::try_from(node.lease.as_millis()).map(span).unwrap_or_default();
        let line = row([
            &node.name,
            &node.state,
            &node.tasks.to_string(),
            &lease,
            if is_member { &left } else { "-" },
            &node.epoch.to_string(),
            &node.version,
        ]);
        writeln!(io.out, "{line}")?;
    }
    Ok(Exit::Done)
}

fn row(cells: [&str; 7]) -> String {
    let [name, state, tasks, lease, left, epoch, version] = cells.map(clean);
    let line =
        format!("{name:<20} {state:<9} {tasks:>6} {lease:>7} {left:>7} {epoch:>6} {version}");
    line.trim_end().to_owned()
}
