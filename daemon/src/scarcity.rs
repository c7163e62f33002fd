//! Budgets for descriptors, and hints on raising system limits.

use std::sync::Arc;

use ceased_core::limits::Limits;
use ceased_core::upstream::server::UpstreamServer;

use crate::resource_limits;

/// Maximum number of descriptors per running command, including its start.
const FILES_A_JOB: usize = 8;
/// Descriptors of the daemon itself: listeners, the store, logs, epoll.
const FILES_OWN: usize = 64;
/// Rejected connections and delayed-back answers to wrong tokens that are still being closed.
const LEAVING_MAX: usize = 64;

/// Peers whose process is being inspected; an inspection takes little time, and others wait in the
/// backlogs of the listeners meanwhile.
const INSPECTED_MAX: usize = 32;

/// Bounds on connections that the engine does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandshakeLimits {
    /// Connections that have not authenticated yet.
    pub(crate) authenticating: usize,
    /// Rejected connections that are sent a reason; excess ones are closed without one.
    pub(crate) rejected: usize,
    /// Wrong tokens whose answer is delayed.
    pub(crate) delayed: usize,
    /// Peers whose process is being inspected; each also holds a descriptor of that process.
    pub(crate) inspected: usize,
}

impl HandshakeLimits {
    /// Maximum number of their descriptors.
    const fn descriptors(self) -> usize {
        self.authenticating + self.rejected + self.delayed + 2 * self.inspected
    }
}

/// The bounds for a daemon with these limits.
pub(crate) fn handshake_limits(limits: &Limits) -> HandshakeLimits {
    let connections = limits.connections_max;
    HandshakeLimits {
        authenticating: (connections / 4).max(16),
        rejected: LEAVING_MAX.min(connections.max(16)),
        delayed: LEAVING_MAX.min(connections.max(16)),
        inspected: INSPECTED_MAX.min(connections.max(16)),
    }
}

/// Reduces the connection limits to the descriptors left beside those reserved for jobs, so that
/// accepting stops before tools lack descriptors. `operators`: the number of identities with places
/// of their own. `has_http`: HTTP connections have as many places again. Each call of a server by URL
/// takes a connection.
pub(crate) fn within_files(
    limits: Limits,
    operators: usize,
    has_http: bool,
    servers: &[Arc<UpstreamServer>],
) -> Limits {
    let Some(files) = resource_limits::files_max() else { return limits };
    let by_url = servers.iter().filter(|server| server.is_remote);
    let calls = by_url.map(|server| server.places.max.unwrap_or(limits.running_max));
    let fitting = fit(limits, files, operators, has_http, calls.fold(0, usize::saturating_add));
    if fitting.connections_max < limits.connections_max {
        let (wanted, served) = (limits.connections_max, fitting.connections_max);
        tracing::warn!(
            connections = wanted,
            served,
            open_files = files,
            "fewer connections are served than limits.connections allows: descriptors are \
             kept for jobs; raise the hard limit of open files (LimitNOFILE=, ulimit -Hn)"
        );
    }
    fitting
}

/// As [`within_files`], with so many descriptors, and calls at servers by URL.
fn fit(limits: Limits, files: usize, operators: usize, has_http: bool, calls: usize) -> Limits {
    let commands = limits.running_max.saturating_mul(FILES_A_JOB);
    let jobs = commands.saturating_add(calls).saturating_add(FILES_OWN);
    // With very few descriptors, divide them evenly.
    let for_peers = files.saturating_sub(jobs).max(files / 4);
    let of = |connections: usize| {
        let strangers = handshake_limits(&Limits { connections_max: connections, ..limits });
        let of_operators = limits.operator_connections.saturating_mul(operators);
        let http = connections + strangers.authenticating + strangers.rejected + of_operators;
        let others = connections + strangers.descriptors() + of_operators;
        others + if has_http { http } else { 0 }
    };
    let (mut least, mut most) = (1, limits.connections_max.max(1));
    if of(most) <= for_peers {
        return limits;
    }
    // Binary search for the largest share that fits: the sum grows monotonically.
    while least < most {
        let middle = least.midpoint(most + 1);
        if of(middle) <= for_peers {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    let max = least.max(files / 8).min(limits.connections_max);
    let share = limits.connections_per_identity_max;
    let scaled = share.saturating_mul(max) / limits.connections_max.max(1);
    let share = if share == usize::MAX { share } else { scaled.max(1).min(share) };
    Limits { connections_max: max, connections_per_identity_max: share, ..limits }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(limits: &Limits) -> usize {
        let HandshakeLimits { authenticating, rejected, delayed, inspected } =
            handshake_limits(limits);
        let strangers = authenticating + rejected + delayed + 2 * inspected;
        limits.connections_max + strangers + 2 * limits.operator_connections
    }

    #[test]
    fn connections_leave_descriptors_to_jobs() {
        let limits = Limits { connections_per_identity_max: 896, ..Limits::default() };
        assert_eq!(fit(limits, 1 << 20, 2, true, 0), limits);
        for (files, calls) in [(1024, 0), (1500, 0), (1500, 300), (2000, 0)] {
            let fitting = fit(limits, files, 2, false, calls);
            let jobs = limits.running_max * FILES_A_JOB + calls + FILES_OWN;
            assert!(all(&fitting) + jobs <= files, "{files}: {fitting:?}");
            assert!(fitting.connections_max > 100, "{files}: {}", fitting.connections_max);
            let (max, share) = (fitting.connections_max, fitting.connections_per_identity_max);
            assert_eq!(share, 896 * max / 1024, "the share shrinks with the whole");
        }
    }

    /// HTTP connections are beside the others, and both leave descriptors to jobs.
    #[test]
    fn http_connections_leave_descriptors_to_jobs() {
        let limits = Limits::default();
        for files in [1500, 2000, 3000] {
            let fitting = fit(limits, files, 2, true, 0);
            let strangers = handshake_limits(&fitting);
            let http = fitting.connections_max
                + strangers.authenticating
                + strangers.rejected
                + 2 * limits.operator_connections;
            let jobs = limits.running_max * FILES_A_JOB + FILES_OWN;
            assert!(all(&fitting) + http + jobs <= files, "{files}: {fitting:?}");
            assert!(fitting.connections_max > 50, "{files}: {}", fitting.connections_max);
        }
    }

    #[test]
    fn few_descriptors_leave_some_connections() {
        for files in [0, 20, 64, 256, 600] {
            let fitting = fit(Limits::default(), files, 2, true, 0);
            assert!((1..=files.max(8) / 2).contains(&fitting.connections_max), "{files}");
        }
    }
}
