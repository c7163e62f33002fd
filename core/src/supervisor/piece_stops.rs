//! Cancels of single tool calls and terminals, carried out (SUP-06), and background work through the
//! ends of turns and of agents (SUP-05).

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::action::{Cancel, RequestOutcome};
use crate::ids::{JobId, RequestId};
use crate::reason::StopReason;
use crate::supervisor::effect::{StopReceipt, SupervisionEffect};
use crate::supervisor::piece_kind::PieceKind;
use crate::supervisor::pieces::{PieceChange, PieceState, PieceStop, WorkPiece};
use crate::supervisor::supervision::Supervision;
use crate::supervisor::texts;
use crate::supervisor::work::AgentWork;
use crate::time::Instant;
use crate::upstream::interface::Proof;
use crate::upstream::rewrite::member;
use crate::upstream::server::OnIgnoredCancel;

impl Supervision {
    /// Version 2: takes an update of a session as far as it is about pieces of its work.
    pub(super) fn note_pieces(&mut self, now: Instant, session: &str, kind: &str, update: &str) {
        if self.abilities.version < 2 || self.sessions.get(session).is_none() {
            return;
        }
        if let Some(kind) = PieceKind::of_update(kind) {
            self.last_work += 1;
            let change = self.pieces.note_update(now, (session, kind, update), self.last_work);
            if let PieceChange::Ended(number) = change {
                self.end_piece(now, number);
            }
        } else if kind == "state_update"
            && let Some(list) = member(update, "background").filter(|list| list.starts_with('['))
        {
            let last = &mut self.last_work;
            self.pieces.note_background(now, session, list, || {
                *last += 1;
                *last
            });
            if let Some(session) = self.sessions.get_mut(session) {
                session.background = Some(list.into());
            }
        }
    }

    /// The agent has reported the end of a piece.
    fn end_piece(&mut self, now: Instant, number: u64) {
        let Some(piece) = self.pieces.get_mut(number) else { return };
        if let Some(stop) = &mut piece.stop {
            let waits = match stop.state {
                // The agent has not answered the cancel.
                PieceState::Told => has_request(&self.works, stop.request.as_ref()),
                // The number of ended processes is not known yet.
                PieceState::Ending => true,
                PieceState::Cleared | PieceState::Over => false,
            };
            stop.has_ended |= waits;
            if waits {
                return;
            }
        }
        if let Some(piece) = self.pieces.take(number) {
            self.write_piece_receipt(piece, Proof::Answered);
        }
        self.release(now);
    }

    /// The client cancels a piece: the request passes to the agent.
    pub(super) fn begin_piece_stop(
        &mut self,
        now: Instant,
        number: u64,
        request: Option<RequestId>,
        cancel: Option<Box<Cancel>>,
    ) {
        let grace = self.terms.cancel_grace;
        let Some(piece) = self.pieces.get_mut(number).filter(|piece| piece.stop.is_none()) else {
            return;
        };
        let method = piece.kind.cancel_method();
        let by_client = cancel.is_none();
        let state = PieceState::Told;
        let due = Some(now + grace);
        piece.stop = Some(PieceStop { state, since: now, due, request, cancel, has_ended: false });
        if by_client {
            let request = piece.stop.as_ref().and_then(|stop| stop.request.clone());
            self.note_cancel(request, method.into(), method);
        }
    }

    /// A person cancels a piece by its number: the agent is told, if the piece can be cancelled.
    /// False if there is no such piece.
    pub(super) fn cancel_piece(&mut self, now: Instant, job: JobId, cancel: &Cancel) -> bool {
        let Some(piece) = self.pieces.iter().find(|piece| piece.job == Some(job)) else {
            return false;
        };
        let (number, kind, is_told) = (piece.number, piece.kind, piece.can_cancel);
        if piece.stop.is_none() {
            if is_told {
                let params = texts::piece(&piece.session, kind.id_member(), &piece.id);
                let own = self.own_id();
                let request = texts::request(&own.token, kind.cancel_method(), &params);
                self.out.push(SupervisionEffect::ToAgent(request));
            }
            self.begin_piece_stop(now, number, None, Some(Box::new(cancel.clone())));
        }
        true
    }

    /// The agent has answered a request of the client that cancels a piece: a refusal ends the stop,
    /// and so does the answer for a piece that has ended.
    pub(super) fn on_piece_answer(&mut self, request: Option<&RequestId>, is_refused: bool) {
        let is_it = |piece: &&mut WorkPiece| {
            let stop = piece.stop.as_ref();
            stop.is_some_and(|stop| request.is_some() && stop.request.as_ref() == request)
        };
        let Some(piece) = self.pieces.iter_mut().find(is_it) else { return };
        let (number, told) = (piece.number, piece.stop.as_ref());
        let is_over = told.is_some_and(|it| it.has_ended && it.state == PieceState::Told);
        if is_refused {
            piece.stop = None;
        }
        if is_over && let Some(piece) = self.pieces.take(number) {
            self.write_piece_receipt(piece, Proof::Answered);
        }
    }

