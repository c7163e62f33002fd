//! Requests that wait for a token, or were refused for theirs.

use ceased_core::time::Instant;
use ceased_core::upstream::interface::CancelFate;

use super::bearer::{Bearer, Need};
use super::exchange::SlotId;
use super::machine::{Effect, Remote};
use super::message::{Kind, Outgoing};

/// Status of a request without a good token.
pub(super) const UNAUTHORIZED: u16 = 401;

impl Remote {
    /// Whether requests wait for a token. It is asked for where it has to be.
    pub(super) fn waits_for_token(&mut self, now: Instant) -> bool {
        let need = self.bearer.need(now);
        if matches!(need, Need::Token | Need::Renewal) {
            self.effects.push(Effect::AskForToken);
        }
        matches!(need, Need::Token | Need::Wait)
    }

    /// Whether its requests have this token.
    pub(crate) fn uses(&self, bearer: &Bearer) -> bool {
        self.bearer.is(bearer)
    }

    /// The token for its requests.
    pub(crate) const fn bearer(&self) -> &Bearer {
        &self.bearer
    }

    /// The source of the token has answered.
    pub(crate) fn take_token(&mut self, now: Instant) {
        self.pump(now);
    }

    /// Whether the response on a connection refuses its token, and a better one may be had.
    pub(super) fn wants_better_token(&self, slot: SlotId, now: Instant) -> bool {
        let Some(state) = self.slots.get(&slot) else { return false };
        state.status() == UNAUTHORIZED && self.bearer.may_improve(state.token, now)
    }

    /// Keeps a message that was refused for its token, once; gives it back otherwise. The server
    /// has not begun it.
    pub(super) fn keep_refused(
        &mut self,
        slot: SlotId,
        message: Outgoing,
        now: Instant,
    ) -> Option<Outgoing> {
        if message.is_repeated || !self.wants_better_token(slot, now) {
            return Some(message);
        }
        let is_cancelled = self.slots.get(&slot).is_some_and(|state| state.is_cancelled);
        match message.kind {
            Kind::Call { id, .. } if is_cancelled => {
                self.drop_cancels_of(id);
                self.tell_fate(id, CancelFate::Unsent);
            }
            Kind::Call { .. } | Kind::Cancel { .. } | Kind::Initialized | Kind::Notice => {
                // It is sent before those that rest on it.
                self.is_held &= message.kind != Kind::Initialized;
                self.waiting.push_front(Outgoing { is_repeated: true, ..message });
            }
        }
        None
    }

    /// The step that a person has to take after a refused token.
    pub(super) fn remedy_for_token(&self) -> String {
        let (has_source, ..) = self.bearer.told();
        match self.bearer.why() {
            Some(lack) => format!("; {}", lack.why),
            None if has_source => "; it refuses the token".to_owned(),
            None => "; it refuses the `headers` of its entry".to_owned(),
        }
    }
}
