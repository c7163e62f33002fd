//! Kinds of the pieces of a session's work: their updates, their cancels, and their ends.

use crate::upstream::rewrite::{member, text_member};

/// Kind of a piece of a session's work (version 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceKind {
    ToolCall,
    Terminal,
    /// Background work of another kind.
    Other,
}

impl PieceKind {
    /// The kind that an update announces.
    pub(super) fn of_update(kind: &str) -> Option<Self> {
        match kind {
            "tool_call_update" => Some(Self::ToolCall),
            "terminal_update" => Some(Self::Terminal),
            _ => None,
        }
    }

    /// The kind that a method cancels.
    pub(super) fn of_cancel(method: &str) -> Option<Self> {
        [Self::ToolCall, Self::Terminal].into_iter().find(|kind| kind.cancel_method() == method)
    }

    /// The method that cancels a piece of this kind.
    pub(super) const fn cancel_method(self) -> &'static str {
        match self {
            Self::ToolCall => "tool_call/cancel",
            Self::Terminal => "terminal/cancel",
            Self::Other => "background",
        }
    }

    /// The member with its id.
    pub(super) const fn id_member(self) -> &'static str {
        match self {
            Self::ToolCall => "toolCallId",
            Self::Terminal | Self::Other => "terminalId",
        }
    }

    /// The word for it, in views and receipts.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::ToolCall => "tool_call",
            Self::Terminal => "terminal",
            Self::Other => "background",
        }
    }

    /// Whether an update tells the end of its piece.
    pub(super) fn has_ended(self, update: &str) -> bool {
        match self {
            Self::ToolCall => matches!(
                text_member(update, "status").as_deref(),
                Some("completed" | "failed" | "cancelled")
            ),
            Self::Terminal => member(update, "exitStatus").is_some_and(|it| it.starts_with('{')),
            Self::Other => false,
        }
    }
}
