//! The database of `[fleet]` for the command line, which does not join.

use crate::cli::FleetView;
use crate::config::Config;

/// The database of a configuration and its nodes.
///
/// # Errors
/// When there is no `[fleet]`, or its database cannot be used.
#[cfg(feature = "fleet")]
pub(super) fn look(
    config: &Config,
    database: Option<&str>,
    creates: bool,
) -> Result<FleetView, String> {
    use crate::cli::FleetNode;
    use crate::fleet::inspect;

    let settings = config.fleet.as_ref().map(crate::daemon::fleet_settings);
    let (server, nodes) = inspect(settings.as_ref(), database, creates)?;
    let nodes = nodes.into_iter().map(|node| FleetNode {
        epoch: node.epoch.0,
        name: node.name,
        state: if node.drains && node.state == "live" { "draining".to_owned() } else { node.state },
        lease: node.lease,
        left_ms: node.left_ms,
        tasks: node.tasks,
        version: node.version,
    });
    Ok(FleetView {
        flaws: server.flaws(),
        server: server.version,
        database: server.name,
        role: server.role,
        synchronous: server.synchronous,
        standbys: server.standbys,
        stops: settings.is_none_or(|settings| settings.stops),
        nodes: nodes.collect(),
    })
}

#[cfg(not(feature = "fleet"))]
pub(super) fn look(_: &Config, _: Option<&str>, _: bool) -> Result<FleetView, String> {
    Err("[fleet] needs a build with the feature `fleet`".to_owned())
}
