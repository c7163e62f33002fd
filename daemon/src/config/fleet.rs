//! `[fleet]`: the table of tasks that several daemons share.

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "config")]
use super::check::{Checker, Key};
#[cfg(feature = "config")]
use super::raw;

#[cfg(feature = "config")]
const SECOND: Duration = Duration::from_secs(1);

/// `[fleet]`: the table of tasks that this daemon shares with others (FLT-01).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Address of the database.
    pub database: Option<String>,
    /// File with the address, readable by its owner alone; not read here.
    pub database_file: Option<PathBuf>,
    /// Name of this node, for people.
    pub name: String,
    /// Time without a word to the database after which others call the tasks of a node lost.
    pub lease: Duration,
    /// How long the running work may go on after `ceased drain`.
    pub drain: Duration,
    /// Treatment of running tasks while the database is out of reach for too long.
    pub on_engine_loss: OnEngineLoss,
    /// Whether a user of one machine is the same person on all of them.
    pub shared_users: bool,
    /// Durability of the database that is required to join.
    pub require: Durability,
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

/// The table, or `None` if there is none, or it is wrong, which has been noted.
#[cfg(feature = "config")]
pub(super) fn fleet(raw: Option<&(usize, raw::Fleet)>, check: &mut Checker<'_>) -> Option<Fleet> {
    let (at, raw) = raw?;
    let key = |name| Key { table: "[fleet]", name };
    if cfg!(not(feature = "fleet")) {
        let hint = "install a build with it, or remove the table";
        check.missing(*at, "[fleet] needs a build with the feature `fleet`", hint);
        return None;
    }
    if raw.database.is_some() == raw.database_file.is_some() {
        let hint = "write either database = \"postgres://USER@HOST/DATABASE\" or database_file";
        check.missing(*at, "[fleet] needs one of `database` and `database_file`", hint);
        return None;
    }
    if let Some(written) = &raw.database
        && let Err(why) = address(written.get_ref())
    {
        check.bad_value(key("database"), written.span().start, "the address", &why);
    }
    let file = raw.database_file.as_ref();
    let database_file = file.and_then(|written| check.path(key("database_file"), written));
    let losses = [("stop", OnEngineLoss::Stop), ("finish", OnEngineLoss::Finish)];
    let durabilities = [("any", Durability::Any), ("strict", Durability::Strict)];
    let lease = 5 * SECOND..=600 * SECOND;
    let drain = Duration::ZERO..=24 * 3600 * SECOND;
    Some(Fleet {
        database: raw.database.as_ref().map(|written| written.get_ref().clone()),
        database_file,
        name: raw.name.clone().unwrap_or_else(host_name),
        lease: check.duration(key("lease"), raw.lease.as_ref(), 60 * SECOND, lease),
        drain: check.duration(key("drain"), raw.drain.as_ref(), 300 * SECOND, drain),
        on_engine_loss: check.choice(
            key("on_engine_loss"),
            raw.on_engine_loss.as_ref(),
            OnEngineLoss::Stop,
            &losses,
        ),
        shared_users: raw.shared_users.unwrap_or(false),
        require: check.choice(key("require"), raw.require.as_ref(), Durability::Any, &durabilities),
    })
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
#[cfg(feature = "config")]
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}
