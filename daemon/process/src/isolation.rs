//! Isolation of a command from the other processes of its user.

/// What separates a command from the other processes of its user, besides its containment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Nothing: it may signal and trace them, its own guard too.
    #[default]
    None,
    /// A pid namespace: it sees and reaches no process but those of its own job, and the kernel ends
    /// all of them with the first. Needs a guard program, and the right to make namespaces.
    Pid,
}
