//! The treatment of orphans: processes that lost their parent and come to this process.

/// What becomes of processes that lose their parent and come to this process as orphans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Orphans {
    /// They are none of our business. For a program that has children of its own.
    #[default]
    Leave,
    /// Every child of this process that the supervisor did not start is an orphan of one of its
    /// jobs: it is reaped, and killed when its job ends. Makes this process a child subreaper when
    /// control groups or guards are used, and hears `SIGCHLD`. Only for a program that starts no
    /// process in any other way.
    Adopt,
}
