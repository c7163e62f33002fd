//! Pieces of a session's work in version 2: tool calls and terminals of the agent, and everything that
//! it lists as background work (SUP-05, SUP-06).
//!
//! ```text
//!   announced ──cancel──► Told ──grace──► Ending ──its processes have ended──► Over
//!       │                  │                │
//!       └── final status, exit status ──────┴──► gone
//! ```

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::action::Cancel;
use crate::births::Births;
use crate::ids::{JobId, RequestId};
use crate::supervisor::piece_kind::PieceKind;
use crate::time::Instant;
use crate::upstream::rewrite::{elements, member, text_member};

/// Pieces that are known at most; a piece beyond is passed on, and cannot be told from the others.
const PIECES_MAX: usize = 1024;
/// Bytes of a list of background work, of an id or of a kind that are kept at most.
const TEXT_MAX: usize = 64 * 1024;

/// How far the cancel of a piece is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PieceState {
    /// The agent was told.
    Told,
    /// Its processes are being ended.
    Ending,
    /// They have ended, and the agent has not told of it.
    Cleared,
    /// Nothing more is done.
    Over,
}

/// The cancel of one piece.
#[derive(Debug)]
pub(super) struct PieceStop {
    pub(super) state: PieceState,
    pub(super) since: Instant,
    pub(super) due: Option<Instant>,
    /// The request of the client; `None` for a cancel of a person.
    pub(super) request: Option<RequestId>,
    /// The cancel, if it is not of the client.
    pub(super) cancel: Option<Box<Cancel>>,
    /// Whether the agent has reported the end meanwhile.
    pub(super) has_ended: bool,
}

/// One tool call or terminal that runs, or other background work.
#[derive(Debug)]
pub(super) struct WorkPiece {
    /// Number among the works, never used before.
    pub(super) number: u64,
    pub(super) job: Option<JobId>,
    pub(super) kind: PieceKind,
    pub(super) id: Box<str>,
    pub(super) session: Box<str>,
    /// When it was announced.
    pub(super) since: Instant,
    pub(super) can_cancel: bool,
    /// Whether the last list of background work has it.
    pub(super) is_background: bool,
    /// Terminals that a tool call shows.
    terminals: BTreeSet<Box<str>>,
    pub(super) stop: Option<PieceStop>,
}

impl WorkPiece {
    fn is(&self, kind: PieceKind, id: &str, session: &str) -> bool {
        self.kind == kind && *self.id == *id && *self.session == *session
    }

    pub(super) fn is_stopping(&self) -> bool {
        let state = self.stop.as_ref().map(|stop| stop.state);
        matches!(state, Some(PieceState::Told | PieceState::Ending))
    }
}

/// The pieces of all sessions of a client.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    all: Vec<WorkPiece>,
}

/// A difference that an update makes.
#[derive(Debug)]
pub(super) enum PieceChange {
    None,
    /// The piece with this number has ended.
    Ended(u64),
}

