//! The treatment of orphans: processes that lost their parent and come to this process.

/// Treatment of orphans that are reparented to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orphans {
    /// Ignored. For a program that has children of its own.
    #[default]
    Leave,
    /// Every child of this process that the supervisor did not start is an orphan of one of its
    /// jobs: it is reaped, and killed when its job ends. Makes this process a child subreaper when
    /// control groups or guards are used, and handles `SIGCHLD`. Only for a program that starts no
    /// other processes.
    Adopt,
}
