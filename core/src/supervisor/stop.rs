//! The stop of one request or prompt turn: from the client's cancel to an end (SUP-02).
//!
//! ```text
//!   Told ──grace──► Retold ──grace──► Looking ──processes born in the turn──► EndingStrays
//!    │  (other form)  │   (examine)     │ └──none, or not to be told apart──┐      │ all ended
//!    │                │                 │                                   ▼      ▼
//!    └────────────────┴─────────────────┴──── the agent answers ──► over   give up ◄── Waiting
//! ```

use alloc::boxed::Box;
use core::time::Duration;

use crate::action::Cancel;
use crate::reason::StopReason;
use crate::time::Instant;
use crate::upstream::interface::Proof;
use crate::upstream::server::OnIgnoredCancel;

/// Method by which a turn is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CancelForm {
    /// `session/cancel`
    Session,
    /// `$/cancel_request`
    Request,
}

impl CancelForm {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Session => Self::Request,
            Self::Request => Self::Session,
        }
    }
}

/// A stop under way.
#[derive(Debug)]
pub(super) struct TurnStop {
    state: StopState,
    pub(super) why: StopReason,
    /// The cancel, if it is not of the client.
    pub(super) cancel: Option<Box<Cancel>>,
    /// The form that came first.
    pub(super) form: CancelForm,
    /// When the stop began.
    pub(super) since: Instant,
    /// When its next input is due.
    pub(super) due: Option<Instant>,
    grace: Duration,
    on_ignored: OnIgnoredCancel,
    /// Processes of the turn that were ended.
    ended: u32,
    /// Whether the agent has answered while its processes are being ended.
    is_answered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopState {
    /// The first form was sent.
    Told,
    /// Both forms were sent.
    Retold,
    /// The kernel is asked for processes of the turn.
    Looking,
    /// Processes of the turn are being ended.
    EndingStrays,
    /// The agent has time to answer after the end of its processes.
    Waiting,
    /// Nothing more is done.
    Left,
}

/// Something that happens to a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopInput {
    /// Its time is due.
    Due,
    /// Living processes born in the turn; `None` if they are unknown or cannot be told from those
    /// of other turns.
    Examined(Option<u32>),
    /// Processes of the turn were ended, but for so many.
    StraysEnded { ended: u32, left: u32 },
    /// The agent answered the request, or said that its turn is over.
    Answered,
    /// The agent was ended.
    AgentEnded { others: bool },
}

/// Consequence for the supervision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnStopStep {
    Nothing,
    /// Send the form that was not sent yet.
    SayOther,
    Examine,
    EndStrays,
    /// Answer the client, and end the agent.
    GiveUp,
    /// The stop is over.
    Over(Proof),
}

impl TurnStop {
    pub(super) fn new(
        now: Instant,
        why: StopReason,
        form: CancelForm,
        grace: Duration,
        on_ignored: OnIgnoredCancel,
    ) -> Self {
        let due = Some(now + grace);
        Self {
            state: StopState::Told,
            why,
            cancel: None,
            form,
            since: now,
            due,
            grace,
            on_ignored,
            ended: 0,
            is_answered: false,
        }
    }

    /// Takes one input. Total: an input that a state has no use for changes nothing.
    pub(super) fn take(&mut self, now: Instant, input: StopInput) -> TurnStopStep {
        match (self.state, input) {
            // The number of ended processes is not known yet.
            (StopState::EndingStrays, StopInput::Answered) => {
                self.is_answered = true;
                TurnStopStep::Nothing
            }
            (StopState::EndingStrays, StopInput::StraysEnded { ended, left: _ })
                if self.is_answered =>
            {
                self.ended = self.ended.saturating_add(ended);
                TurnStopStep::Over(self.answered())
            }
            (_, StopInput::Answered) => TurnStopStep::Over(self.answered()),
            (_, StopInput::AgentEnded { .. }) if self.is_answered => {
                TurnStopStep::Over(self.answered())
            }
            (_, StopInput::AgentEnded { others: false }) => TurnStopStep::Over(Proof::Ended),
            (_, StopInput::AgentEnded { others: true }) => TurnStopStep::Over(Proof::Replaced),
            (StopState::Told, StopInput::Due) => {
                self.enter(StopState::Retold, Some(now + self.grace));
                TurnStopStep::SayOther
            }
            (StopState::Retold, StopInput::Due) => match self.on_ignored {
                OnIgnoredCancel::Replace => {
                    self.enter(StopState::Looking, None);
                    TurnStopStep::Examine
                }
                OnIgnoredCancel::Leave => {
                    self.enter(StopState::Left, None);
                    TurnStopStep::Over(Proof::Told)
                }
            },
            (StopState::Looking, StopInput::Examined(Some(born))) if born > 0 => {
                self.enter(StopState::EndingStrays, None);
                TurnStopStep::EndStrays
            }
            (StopState::Looking, StopInput::Examined(_)) | (StopState::Waiting, StopInput::Due) => {
                self.enter(StopState::Left, None);
                TurnStopStep::GiveUp
            }
            (StopState::EndingStrays, StopInput::StraysEnded { ended, left }) => {
                self.ended = self.ended.saturating_add(ended);
                if left > 0 {
                    self.enter(StopState::Left, None);
                    return TurnStopStep::GiveUp;
                }
                // An agent whose command has ended may answer now.
                self.enter(StopState::Waiting, Some(now + self.grace));
                TurnStopStep::Nothing
            }
            (StopState::Looking | StopState::EndingStrays | StopState::Left, StopInput::Due)
            | (
                StopState::Told
                | StopState::Retold
                | StopState::EndingStrays
                | StopState::Waiting
                | StopState::Left,
                StopInput::Examined(_),
            )
            | (
                StopState::Told
                | StopState::Retold
                | StopState::Looking
                | StopState::Waiting
                | StopState::Left,
                StopInput::StraysEnded { .. },
            ) => TurnStopStep::Nothing,
        }
    }

    const fn answered(&self) -> Proof {
        match self.ended {
            0 => Proof::Answered,
            ended => Proof::ChildrenEnded(ended),
        }
    }

    /// Whether processes of the work are being ended.
    pub(super) fn ends_strays(&self) -> bool {
        self.state == StopState::EndingStrays
    }

    /// Whether the work was answered and the end of its processes is awaited.
    pub(super) const fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Whether nothing more is done about it.
    pub(super) fn is_left(&self) -> bool {
        self.state == StopState::Left && self.on_ignored == OnIgnoredCancel::Leave
    }

    fn enter(&mut self, state: StopState, due: Option<Instant>) {
        (self.state, self.due) = (state, due);
    }
}
