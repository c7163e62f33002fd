//! The membership of a daemon in a fleet, and its times.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ceased_core::limits::Limits;
use ceased_fleet::contract::{KeyQuota, NodeInfo, Quota};
use ceased_fleet::postgres::Address;
use uuid::Uuid;

use super::names::Names;
use crate::owned_file::{self, Secrecy};

/// File of the key of a node, in its state directory.
const KEY_FILE: &str = "fleet-key";
/// Bytes of a file with the address of a database.
const ADDRESS_BYTES_MAX: u64 = 4096;

/// `[fleet]` of the configuration.
#[derive(Debug, Clone)]
pub(crate) struct FleetSettings {
    /// Address of the database.
    pub(crate) database: Option<String>,
    /// File with the address.
    pub(crate) database_file: Option<PathBuf>,
    /// Name of the node.
    pub(crate) name: String,
    /// Time without a word after which others call the tasks of a node lost.
    pub(crate) lease: Duration,
    /// Whether work stops before others may call it lost.
    pub(crate) stops: bool,
    /// Whether a user of one machine is the same person on all of them.
    pub(crate) shared_users: bool,
    /// Whether the node joins only where the database keeps acknowledged writes.
    pub(crate) is_strict: bool,
}

/// The membership of a daemon in a fleet.
#[derive(Debug, Clone)]
pub(crate) struct FleetOptions {
    pub(super) address: Address,
    pub(super) node: NodeInfo,
    pub(super) names: Names,
    pub(super) quota: Quota,
    pub(super) keys: KeyQuota,
    /// Time for which the answer to a call with an idempotency key is kept.
    pub(super) answers_kept: Duration,
    /// Time from a renewal to the stop of the jobs of tasks; `None` where they go on.
    pub(super) stop_after: Option<Duration>,
    /// Whether the node joins only where the database keeps acknowledged writes.
    pub(super) is_strict: bool,
}

impl FleetOptions {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// A text for people.
    pub(crate) fn new(
        settings: &FleetSettings,
        limits: &Limits,
        state_dir: Option<&Path>,
    ) -> Result<Self, String> {
        let address = address(settings)?;
        let key = match state_dir {
            Some(dir) => {
                key_in(dir).map_err(|error| format!("cannot keep the key of this node: {error}"))?
            }
            None => Uuid::new_v4().into_bytes(),
        };
        let lease = settings.lease;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(Self {
            address,
            names: Names::new(key, settings.shared_users),
            node: NodeInfo {
                key,
                name: settings.name.clone(),
                lease,
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            quota: Quota {
                live: count(limits.live_tasks_max),
                stored: count(limits.stored_tasks_max),
                bytes: limits.stored_bytes_max as u64,
            },
            keys: KeyQuota { keys: count(limits.keys_max), bytes: limits.stored_bytes_max as u64 },
            answers_kept: limits.keys_for,
            stop_after: settings.stops.then(|| stop_after(lease)),
            is_strict: settings.is_strict,
        })
    }

    /// Longest wait for an answer of the database.
    pub(super) fn patience(&self) -> Duration {
        (self.node.lease / 4).clamp(Duration::from_secs(1), Duration::from_secs(5))
    }

    /// Time between two renewals.
    pub(super) fn renew_every(&self) -> Duration {
        (self.node.lease / 5).min(Duration::from_secs(3))
    }
}

/// The address of the database, written in the settings or in a file that they name; an error has no
/// password.
pub(super) fn address(settings: &FleetSettings) -> Result<Address, String> {
    let text = match (&settings.database, &settings.database_file) {
        (Some(text), _) => text.clone(),
        (None, Some(path)) => {
            let bytes = owned_file::read(path, Secrecy::Secret, ADDRESS_BYTES_MAX)
                .map_err(|unfit| format!("`database_file` {}: {unfit}", path.display()))?;
            String::from_utf8_lossy(&bytes).trim().to_owned()
        }
        (None, None) => return Err("[fleet] names no database".to_owned()),
    };
    Address::parse(&text).map_err(|error| format!("`database` in [fleet]: {error}"))
}

/// End of a lease for the node itself, before others may call its tasks lost: clocks differ by up to 5 %.
pub(super) fn hard_after(lease: Duration) -> Duration {
    lease - (lease / 15).max(Duration::from_secs(1)).min(lease)
}

/// Time from a renewal to the stop of jobs, which have the rest of [`hard_after`] to end.
fn stop_after(lease: Duration) -> Duration {
    hard_after(lease).saturating_sub((lease / 4).min(Duration::from_secs(2)))
}

/// The key in a state directory, drawn when it is not there.
fn key_in(dir: &Path) -> io::Result<[u8; 16]> {
    let path = dir.join(KEY_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => Uuid::parse_str(text.trim())
            .map(Uuid::into_bytes)
            .map_err(|_| io::Error::other(format!("{} has no key in it", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = Uuid::new_v4();
            let mut file =
                fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            writeln!(file, "{key}")?;
            file.sync_all()?;
            Ok(key.into_bytes())
        }
        Err(error) => Err(error),
    }
}
