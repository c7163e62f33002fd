//! The keys of one issuer over time: when they are read, and how long they are used (AUTH-02).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::key_set::KeySet;

/// Time between two reads of a set: a flood of tokens with unknown key ids causes no more.
pub(super) const READ_INTERVAL: Duration = Duration::from_secs(60);
/// Age at which a set is read again while it is used: a key that the issuer has withdrawn is not
/// accepted for longer.
const REFRESH_AGE: Duration = Duration::from_secs(600);
/// Age up to which a set is used while the issuer cannot be reached.
pub(super) const KEEP_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The keys of an issuer.
#[derive(Debug)]
pub(super) struct IssuerKeys {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The latest set, and the time of its read.
    set: Option<(Arc<KeySet>, Instant)>,
    /// Start of the latest read.
    last_read: Option<Instant>,
    reading: Reading,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Nothing is read.
    No,
    /// A read is to begin.
    Wanted,
    /// A thread reads.
    Active,
}

/// The answer about a key.
#[derive(Debug)]
pub(super) enum Found {
    /// The set that may have it.
    Set(Arc<KeySet>),
    /// A read that is under way may bring it.
    Later,
    /// No set is known, or the known one is too old.
    Nothing,
}

impl IssuerKeys {
    /// Keys that are to be read first. `kept`: the last good set of an earlier process, and the time
    /// of its read.
    pub(super) fn new(kept: Option<(KeySet, Instant)>) -> Self {
        let set = kept.map(|(set, read)| (Arc::new(set), read));
        let state = State { set, last_read: None, reading: Reading::Wanted };
        Self { state: Mutex::new(state) }
    }

    /// Has the keys read again, also if that was done lately.
    pub(super) fn renew(&self) {
        let mut state = self.lock();
        if state.reading == Reading::No {
            state.reading = Reading::Wanted;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the key with this id. A set without it is read again, once in a
    /// [`READ_INTERVAL`].
    pub(super) fn find(&self, id: Option<&str>, now: Instant) -> Found {
        let mut state = self.lock();
        let set = state.set.as_ref().filter(|(_, read)| now - *read <= KEEP_AGE).cloned();
        let is_known = set.as_ref().is_some_and(|(set, _)| set.knows(id));
        let is_old = set.as_ref().is_none_or(|(_, read)| now - *read >= REFRESH_AGE);
        let may_read = state.last_read.is_none_or(|last| now - last >= READ_INTERVAL);
        if state.reading == Reading::No && may_read && (!is_known || is_old) {
            state.reading = Reading::Wanted;
        }
        match (set, state.reading) {
            (Some((set, _)), _) if is_known => Found::Set(set),
            (_, Reading::Wanted | Reading::Active) => Found::Later,
            (Some((set, _)), Reading::No) => Found::Set(set),
            (None, Reading::No) => Found::Nothing,
        }
    }

    /// Whether a read is to begin, which it does by this call.
    pub(super) fn begin_read(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let is_wanted = state.reading == Reading::Wanted;
        if is_wanted {
            state.reading = Reading::Active;
            state.last_read = Some(now);
        }
        is_wanted
    }

    /// A read has ended. After a failure the last good set stays.
    pub(super) fn end_read(&self, read: Option<KeySet>, now: Instant) {
        let mut state = self.lock();
        state.reading = Reading::No;
        if let Some(set) = read {
            state.set = Some((Arc::new(set), now));
        }
    }
}
