//! The database and its nodes, for people.

use std::time::{Duration, Instant};

use ceased_fleet::PostgresTable;
use ceased_fleet::contract::{Database, NodeRow};
use ceased_fleet::postgres::Address;

use super::options::{FleetSettings, address};

/// Longest wait for the database.
const WITHIN: Duration = Duration::from_secs(10);

/// The database at the address, which is that of the settings unless another one is given, and the nodes
/// there. With `creates` tables that are not there are created.
///
/// # Errors
/// A text for people.
pub(crate) fn inspect(
    settings: Option<&FleetSettings>,
    database: Option<&str>,
    creates: bool,
) -> Result<(Database, Vec<NodeRow>), String> {
    let address = match (database, settings) {
        (Some(text), _) => Address::parse(text).map_err(|error| format!("--database: {error}"))?,
        (None, Some(settings)) => address(settings)?,
        (None, None) => return Err("there is no [fleet]".to_owned()),
    };
    let mut table = match creates {
        true => PostgresTable::new(address),
        false => PostgresTable::existing(address),
    };
    let deadline = Instant::now() + WITHIN;
    let failed = |failure| format!("the database of the fleet: {failure}");
    let server = table.database(deadline).map_err(failed)?;
    Ok((server, table.nodes(deadline).map_err(failed)?))
}
