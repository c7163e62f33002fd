//! A reload of the configuration, as the loop gets it.

use super::endings::OnEndPolicy;
use super::listen_spec::ListenSpec;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ceased_core::settings::Settings;

use crate::observability::metrics::alerts::Thresholds;

/// Reads the configuration again, on a thread of its own: it names files and users, and
/// the lookup of a user may hang.
pub(crate) type Reload = Arc<dyn Fn() -> Result<Reloaded, String> + Send + Sync>;

/// Result of a reload.
pub(crate) struct Read(pub(crate) Result<Box<Reloaded>, String>);

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Read").field(&self.0.as_ref().map(drop)).finish()
    }
}

/// Reloads of a daemon, as an operator is told of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reloads {
    count: u64,
    error: Option<String>,
}

impl Reloads {
    pub(crate) fn note(&mut self, outcome: Result<(), String>) {
        self.count += 1;
        self.error = outcome.err();
    }

    /// Number of reloads that are over, and why the latest one changed nothing.
    pub(crate) fn latest(&self) -> (u64, Option<&str>) {
        (self.count, self.error.as_deref())
    }
}

/// The new parts of a reload.
pub(crate) struct Reloaded {
    /// Tools, limits and access.
    pub(crate) settings: Arc<Settings>,
    /// Where it listens; `None` when that is not the configuration's to say.
    pub(crate) listen: Option<Vec<ListenSpec>>,
    /// See [`Options`](super::server::Options).
    pub(crate) shutdown_grace: Duration,
    /// See [`Options`](super::server::Options).
    pub(crate) eof_grace: Duration,
    /// See [`Options`](super::server::Options).
    pub(crate) authenticate_within: Duration,
    /// See [`Options`](super::server::Options).
    pub(crate) guards: Guards,
    /// See [`Options`](super::server::Options).
    pub(crate) thresholds: Thresholds,
    /// See [`Options`](super::server::Options).
    pub(crate) on_end: OnEndPolicy,
    /// Applies the new log level.
    pub(crate) set_level: Box<dyn Fn() + Send>,
    /// Keys whose new value holds after a restart only.
    pub(crate) needs_restart: Vec<&'static str>,
}

/// Bounds on peers that never end a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guards {
    /// How long a TCP peer may take for one message.
    pub(crate) frame_time: Duration,
    /// Bytes of messages that have begun and not ended, of all peers together.
    pub(crate) partial_bytes: usize,
    /// Of those, bytes of one party: an identity, or a network address without one.
    pub(crate) partial_bytes_per_identity: usize,
}

impl Default for Guards {
    fn default() -> Self {
        Self {
            frame_time: Duration::from_secs(30),
            partial_bytes: 256 << 20,
            partial_bytes_per_identity: 128 << 20,
        }
    }
}
