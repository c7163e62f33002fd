//! Limit of open files: raised at the start of a daemon, restored for the programs it runs.
//!
//! The soft limit is usually 1,024 because `select` cannot handle higher descriptors, which does
//! not concern a daemon that uses epoll. Tools may use `select`, so they get the limit that the
//! daemon was started with.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit of open files that this process had before [`raise_files`].
static ORIGINAL_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard one. Call it once, before threads are started
/// and descriptors are budgeted.
pub(crate) fn raise_files() {
    let original = getrlimit(Resource::Nofile);
    let original = ORIGINAL_FILES.get_or_init(|| original);
    let raised = Rlimit { current: original.maximum, maximum: original.maximum };
    if original.current != original.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        let limit = original.current;
        tracing::warn!(%error, ?limit, "cannot raise the soft limit of open files to the hard one");
    }
}

/// Limit of open files that this process was started with, for the programs it runs.
#[allow(dead_code, reason = "for the start of tools, which restores it")]
pub(crate) fn original_files() -> Rlimit {
    ORIGINAL_FILES.get().cloned().unwrap_or_else(|| getrlimit(Resource::Nofile))
}

/// Maximum number of descriptors of this process; `None` if unlimited.
pub(crate) fn files_max() -> Option<usize> {
    getrlimit(Resource::Nofile).current.map(|files| usize::try_from(files).unwrap_or(usize::MAX))
}
