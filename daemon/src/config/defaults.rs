//! Defaults of the configuration, which need no parser.

use std::num::NonZero;
use std::time::Duration;

use super::Listen;
use super::discover::Environment;

/// Default mode: only the daemon's user.
pub(super) const MODE_DEFAULT: u32 = 0o600;
/// Default of `session_idle`: longer than a person thinks between two questions to a model.
pub(crate) const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);
/// Default of `gone`: as long as events are kept for a client that comes back.
pub(crate) const GONE: Duration = Duration::from_secs(60);
/// Default of `keep_alive`: beyond the 60 seconds after which common proxies close their side.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Default of `sessions_per_identity`: half of the default of `connections`.
pub(crate) const SESSIONS_PER_IDENTITY: usize = 512;
/// Default of `connections_per_address`: half of the default of `connections`. All clients of a
/// reverse proxy have one address.
pub(crate) const CONNECTIONS_PER_ADDRESS: usize = 512;
/// Default of `replay_bytes`: some hundred progress notifications and a usual result.
pub(crate) const REPLAY_BYTES: usize = 1024 * 1024;

/// Default share of a resource for one identity: all but an eighth, and all but one of four to
/// seven. Fewer than four are not divided, since a reserved part would leave too little.
pub(crate) const fn most_of(all: usize) -> usize {
    match all {
        0..4 => all,
        4..8 => all - 1,
        8.. => all - all / 8,
    }
}

/// Greatest value of `servers.start_at_once`.
pub(super) const STARTS_MAX: usize = 1024;

impl Listen {
    /// The listener of a file without `[[listen]]`.
    pub(super) fn default_in(environment: &Environment) -> Self {
        Self::Unix { path: environment.socket(), mode: MODE_DEFAULT, group: None, allow: None }
    }
}

/// Servers that may be starting at once (UPS-09) if the file does not say.
pub(crate) fn start_at_once_default() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    cores.saturating_mul(2).min(STARTS_MAX)
}
