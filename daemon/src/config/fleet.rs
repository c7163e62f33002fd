//! `[fleet]`: the table of tasks that several daemons share.

use std::path::PathBuf;
use std::time::Duration;

use super::keys::{Declared, keys};
#[cfg(feature = "config")]
use super::{
    check::{Checker, Key},
    discover::Environment,
    kinds::{Choice, FilePath, Flag, HOUR, Kind, MS, Perhaps, Time, Words, row_of},
    table::Table,
    units::show_duration,
    values::Text,
};

keys! {
    /// `[fleet]`: the table of tasks that this daemon shares with others (FLT-01).
    Fleet ["fleet"] {
        /// Address of the database.
        database: Option<String> = None, Perhaps(Database), row |_| None;
        /// File with the address, readable by its owner alone; not read here.
        database_file: Option<PathBuf> = None, Perhaps(FilePath), row |_| None;
        /// Name of this node, for people.
        name: String = host_name(), Words,
            row |it| {
                let lease = show_duration(it.lease);
                Some(("fleet", format!("node {:?}, lease {lease}", it.name)))
            };
        /// Time without a word to the database after which others call the tasks of a node lost.
        lease: Duration = Duration::from_secs(60), Time(5000 * MS..=600_000 * MS), row |_| None;
        /// How long the running work may go on after `ceased drain`.
        drain: Duration = Duration::from_secs(300), Time(Duration::ZERO..=24 * HOUR), row |_| None;
        /// Treatment of running tasks while the database is out of reach for too long.
        on_engine_loss: OnEngineLoss = OnEngineLoss::Stop,
            Choice(&[("stop", OnEngineLoss::Stop), ("finish", OnEngineLoss::Finish)]),
            row |_| None;
        /// Whether a user of one machine is the same person on all of them.
        shared_users: bool = false, Flag, row |_| None;
        /// Durability of the database that is required to join.
        require: Durability = Durability::Any,
            Choice(&[("any", Durability::Any), ("strict", Durability::Strict)]),
            row |_| None;
    }
}

/// Treatment of running tasks while the database is out of reach for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnEngineLoss {
    /// They are stopped before others may call them lost (FLT-04).
    Stop,
    /// They go on.
    Finish,
}

/// Durability of the database that is required to join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Any.
    Any,
    /// It keeps acknowledged writes.
    Strict,
}

#[cfg(feature = "config")]
impl Fleet {
    /// Takes all keys; `None` without a database, or in a build without them, which is reported.
    pub(super) fn read_whole(table: &mut Table<'_, '_>) -> Option<Self> {
        if table.check.lacks(cfg!(feature = "fleet"), "fleet", table.at, "[fleet]") {
            return None;
        }
        let fleet = Self::read(table);
        if table.has("database") == table.has("database_file") {
            let hint = "write either database = \"postgres://USER@HOST/DATABASE\" or database_file";
            let what = "[fleet] needs one of `database` and `database_file`";
            table.check.missing(table.at, what, hint);
            return None;
        }
        Some(fleet)
    }
}

/// The address of a database, which may have a password and is not shown.
#[cfg(feature = "config")]
struct Database;

#[cfg(feature = "config")]
impl Kind<String> for Database {
    type Written = String;

    fn parse(&self, key: Key, written: &Text, check: &mut Checker<'_>) -> Option<String> {
        if let Err(why) = address(written.get_ref()) {
            check.bad_value(key, written.span().start, "the address", why);
        }
        Some(written.get_ref().clone())
    }

    fn show(&self, _: &String) -> Option<String> {
        None
    }
}

#[cfg(all(feature = "config", feature = "fleet"))]
fn address(text: &str) -> Result<(), String> {
    let parsed = ceased_fleet::postgres::Address::parse(text);
    parsed.map(drop).map_err(|error| error.to_string())
}

#[cfg(all(feature = "config", not(feature = "fleet")))]
const fn address(_: &str) -> Result<(), String> {
    Ok(())
}

/// The name of this machine.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
