//! Connections that the engine does not know: before authentication, and rejected. Bounded in
//! number, input and lifetime.
//!
//! ```text
//! begin ──▶ Authenticating ──authenticate──▶ (known to the engine)
//!               │      └─delay─▶ Delayed ─┐
//!               └───────reject────────────┴▶ Rejected ──deadline──▶ (closed)
//! ```
//!
//! Also the peers whose process is being inspected, which have no connection yet.

use std::collections::{BTreeMap, BTreeSet};

use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::time::Instant;
use ceased_transports::Transport;

use super::auth::{TokenHandshake, Verdict};
use super::constants::LAST_FLUSH;
use super::party::{Party, oldest_of_most};
use super::wrong_tokens::WrongTokens;
use crate::access::TokenAccess;

/// Every connection that the engine does not know.
#[derive(Default)]
pub(crate) struct Handshakes {
    pending: BTreeMap<ConnId, Handshake>,
    deadlines: BTreeSet<(Instant, ConnId)>,
    wrong_tokens: WrongTokens,
    next_ticket: u64,
    /// Peers whose process is being inspected, by ticket.
    inspected: BTreeMap<u64, (Box<dyn Transport>, Identity)>,
}

struct Handshake {
    party: Party,
    until: Instant,
    stage: Stage,
}

enum Stage {
    /// It must present a token.
    Authenticating(TokenHandshake),
    /// It presented a wrong token; the answer is delayed, so that guessing is slow.
    Delayed(Vec<u8>),
    /// It was rejected and has a moment to read the reason.
    Rejected,
}

/// Use of the next input of a connection.
pub(crate) enum Input<'a> {
    /// The engine knows the connection.
    Engine,
    /// The first frame is checked.
    Check(&'a TokenHandshake),
    /// It is read after a delayed answer to its party.
    Postpone,
    Discard,
}

/// A connection past its deadline.
pub(crate) enum Overdue {
    /// No token in time: apply the verdict.
    Authenticating(Verdict),
    /// Reject it with this answer, then read further connections of the party.
    Delayed(Vec<u8>, Party),
    /// Close it.
    Rejected,
}

/// A connection that was closed before the engine knew it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    Authenticating,
    /// Read further connections of this party.
    Delayed(Party),
    /// Its rejection was recorded before.
    Rejected,
}

impl Handshakes {
    /// Whether the engine does not know this connection.
    pub(crate) fn is_pending(&self, conn: ConnId) -> bool {
        self.pending.contains_key(&conn)
    }

    pub(crate) fn is_rejected(&self, conn: ConnId) -> bool {
        self.pending.get(&conn).is_some_and(|it| matches!(it.stage, Stage::Rejected))
    }

    pub(crate) fn is_delayed(&self, conn: ConnId) -> bool {
        self.pending.get(&conn).is_some_and(|it| matches!(it.stage, Stage::Delayed(_)))
    }

    /// Number of rejected connections that are not closed yet.
    pub(crate) fn rejected(&self) -> usize {
        self.pending.values().filter(|it| matches!(it.stage, Stage::Rejected)).count()
    }

    /// Time of the next [`Handshakes::take_overdue`].
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// The connection to evict before another handshake begins, if `max` are in progress: the
    /// oldest of the party with most of them, so that no other party loses a place.
    pub(crate) fn to_evict(&self, max: usize) -> Option<ConnId> {
        let all = self.authenticating().map(|(conn, it)| (it.party.clone(), conn)).collect();
        oldest_of_most(all, max)
    }

    /// A new connection must authenticate by `until`.
    pub(crate) fn begin(
        &mut self,
        conn: ConnId,
        party: Party,
        access: TokenAccess,
        until: Instant,
    ) {
        let stage = Stage::Authenticating(TokenHandshake { access });
        self.set(conn, Handshake { party, until, stage });
    }

