//! The token of a server by URL, shared by its instances of one identity. It is renewed once for
//! all of them, before it expires.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ceased_core::time::Instant;

use crate::server_token::{Lack, TokenAnswer};

/// A token is renewed while it is used, so long before it expires, or in the last fifth of its life.
const RENEWED_BEFORE: Duration = Duration::from_secs(45);
const LAST_PART: u32 = 5;
/// Wait before the next attempt to renew a token that could not be.
const AGAIN: Duration = Duration::from_secs(10);

/// Least time between two tokens that a server refuses: one that refuses each costs its
/// authorization server no request for each call.
const REFUSED_EVERY: Duration = Duration::from_millis(100);

/// Number of a token of a server: each new one has another.
pub(crate) type TokenNumber = u64;

/// The token of a server.
#[derive(Clone)]
pub(crate) struct Bearer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    header: Option<String>,
    number: TokenNumber,
    expires: Option<Instant>,
    renewal: Option<Instant>,
    phase: Phase,
    /// When the latest token was refused.
    refused: Option<Instant>,
    lack: Option<Lack>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// There is no source of tokens.
    #[default]
    Sourceless,
    /// It was not asked for one yet.
    Unasked,
    /// It is being asked.
    Asked,
    /// It has answered, and may be asked again from then on.
    Answered(Instant),
}

/// The next step of a user of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Send with the token, if there is one.
    None,
    /// As `None`, and have it renewed.
    Renewal,
    /// Wait for a token that is being asked for.
    Wait,
    /// Have a token asked for, and wait.
    Token,
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").field("number", &self.state().number).finish_non_exhaustive()
    }
}

impl Bearer {
    /// The token of a server, whose source was not asked yet; of one without a source.
    pub(crate) fn new(has_source: bool) -> Self {
        let phase = if has_source { Phase::Unasked } else { Phase::Sourceless };
        Self(Arc::new(Mutex::new(State { phase, ..State::default() })))
    }

    /// Whether an instance has it.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Whether it is this one.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The step that a request waits for.
    pub(super) fn need(&self, now: Instant) -> Need {
        let state = self.state();
        let is_over = state.expires.is_some_and(|at| at <= now);
        let is_soon = state.renewal.is_some_and(|at| at <= now);
        match state.phase {
            Phase::Sourceless => Need::None,
            Phase::Unasked => Need::Token,
            Phase::Asked if state.header.is_none() || is_over => Need::Wait,
            Phase::Asked => Need::None,
            Phase::Answered(again) if is_over && again <= now => Need::Token,
            Phase::Answered(again) if is_soon && again <= now => Need::Renewal,
            Phase::Answered(_) => Need::None,
        }
    }

    /// The server has refused this token, or a request without one (0). Whether a better one can be
    /// waited for.
    pub(super) fn may_improve(&self, refused: TokenNumber, now: Instant) -> bool {
        let mut state = self.state();
        match state.phase {
            Phase::Sourceless => false,
            Phase::Unasked | Phase::Asked => true,
            Phase::Answered(_) if state.number != refused => true,
            Phase::Answered(_) if state.refused.is_some_and(|at| now < at + REFUSED_EVERY) => false,
            Phase::Answered(again) if again <= now => {
                state.refused = Some(now);
                // It is of no use any more, whatever its time of expiry.
                state.expires = Some(now);
                true
            }
            Phase::Answered(_) => false,
        }
    }

    /// The value of the header, and the number of the token; 0 without one.
    pub(super) fn header(&self) -> (Option<String>, TokenNumber) {
        let state = self.state();
        (state.header.clone(), if state.header.is_some() { state.number } else { 0 })
    }

    /// Begins to ask the source. `None` if it is being asked already; the token that is of no use
    /// any more, else.
    pub(crate) fn begin(&self, now: Instant) -> Option<Option<String>> {
        let mut state = self.state();
        if matches!(state.phase, Phase::Asked | Phase::Sourceless) {
            return None;
        }
        state.phase = Phase::Asked;
        let is_over = state.expires.is_some_and(|at| at <= now);
        let token = state.header.as_deref().and_then(|header| header.strip_prefix("Bearer "));
        Some(token.filter(|_| is_over).map(str::to_owned))
    }