impl Pieces {
    pub(super) fn iter(&self) -> impl Iterator<Item = &WorkPiece> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut WorkPiece> {
        self.all.iter_mut()
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut WorkPiece> {
        self.all.iter_mut().find(|piece| piece.number == number)
    }

    pub(super) fn take(&mut self, number: u64) -> Option<WorkPiece> {
        let at = self.all.iter().position(|piece| piece.number == number)?;
        Some(self.all.remove(at))
    }

    /// The piece that the params of a cancel name.
    pub(super) fn named(&self, method: &str, params: &str) -> Option<&WorkPiece> {
        let kind = PieceKind::of_cancel(method)?;
        let session = text_member(params, "sessionId")?;
        let id = text_member(params, kind.id_member())?;
        self.all.iter().find(|piece| piece.is(kind, &id, &session))
    }

    /// Whether background work is under way in a session, or in any.
    pub(super) fn has_background(&self, session: Option<&str>) -> bool {
        let is_of = |piece: &WorkPiece| session.is_none_or(|session| *piece.session == *session);
        self.all.iter().any(|piece| piece.is_background && is_of(piece))
    }

    /// Takes an update of a tool call or a terminal.
    pub(super) fn note_update(
        &mut self,
        now: Instant,
        (session, kind, update): (&str, PieceKind, &str),
        number: u64,
    ) -> PieceChange {
        let Some(id) = text_member(update, kind.id_member()) else { return PieceChange::None };
        let known = self.all.iter().position(|piece| piece.is(kind, &id, session));
        if kind.has_ended(update) {
            return known.map_or(PieceChange::None, |at| PieceChange::Ended(self.all[at].number));
        }
        let at = match known {
            Some(at) => at,
            None => match self.add(now, kind, &id, session, number) {
                Some(at) => at,
                None => return PieceChange::None,
            },
        };
        let piece = &mut self.all[at];
        if let Some(said) = member(update, "capabilities") {
            piece.can_cancel = member(said, "cancel").is_some_and(|it| it.starts_with('{'));
        }
        if let Some(content) = member(update, "content").filter(|_| kind == PieceKind::ToolCall) {
            let shown =
                elements(content).into_iter().filter_map(|it| text_member(it, "terminalId"));
            piece.terminals.extend(shown.take(PIECES_MAX));
        }
        PieceChange::None
    }

    fn add(
        &mut self,
        now: Instant,
        kind: PieceKind,
        id: &str,
        session: &str,
        number: u64,
    ) -> Option<usize> {
        if self.all.len() >= PIECES_MAX || id.len() > TEXT_MAX {
            return None;
        }
        self.all.push(WorkPiece {
            number,
            job: None,
            kind,
            id: id.into(),
            session: session.into(),
            since: now,
            can_cancel: false,
            is_background: false,
            terminals: BTreeSet::new(),
            stop: None,
        });
        Some(self.all.len() - 1)
    }

    /// Takes a list of background work, which is whole. Work that was not announced, or is of a kind
    /// that is not known, counts from now on. `number` draws numbers.
    pub(super) fn note_background(
        &mut self,
        now: Instant,
        session: &str,
        list: &str,
        mut number: impl FnMut() -> u64,
    ) {
        for piece in self.all.iter_mut().filter(|piece| *piece.session == *session) {
            piece.is_background = false;
        }
        for item in elements(list).into_iter().take(PIECES_MAX) {
            let kind = match text_member(item, "type").as_deref() {
                Some("terminal") => PieceKind::Terminal,
                Some("tool_call") => PieceKind::ToolCall,
                Some(_) | None => PieceKind::Other,
            };
            let id = match kind {
                PieceKind::Other => Some(item.into()),
                PieceKind::Terminal | PieceKind::ToolCall => text_member(item, kind.id_member()),
            };
            let Some(id) = id else { continue };
            let known = self.all.iter().position(|piece| piece.is(kind, &id, session));
            let at = known.or_else(|| self.add(now, kind, &id, session, number()));
            if let Some(at) = at {
                self.all[at].is_background = true;
            }
        }
        self.all.retain(|it| {
            it.kind != PieceKind::Other || it.is_background || *it.session != *session
        });
    }

    /// The foreground work of a session is over: pieces of it that were not reported to end are
    /// forgotten, unless they are being stopped.
    pub(super) fn rest(&mut self, session: &str) {
        self.all.retain(|it| *it.session != *session || it.is_background || it.is_stopping());
    }

    /// Takes out the pieces of a session, or of all.
    pub(super) fn take_of(&mut self, session: Option<&str>) -> Vec<WorkPiece> {
        let is_of =
            |piece: &mut WorkPiece| session.is_none_or(|session| *piece.session == *session);
        self.all.extract_if(.., is_of).collect()
    }

    /// Whether an update of a session is about background work.
    pub(super) fn is_about_background(&self, session: &str, kind: &str, update: &str) -> bool {
        let Some(kind) = PieceKind::of_update(kind) else { return false };
        let Some(id) = text_member(update, kind.id_member()) else { return false };
        self.all.iter().any(|piece| piece.is_background && piece.is(kind, &id, session))
    }

    /// The processes of one piece; those of a tool call with its terminals.
    pub(super) fn births_of(&self, number: u64, floor: Instant) -> Option<Births> {
        let piece = self.all.iter().find(|piece| piece.number == number)?;
        let is_shown = |it: &WorkPiece| {
            it.kind == PieceKind::Terminal
                && it.session == piece.session
                && piece.terminals.contains(&it.id)
        };
        let works = self.holders().map(|it| (it.since, it.number == number || is_shown(it)));
        Some(Births { since: floor, floor, other: None, works: works.collect() })
    }

    /// The processes of a turn that began then: all that were born since, but for background work and
    /// the pieces of other sessions.
    pub(super) fn births_of_turn(
        &self,
        session: Option<&str>,
        since: Instant,
        floor: Instant,
    ) -> Births {
        let is_spared =
            |it: &WorkPiece| it.is_background || session.is_some_and(|of| *it.session != *of);
        if !self.all.iter().any(is_spared) {
            return Births::since(since);
        }
        let works = self.holders().map(|it| (it.since, !is_spared(it))).collect();
        Births { since, floor, other: Some(since), works }
    }

    /// The pieces that have processes, in the order of their announcement: a tool call that shows
    /// terminals has those of the terminals, and those of a piece that has ended are gone.
    fn holders(&self) -> impl Iterator<Item = &WorkPiece> {
        let is_live = |piece: &WorkPiece, id: &str| {
            let mut all = self.all.iter();
            all.any(|it| it.is(PieceKind::Terminal, id, &piece.session))
        };
        let is_cleared = |it: &WorkPiece| {
            let stop = it.stop.as_ref();
            stop.is_some_and(|stop| stop.state == PieceState::Cleared || stop.has_ended)
        };
        let has_others = move |it: &WorkPiece| it.terminals.iter().any(|id| is_live(it, id));
        self.all.iter().filter(move |it| !is_cleared(it) && !has_others(it))
    }

    /// Numbers the pieces that have no job yet.
    pub(super) fn number(&mut self, mut draw: impl FnMut() -> JobId) {
        for piece in self.all.iter_mut().filter(|piece| piece.job.is_none()) {
            piece.job = Some(draw());
        }
    }
}
