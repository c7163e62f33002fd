//! Limits of the system that a start, or a command, can meet: what fits in them, what raises them.

use ceased_core::limits::Limits;

use crate::resource_limits;

/// Descriptors that a running command holds at most, its start included.
const FILES_A_JOB: usize = 8;
/// Descriptors of the daemon itself: listeners, the store, logs, polls.
const FILES_OWN: usize = 64;
/// Connections that are on their way out: refused ones, and guesses that wait for their answer.
const LEAVING_MAX: usize = 64;

/// Peers whose process is looked at: one look takes little time.
const VETTED_MAX: usize = 32;

/// Bounds on connections that the engine does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strangers {
    /// Connections that have to present a token and have not.
    pub(crate) gated: usize,
    /// Refused connections that are told why; more are closed without a word.
    pub(crate) dismissed: usize,
    /// Wrong guesses whose answer is held back.
    pub(crate) held: usize,
    /// Peers whose process is looked at; each holds a descriptor of that process as well.
    pub(crate) vetted: usize,
}

impl Strangers {
    /// Descriptors that they hold at most.
    const fn descriptors(self) -> usize {
        self.gated + self.dismissed + self.held + 2 * self.vetted
    }
}

/// The bounds on strangers of a daemon with these limits.
pub(crate) fn strangers(limits: &Limits) -> Strangers {
    let connections = limits.connections_max;
    Strangers {
        gated: (connections / 4).max(16),
        dismissed: LEAVING_MAX.min(connections.max(16)),
        held: LEAVING_MAX.min(connections.max(16)),
        vetted: VETTED_MAX.min(connections.max(16)),
    }
}

/// These limits with no more connections than there are descriptors for beside those that jobs
/// need, so that accepting stops before tools starve.
pub(crate) fn within_files(limits: Limits) -> Limits {
    let Some(files) = resource_limits::files_max() else { return limits };
    let fitting = fit(limits, files);
    if fitting.connections_max < limits.connections_max {
        let (wanted, served) = (limits.connections_max, fitting.connections_max);
        tracing::warn!(
            connections = wanted,
            served,
            open_files = files,
            "not as many connections are served as limits.connections says: the descriptors are \
             kept for jobs; raise the hard limit of open files (LimitNOFILE=, ulimit -Hn)"
        );
    }
    fitting
}

fn fit(limits: Limits, files: usize) -> Limits {
    let jobs = limits.running_max.saturating_mul(FILES_A_JOB).saturating_add(FILES_OWN);
    // With very few, both starve alike.
    let for_peers = files.saturating_sub(jobs).max(files / 4);
    let of = |connections: usize| {
        let strangers = strangers(&Limits { connections_max: connections, ..limits });
        // Two identities are operators at most: root, and the user of the daemon.
        let operators = limits.operator_connections.saturating_mul(2);
        connections + strangers.descriptors() + operators
    };
    let (mut least, mut most) = (1, limits.connections_max.max(1));
    if of(most) <= for_peers {
        return limits;
    }
    // The greatest number that fits: the sum grows with it.
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
        let Strangers { gated, dismissed, held, vetted } = strangers(limits);
        let strangers = gated + dismissed + held + 2 * vetted;
        limits.connections_max + strangers + 2 * limits.operator_connections
    }

    #[test]
    fn connections_leave_descriptors_to_jobs() {
        let limits = Limits { connections_per_identity_max: 896, ..Limits::default() };
        assert_eq!(fit(limits, 1 << 20), limits);
        for files in [1024, 1500, 2000] {
            let fitting = fit(limits, files);
            let jobs = limits.running_max * FILES_A_JOB + FILES_OWN;
            assert!(all(&fitting) + jobs <= files, "{files}: {fitting:?}");
            assert!(fitting.connections_max > 100, "{files}: {}", fitting.connections_max);
            let (max, share) = (fitting.connections_max, fitting.connections_per_identity_max);
            assert_eq!(share, 896 * max / 1024, "the share shrinks with the whole");
        }
    }

    #[test]
    fn few_descriptors_leave_some_connections() {
        for files in [0, 20, 64, 256, 600] {
            let fitting = fit(Limits::default(), files);
            assert!((1..=files.max(8) / 2).contains(&fitting.connections_max), "{files}");
        }
    }
}
