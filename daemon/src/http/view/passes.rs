//! Passes of the live view: a user of this machine sees its own jobs in a browser.
//!
//! The kernel tells the user of a peer on a Unix socket, but not the user of a browser. So a peer
//! on the Unix socket asks for a link (`ceased/view`) and opens it in its browser. The code of the
//! link opens one stream, within a minute, and is exchanged there for a token, which only the page
//! gets to know: a link in a history or in the arguments of a process is of no use afterwards.

use std::time::{Duration, Instant};

use ceased_core::identity::{Identity, Rights};
use uuid::Uuid;

use crate::token_file::Secret;

/// Beginning of codes and tokens.
const PREFIX: &str = "view-";
/// Digits after it: those of two UUIDs.
const DIGITS: usize = 64;
/// How long a link can be opened: a person copies it to a browser.
pub(crate) const CODE_TTL: Duration = Duration::from_secs(60);
/// How long a browser keeps access: a day of work.
pub(crate) const TOKEN_TTL: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum number of codes, and of tokens, of one identity: some browsers and tabs. The oldest one
/// gives way.
const PER_IDENTITY_MAX: usize = 16;
/// Maximum number of codes, and of tokens, of all identities. The oldest one gives way.
const MAX: usize = 1024;

/// Whether a bearer token has the form of a code or token of a link. One of a token file may begin
/// with the same letters.
pub(crate) fn is_pass(token: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let digits = token.strip_prefix(PREFIX);
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.bytes().all(is_digit))
}

/// A secret that stands for an identity, with its rights, for some time.
struct Pass {
    secret: Secret,
    identity: Identity,
    rights: Rights,
    until: Instant,
}

/// Passes of one kind, in the order of their age.
#[derive(Default)]
struct Kept(Vec<Pass>);

impl Kept {
    /// Makes a new pass; returns its secret.
    fn issue(
        &mut self,
        (identity, rights): (&Identity, Rights),
        until: Instant,
        now: Instant,
    ) -> Option<String> {
        self.0.retain(|pass| pass.until > now);
        let mut own = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, pass)| (&pass.identity, pass.rights) == (identity, rights));
        let oldest = own.next().map(|(at, _)| at);
        if let Some(at) = oldest
            && own.count() + 1 >= PER_IDENTITY_MAX
        {
            self.0.remove(at);
        } else if self.0.len() >= MAX {
            self.0.remove(0);
        }
        // Two random UUIDs have 244 random bits.
        let text = format!("{PREFIX}{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let secret = Secret::new(&text)?;
        self.0.push(Pass { secret, identity: identity.clone(), rights, until });
        Some(text)
    }

    /// Finds a pass. Compares with every one in full, whether or not one matched.
    fn find(&self, presented: &str, now: Instant) -> Option<usize> {
        let presented = Secret::new(presented)?;
        let mut found = None;
        for (at, pass) in self.0.iter().enumerate() {
            if pass.secret.equals(&presented) && pass.until > now {
                found = Some(at);
            }
        }
        found
    }
}

/// The passes of a daemon; they end with it.
#[derive(Default)]
pub(crate) struct Passes {
    codes: Kept,
    tokens: Kept,
}

impl std::fmt::Debug for Passes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Passes({} codes, {} tokens)", self.codes.0.len(), self.tokens.0.len())
    }
}

impl Passes {
    /// The code of a new link for an identity with these rights.
    pub(crate) fn link(
        &mut self,
        identity: &Identity,
        rights: Rights,
        now: Instant,
    ) -> Option<String> {
        self.codes.issue((identity, rights), now + CODE_TTL, now)
    }

    /// Ends every code and token.
    pub(crate) fn end_all(&mut self) {
        *self = Self::default();
    }

    /// The identity of a token, and its rights.
    pub(crate) fn identity(&self, token: &str, now: Instant) -> Option<(Identity, Rights)> {
        let at = self.tokens.find(token, now)?;
        self.tokens.0.get(at).map(|pass| (pass.identity.clone(), pass.rights))
    }

    /// Exchanges a code for a token. The code is of no use afterwards.
    pub(crate) fn exchange(
        &mut self,
        code: &str,
        now: Instant,
    ) -> Option<((Identity, Rights), String)> {
        let at = self.codes.find(code, now)?;
        let Pass { identity, rights, .. } = self.codes.0.remove(at);
        let token = self.tokens.issue((&identity, rights), now + TOKEN_TTL, now)?;
        Some(((identity, rights), token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Identity = Identity::User(1);
    const BOB: Identity = Identity::User(2);

    #[test]
    fn code_is_exchanged_once_and_within_its_time() {
        let (mut passes, now) = (Passes::default(), Instant::now());
        let code = passes.link(&ANN, Rights::Full, now).unwrap();
        assert_eq!(passes.identity(&code, now), None, "a code is no token");
        assert!(is_pass(&code), "{code}");
        for other in ["view-", "view-of-ann", &code[1..], &code[..code.len() - 1]] {
            assert!(!is_pass(other), "{other}");
        }
        assert!(!is_pass(&code.to_uppercase()) && !is_pass(&format!("{code}0")));
        let late = passes.link(&BOB, Rights::InsideJob, now).unwrap();
        let (identity, token) = passes.exchange(&code, now).unwrap();
        assert_eq!(identity, (ANN, Rights::Full));
        assert_eq!(passes.exchange(&code, now), None);
        assert_eq!(passes.exchange(&late, now + CODE_TTL), None);
        assert_eq!(passes.exchange(&token, now), None, "a token is no code");
        assert_eq!(passes.identity(&token, now), Some((ANN, Rights::Full)));
        assert_eq!(passes.identity(&token[..token.len() - 1], now), None);
        assert_eq!(passes.identity(&token, now + TOKEN_TTL), None);
        assert!(!format!("{passes:?}").contains(&token));
    }

    /// SEC-05: a link that a process inside a job has asked for gives no more rights than it has, and
    /// displaces no link of the same identity outside.
    #[test]
    fn link_has_the_rights_of_its_requestor() {
        let (mut passes, now) = (Passes::default(), Instant::now());
        let outside = passes.link(&ANN, Rights::Full, now).unwrap();
        for _ in 0..=PER_IDENTITY_MAX {
            let code = passes.link(&ANN, Rights::InsideJob, now).unwrap();
            let (peer, token) = passes.exchange(&code, now).unwrap();
            assert_eq!(peer, (ANN, Rights::InsideJob));
            assert_eq!(passes.identity(&token, now), Some((ANN, Rights::InsideJob)));
        }
        for _ in 0..=PER_IDENTITY_MAX {
            passes.link(&ANN, Rights::InsideJob, now).unwrap();
        }
        assert_eq!(passes.exchange(&outside, now).unwrap().0, (ANN, Rights::Full));
    }

    #[test]
    fn oldest_pass_of_an_identity_gives_way() {
        let (mut passes, now) = (Passes::default(), Instant::now());
        let other = passes.link(&BOB, Rights::InsideJob, now).unwrap();
        let codes: Vec<String> =
            (0..=PER_IDENTITY_MAX).map(|_| passes.link(&ANN, Rights::Full, now).unwrap()).collect();
        assert_eq!(passes.exchange(&codes[0], now), None);
        assert!(passes.exchange(&codes[1], now).is_some());
        assert!(passes.exchange(&other, now).is_some(), "another identity loses nothing");
        for user in 0..2 * MAX {
            passes
                .link(&Identity::User(u32::try_from(user).unwrap() + 9), Rights::Full, now)
                .unwrap();
        }
        assert!(passes.codes.0.len() <= MAX);
    }
}
