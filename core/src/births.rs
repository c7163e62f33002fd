//! Processes of an instance, told apart by their births.

use alloc::vec::Vec;

use crate::time::Instant;

/// Processes that were born since an instant, as far as they are of the works that are meant.
///
/// A process is of the work that was announced closest to the birth of its root: its first ancestor
/// born since `floor`. Where there are as many such roots as works, they are matched in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Births {
    /// Earliest birth of a process.
    pub since: Instant,
    /// Earliest birth of a root; processes born before are the program itself.
    pub floor: Instant,
    /// Begin of other work, which is meant, and competes for processes with `works`.
    pub other: Option<Instant>,
    /// Works in the order of their announcement, and whether each is meant. Empty: every process is.
    pub works: Vec<(Instant, bool)>,
}

impl Births {
    /// Every process that was born since then.
    #[must_use]
    pub const fn since(since: Instant) -> Self {
        Self { since, floor: since, other: None, works: Vec::new() }
    }
}