    /// The source has answered.
    pub(crate) fn take(&self, answer: TokenAnswer, now: Instant) {
        let mut state = self.state();
        match answer {
            Ok(token) => {
                state.header = Some(format!("Bearer {}", token.text));
                state.number += 1;
                state.expires = token.expires_in.map(|time| now + time);
                let used = |time: Duration| time - RENEWED_BEFORE.min(time / LAST_PART);
                state.renewal = token.expires_in.map(|time| now + used(time));
                (state.phase, state.lack) = (Phase::Answered(now), None);
            }
            Err(lack) => {
                state.phase = Phase::Answered(now + AGAIN);
                state.lack = Some(lack);
            }
        }
    }

    /// The source has changed: it is asked before the next request.
    pub(crate) fn forget(&self) {
        let mut state = self.state();
        if state.phase != Phase::Sourceless {
            let number = state.number + 1;
            *state = State { phase: Phase::Unasked, number, ..State::default() };
        }
    }

    /// Why there is no good token.
    pub(crate) fn why(&self) -> Option<Lack> {
        self.state().lack.clone()
    }

    /// Whether there is a source, whether it has given a token, and when that expires.
    pub(crate) fn told(&self) -> (bool, bool, Option<Instant>) {
        let state = self.state();
        (state.phase != Phase::Sourceless, state.header.is_some(), state.expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_token::Token;

    const SECOND: Duration = Duration::from_secs(1);

    fn give(bearer: &Bearer, text: &str, expires_in: Option<Duration>, now: Instant) {
        bearer.take(Ok(Token { text: text.into(), expires_in }), now);
    }

    #[test]
    fn token_is_renewed_once_and_before_it_expires() {
        let start = Instant::ZERO;
        let bearer = Bearer::new(true);
        assert_eq!(bearer.need(start), Need::Token);
        assert_eq!(bearer.begin(start), Some(None));
        assert_eq!((bearer.need(start), bearer.begin(start)), (Need::Wait, None));
        give(&bearer, "a", Some(100 * SECOND), start);
        assert_eq!(bearer.need(start + 79 * SECOND), Need::None);
        let soon = start + 80 * SECOND;
        assert_eq!(bearer.need(soon), Need::Renewal);
        assert_eq!(bearer.begin(soon), Some(None), "it is good still");
        assert_eq!(bearer.need(soon), Need::None, "the others use the old one");
        assert_eq!(bearer.need(start + 100 * SECOND), Need::Wait, "until it is over");
        give(&bearer, "b", None, soon);
        assert_eq!(bearer.header(), (Some("Bearer b".into()), 2));
    }

    #[test]
    fn server_that_refuses_every_token_has_few_asked_for() {
        let start = Instant::ZERO;
        let bearer = Bearer::new(true);
        let _ = bearer.begin(start);
        give(&bearer, "a", None, start);
        assert!(bearer.may_improve(1, start));
        let _ = bearer.begin(start);
        give(&bearer, "b", None, start);
        assert!(!bearer.may_improve(2, start) && bearer.may_improve(1, start));
        assert!(bearer.may_improve(2, start + REFUSED_EVERY));
    }

    #[test]
    fn refused_token_is_replaced_once() {
        let start = Instant::ZERO;
        let bearer = Bearer::new(true);
        assert!(bearer.may_improve(0, start));
        let _ = bearer.begin(start);
        give(&bearer, "a", None, start);
        assert!(bearer.may_improve(0, start), "another request was sent without it");
        assert!(bearer.may_improve(1, start));
        assert_eq!(bearer.begin(start), Some(Some("a".into())));
        let lack = Lack { why: "w".into(), needs_login: true };
        bearer.take(Err(lack.clone()), start);
        assert!(!bearer.may_improve(1, start + SECOND));
        assert_eq!((bearer.need(start + SECOND), bearer.why()), (Need::None, Some(lack)));
        assert_eq!(bearer.need(start + AGAIN), Need::Token);
        bearer.forget();
        assert_eq!((bearer.need(start), bearer.why()), (Need::Token, None));
        assert!(!Bearer::new(false).may_improve(0, start));
    }
}
