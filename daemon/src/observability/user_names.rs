//! Names of the users of this machine that have connected, for views that no shell of it prints.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use ceased_core::identity::Identity;

use crate::accounts;

/// Users whose names are kept; further ones are shown by their numbers.
const USERS_MAX: usize = 1024;

/// Names by user id. A lookup may ask a service, so that a thread does it; a view is told the name
/// with its next status.
#[derive(Debug, Default)]
pub(crate) struct UserNames {
    seen: BTreeSet<u32>,
    /// `None`: the account database has no such user.
    known: Arc<Mutex<BTreeMap<u32, Option<String>>>>,
}

impl UserNames {
    /// Notes that a user has connected.
    pub(crate) fn note(&mut self, identity: &Identity) {
        if let Identity::User(uid) = identity
            && self.seen.len() < USERS_MAX
        {
            self.seen.insert(*uid);
        }
    }

    /// The names that a viewer is told, by identity: its own one, or all for `None`.
    pub(crate) fn told(&self, viewer: Option<&Identity>) -> BTreeMap<String, String> {
        let wanted: BTreeSet<u32> = match viewer {
            None => self.seen.clone(),
            Some(Identity::User(uid)) => BTreeSet::from([*uid]),
            Some(Identity::Token(_) | Identity::Subject(_) | Identity::Anonymous) => {
                BTreeSet::new()
            }
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown: Vec<u32> =
            wanted.iter().filter(|uid| !known.contains_key(uid)).copied().collect();
        let name = |uid: &u32| Some((format!("uid:{uid}"), known.get(uid)?.clone()?));
        let names = wanted.iter().filter_map(name).collect();
        // The thread has the other reference; one at a time.
        if !unknown.is_empty() && Arc::strong_count(&self.known) == 1 {
            let found = Arc::clone(&self.known);
            let look_up = move || {
                for uid in unknown {
                    let name = accounts::name_of(uid);
                    found.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, name);
                }
            };
            if let Err(error) = std::thread::Builder::new().name("names".into()).spawn(look_up) {
                tracing::debug!(%error, "cannot look up the names of users");
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TSK-39: a viewer is told its own name, an operator those of all users.
    #[test]
    fn viewer_is_told_its_own_name() {
        let mut names = UserNames::default();
        for identity in [Identity::User(0), Identity::User(4_000_000), Identity::Anonymous] {
            names.note(&identity);
        }
        let all = BTreeMap::from([("uid:0".to_owned(), "root".to_owned())]);
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while names.told(None) != all {
            assert!(std::time::Instant::now() < until, "{names:?}");
            std::thread::yield_now();
        }
        assert_eq!(names.told(Some(&Identity::User(0))), all);
        assert_eq!(names.told(Some(&Identity::User(4_000_000))), BTreeMap::new());
        assert_eq!(names.told(Some(&Identity::Token("root".into()))), BTreeMap::new());
    }
}