    /// The time of stops of pieces has come.
    pub(super) fn on_pieces_due(&mut self, now: Instant) {
        let is_due = |piece: &&WorkPiece| {
            let due = piece.stop.as_ref().and_then(|stop| stop.due);
            due.is_some_and(|at| at <= now)
        };
        let due: Vec<u64> = self.pieces.iter().filter(is_due).map(|piece| piece.number).collect();
        for number in due {
            let births = self.pieces.births_of(number, self.floor);
            let leaves = self.terms.on_ignored == OnIgnoredCancel::Leave;
            let Some(piece) = self.pieces.get_mut(number) else { continue };
            let Some(stop) = &mut piece.stop else { continue };
            stop.due = None;
            if stop.has_ended {
                self.end_piece_stop(now, number, PieceState::Over, Proof::Answered);
                continue;
            }
            match births.filter(|_| !leaves && piece.kind != PieceKind::Other) {
                Some(births) => {
                    stop.state = PieceState::Ending;
                    self.out.push(SupervisionEffect::EndStrays { check: number, births });
                }
                None => self.end_piece_stop(now, number, PieceState::Over, Proof::Told),
            }
        }
    }

    /// Processes of a piece were ended. False if the check is of no piece.
    pub(super) fn on_piece_strays(&mut self, now: Instant, check: u64, ended: u32) -> bool {
        let Some(piece) = self.pieces.get_mut(check) else { return false };
        let proof = match (ended, piece.stop.as_ref().is_some_and(|stop| stop.has_ended)) {
            (0, true) => Proof::Answered,
            (0, false) => Proof::Told,
            (ended, _) => Proof::ChildrenEnded(ended),
        };
        self.end_piece_stop(now, check, PieceState::Cleared, proof);
        true
    }

    /// The stop of a piece is over: its request is answered, if the agent has not.
    fn end_piece_stop(&mut self, now: Instant, number: u64, state: PieceState, proof: Proof) {
        let Some(piece) = self.pieces.get_mut(number) else { return };
        let Some(stop) = &mut piece.stop else { return };
        stop.state = state;
        let (request, has_ended) = (stop.request.clone(), stop.has_ended);
        let receipt = receipt_of(piece, proof);
        self.out.extend(receipt.map(SupervisionEffect::Receipt));
        self.accept_piece_cancel(request.as_ref());
        if has_ended {
            self.pieces.take(number);
        }
        self.release(now);
    }

    /// Answers the cancel of a piece if the agent has not: it is accepted by now.
    fn accept_piece_cancel(&mut self, request: Option<&RequestId>) {
        let is_it = |work: &AgentWork| work.id.as_ref().is_some_and(|of| Some(&of.id) == request);
        let Some(at) = self.works.iter().position(is_it) else { return };
        let mut work = self.works.swap_remove(at);
        self.end_span(&mut work, RequestOutcome::Answered);
        if let Some(id) = work.id {
            self.out.push(SupervisionEffect::ToClient(texts::result(&id.token, "{}")));
        }
    }

    fn write_piece_receipt(&mut self, piece: WorkPiece, proof: Proof) {
        if piece.is_stopping() {
            self.out.extend(receipt_of(&piece, proof).map(SupervisionEffect::Receipt));
        }
    }

    /// A session was closed: everything that the agent has left of it is ended (SUP-05).
    pub(super) fn close_pieces(&mut self, session: &str) {
        let numbers: Vec<u64> = { self.pieces.iter() }
            .filter(|piece| *piece.session == *session)
            .map(|piece| piece.number)
            .collect();
        for number in numbers {
            if let Some(births) = self.pieces.births_of(number, self.floor) {
                self.out.push(SupervisionEffect::EndStrays { check: number, births });
            }
        }
        for piece in self.pieces.take_of(Some(session)) {
            let stop = piece.stop.as_ref();
            self.accept_piece_cancel(stop.and_then(|stop| stop.request.clone()).as_ref());
            self.write_piece_receipt(piece, Proof::Answered);
        }
    }

    /// The agent has ended, and background work with it, which the client is told (SUP-05).
    pub(super) fn lose_pieces(&mut self) {
        let mut sessions: Vec<Box<str>> = Vec::new();
        for piece in self.pieces.take_of(None) {
            if piece.is_background && !self.is_over {
                if let Some(end) = texts::piece_end(&piece.session, piece.kind, &piece.id) {
                    self.out.push(SupervisionEffect::ToClient(end));
                }
                if !sessions.contains(&piece.session) {
                    sessions.push(piece.session.clone());
                }
            }
            self.write_piece_receipt(piece, Proof::Ended);
        }
        for session in sessions {
            *self.counts.entry("lost").or_default() += 1;
            let Some(known) = self.sessions.get_mut(&session) else { continue };
            known.background = Some("[]".into());
            if !known.is_running {
                self.out.push(SupervisionEffect::ToClient(texts::idle(&session, None, Some("[]"))));
            }
        }
    }
}

/// Whether a request of the client waits for its answer.
fn has_request(works: &[AgentWork], request: Option<&RequestId>) -> bool {
    let is_it = |work: &AgentWork| work.id.as_ref().is_some_and(|of| Some(&of.id) == request);
    request.is_some() && works.iter().any(is_it)
}

/// The receipt of a piece that is being stopped.
fn receipt_of(piece: &WorkPiece, proof: Proof) -> Option<StopReceipt> {
    let stop = piece.stop.as_ref()?;
    Some(StopReceipt {
        job: piece.job,
        request: stop.request.clone(),
        method: piece.kind.cancel_method().into(),
        why: StopReason::Requested,
        cancel: stop.cancel.clone(),
        since: stop.since,
        proof,
        object: Some((piece.kind.as_str(), piece.id.clone())),
    })
}
