//! Isolation of a command from the other processes of its user.

/// Isolation of a command from other processes of its user, beside its containment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// None: it may signal and trace them, including its guard.
    #[default]
    None,
    /// A pid namespace: it can see and signal only processes of its own job, and the kernel ends
    /// all of them with the first one. Needs a guard program, and the right to create namespaces.
    Pid,
}
