//! Rows of the list of jobs, tasks, connections and receipts.

/// Subject of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Key {
    Job(u64),
    Task(String),
    Connection(String),
    Receipt(u64),
    /// An instance of a server.
    Instance(u64),
}

/// Emphasis of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Tone {
    Heading,
    Plain,
    /// In transition, such as being cancelled.
    Pending,
    /// Ended as expected.
    Good,
    /// Ended with a problem.
    Bad,
    /// Secondary information.
    Quiet,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Row {
    /// The entry, if the row can be selected.
    pub(in crate::cli) key: Option<Key>,
    pub(in crate::cli) tone: Tone,
    pub(in crate::cli) text: String,
}

/// Whether a text contains a filter, regardless of case.
pub(super) fn matches(text: &str, filter: &str) -> bool {
    filter.is_empty() || text.to_lowercase().contains(&filter.to_lowercase())
}
