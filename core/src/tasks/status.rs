//! The states of a task and their transitions.

use core::fmt;

use serde::Deserialize;

/// Where a task stands. Changed by [`Status::after`] alone.
///
/// ```text
///              ┌──────────── InputArrived ───────────┐
///              ▼                                     │
///   ┌───────────────┐       InputNeeded      ┌───────┴────────┐
///   │    working    ├───────────────────────►│ input_required │
///   └──┬─────┬────┬─┘                        └──┬─────┬────┬──┘
///      │     │    └─── Cancel ──► cancelled ◄───┘     │    │
///      │     └──────── Fail ────►  failed   ◄─────────┘    │
///      └────────────── Complete ► completed ◄──────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[cfg_attr(feature = "trace", derive(serde::Serialize))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The work goes on, or waits for its turn (TSK-09).
    Working,
    /// The work waits for the requestor.
    InputRequired,
    /// Done.
    Completed,
    /// Done, and it did not work (TSK-43).
    Failed,
    /// Stopped by its requestor; stays so whatever the job still reports (TSK-26).
    Cancelled,
}

/// A change of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The job asks its requestor something.
    InputNeeded,
    /// The last open question was answered.
    InputArrived,
    /// The job ended well.
    Complete,
    /// The job ended badly.
    Fail,
    /// The requestor cancelled.
    Cancel,
}

impl Status {
    /// The state after `change`; `None` when nothing changes (TSK-10).
    #[must_use]
    pub const fn after(self, change: Change) -> Option<Self> {
        match (self, change) {
            (Self::Working, Change::InputNeeded) => Some(Self::InputRequired),
            (Self::InputRequired, Change::InputArrived) => Some(Self::Working),
            (Self::Working | Self::InputRequired, Change::Complete) => Some(Self::Completed),
            (Self::Working | Self::InputRequired, Change::Fail) => Some(Self::Failed),
            (Self::Working | Self::InputRequired, Change::Cancel) => Some(Self::Cancelled),
            (Self::Working, Change::InputArrived)
            | (Self::InputRequired, Change::InputNeeded)
            | (Self::Completed | Self::Failed | Self::Cancelled, _) => None,
        }
    }

    /// True for the three states that never change.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Working | Self::InputRequired => false,
            Self::Completed | Self::Failed | Self::Cancelled => true,
        }
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Status {
    /// Every status, in the order of a life.
    pub const ALL: [Self; 5] =
        [Self::Working, Self::InputRequired, Self::Completed, Self::Failed, Self::Cancelled];

    /// The status this word on the wire means.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TSK-10: the whole table, every pair.
    #[test]
    fn transitions() {
        use Change::{Cancel, Complete, Fail, InputArrived, InputNeeded};
        use Status::{Cancelled, Completed, Failed, InputRequired, Working};
        let changes = [InputNeeded, InputArrived, Complete, Fail, Cancel];
        for (status, after) in [
            (Working, [Some(InputRequired), None, Some(Completed), Some(Failed), Some(Cancelled)]),
            (InputRequired, [None, Some(Working), Some(Completed), Some(Failed), Some(Cancelled)]),
            (Completed, [None; 5]),
            (Failed, [None; 5]),
            (Cancelled, [None; 5]),
        ] {
            assert_eq!(changes.map(|change| status.after(change)), after, "{status:?}");
            assert_eq!(status.is_terminal(), after == [None; 5]);
        }
    }
}