    /// Use of the next input of a connection, if at most `delayed_max` answers are delayed, half
    /// of them for one party.
    pub(crate) fn input(&self, conn: ConnId, delayed_max: usize) -> Input<'_> {
        let Some(it) = self.pending.get(&conn) else { return Input::Engine };
        match &it.stage {
            Stage::Authenticating(_) if self.is_held_up(&it.party, delayed_max) => Input::Postpone,
            Stage::Authenticating(handshake) => Input::Check(handshake),
            Stage::Delayed(_) | Stage::Rejected => Input::Discard,
        }
    }

    /// A connection has authenticated: the engine will know it.
    pub(crate) fn authenticate(&mut self, conn: ConnId) {
        self.take(conn);
    }

    /// Delays the answer to a wrong token, longer for each recent one of its party. Returns the
    /// answer if it is not delayed.
    pub(crate) fn delay(&mut self, conn: ConnId, now: Instant, answer: Vec<u8>) -> Option<Vec<u8>> {
        let Handshake { party, .. } = self.take(conn)?;
        let delay = self.wrong_tokens.note(now, party.clone());
        if delay.is_zero() {
            let stage = Stage::Rejected;
            self.set(conn, Handshake { party, until: now, stage });
            return Some(answer);
        }
        self.set(conn, Handshake { party, until: now + delay, stage: Stage::Delayed(answer) });
        None
    }

    /// Rejects a connection of a party. Returns whether it has time to read the reason: at most
    /// `max` have, further ones are to be closed at once.
    pub(crate) fn reject(&mut self, conn: ConnId, party: Party, now: Instant, max: usize) -> bool {
        self.take(conn);
        let has_time = self.rejected() < max;
        self.set(conn, Handshake { party, until: now + LAST_FLUSH, stage: Stage::Rejected });
        has_time
    }

    /// Takes the deadline of a connection that is past it. The connection stays in its stage until
    /// the caller has applied the result.
    pub(crate) fn take_overdue(&mut self, now: Instant) -> Option<(ConnId, Overdue)> {
        while let Some((at, conn)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            self.deadlines.remove(&(at, conn));
            let Some(it) = self.pending.get_mut(&conn) else { continue };
            let overdue = match &mut it.stage {
                Stage::Authenticating(handshake) => Overdue::Authenticating(handshake.expire()),
                Stage::Delayed(answer) => {
                    Overdue::Delayed(std::mem::take(answer), it.party.clone())
                }
                Stage::Rejected => Overdue::Rejected,
            };
            return Some((conn, overdue));
        }
        None
    }

    /// A connection is closed. `None`: the engine knew it.
    pub(crate) fn close(&mut self, conn: ConnId) -> Option<Abandoned> {
        let Handshake { party, stage, .. } = self.take(conn)?;
        Some(match stage {
            Stage::Authenticating(_) => Abandoned::Authenticating,
            Stage::Delayed(_) => Abandoned::Delayed(party),
            Stage::Rejected => Abandoned::Rejected,
        })
    }

    /// Connections of a party that must still authenticate.
    pub(crate) fn authenticating_of(&self, party: &Party) -> Vec<ConnId> {
        let own = self.authenticating().filter(|(_, it)| it.party == *party);
        own.map(|(conn, _)| conn).collect()
    }

    fn authenticating(&self) -> impl Iterator<Item = (ConnId, &Handshake)> {
        let all = self.pending.iter().map(|(conn, it)| (*conn, it));
        all.filter(|(_, it)| matches!(it.stage, Stage::Authenticating(_)))
    }

    /// Whether the limit of delayed answers of a party is reached, so that its next token waits.
    fn is_held_up(&self, party: &Party, max: usize) -> bool {
        let (mut all, mut own) = (0, 0);
        for it in self.pending.values().filter(|it| matches!(it.stage, Stage::Delayed(_))) {
            all += 1;
            own += usize::from(it.party == *party);
        }
        own >= max / 2 || all >= max
    }

    fn set(&mut self, conn: ConnId, handshake: Handshake) {
        self.deadlines.insert((handshake.until, conn));
        self.pending.insert(conn, handshake);
    }

    fn take(&mut self, conn: ConnId) -> Option<Handshake> {
        let handshake = self.pending.remove(&conn)?;
        self.deadlines.remove(&(handshake.until, conn));
        Some(handshake)
    }
}

/// Inspection of the processes of peers.
impl Handshakes {
    /// A peer waits for the inspection of its process; returns the ticket of that.
    pub(crate) fn begin_inspection(
        &mut self,
        transport: Box<dyn Transport>,
        identity: Identity,
    ) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.inspected.insert(ticket, (transport, identity));
        ticket
    }

    /// The inspection has ended.
    pub(crate) fn end_inspection(&mut self, ticket: u64) -> Option<(Box<dyn Transport>, Identity)> {
        self.inspected.remove(&ticket)
    }

    /// Number of peers whose process is being inspected.
    pub(crate) fn inspected(&self) -> usize {
        self.inspected.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::token_file::Tokens;

    fn party(user: u32) -> Party {
        Party::Identity(Identity::User(user))
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn begin(handshakes: &mut Handshakes, conn: u64, user: u32) -> ConnId {
        let access = TokenAccess { tokens: Arc::new(Tokens::default()), anonymous: false };
        handshakes.begin(ConnId::new(conn), party(user), access, at(5_000));
        ConnId::new(conn)
    }

    /// Every way out of the table takes the deadline with it.
    #[test]
    fn handshake_has_one_deadline() {
        let mut handshakes = Handshakes::default();
        let one = begin(&mut handshakes, 1, 7);
        assert_eq!(handshakes.deadline(), Some(at(5_000)));
        assert!(handshakes.reject(one, party(7), at(10), 1));
        assert!(handshakes.is_rejected(one) && handshakes.deadlines.len() == 1);
        let two = begin(&mut handshakes, 2, 7);
        assert!(!handshakes.reject(two, party(7), at(10), 1), "one has time to read already");
        assert_eq!(handshakes.close(two), Some(Abandoned::Rejected));
        assert!(matches!(handshakes.take_overdue(at(9_000)), Some((_, Overdue::Rejected))));
        assert_eq!(handshakes.close(one), Some(Abandoned::Rejected));
        let three = begin(&mut handshakes, 3, 7);
        handshakes.authenticate(three);
        assert_eq!((handshakes.close(three), handshakes.deadline()), (None, None));
    }

    /// The first wrong tokens are answered at once, later ones are delayed; with half of the
    /// delayed answers for one party, its next token waits, and that of another one does not.
    #[test]
    fn delayed_answers_hold_up_their_party_alone() {
        let mut handshakes = Handshakes::default();
        for conn in 0..5 {
            let conn = begin(&mut handshakes, conn, 7);
            assert!(handshakes.delay(conn, at(0), vec![1]).is_some());
            assert!(handshakes.is_rejected(conn));
        }
        let late = begin(&mut handshakes, 5, 7);
        assert_eq!(handshakes.delay(late, at(0), vec![1]), None);
        let (own, other) = (begin(&mut handshakes, 6, 7), begin(&mut handshakes, 7, 8));
        assert!(matches!(handshakes.input(own, 2), Input::Postpone));
        assert!(matches!(handshakes.input(other, 2), Input::Check(_)));
        assert!(matches!(handshakes.input(late, 2), Input::Discard));
        assert!(matches!(handshakes.input(ConnId::new(99), 2), Input::Engine));
        assert_eq!(handshakes.close(late), Some(Abandoned::Delayed(party(7))));
        assert!(matches!(handshakes.input(own, 2), Input::Check(_)));
    }
}
