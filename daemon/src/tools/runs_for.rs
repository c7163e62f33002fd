//! Callers as which a command can run, from the user that it is configured to run as (TSK-39).

use ceased_core::policy::allow::RunsFor;

use crate::config::RunAs;

/// The callers for which there is a user in a daemon that runs as `us`.
pub(crate) const fn runs_for(run_as: Option<RunAs>, us: u32) -> RunsFor {
    match run_as {
        None if us == 0 => RunsFor::User(0),
        None | Some(RunAs::Daemon) => RunsFor::Everyone,
        Some(RunAs::Peer) if us == 0 => RunsFor::Users,
        Some(RunAs::Peer) => RunsFor::User(us),
        Some(RunAs::User(uid)) if us == 0 || uid == us => RunsFor::Everyone,
        Some(RunAs::User(_)) => RunsFor::None,
    }
}
