//! Bytes that the engine and its host hold for each identity, in one account.
//!
//! Counts alone do not bound memory: a queue of 1024 calls may hold 1024 long arguments. A holder
//! keeps a [`Charge`] beside the bytes it holds. The charge is returned when it is dropped, so that
//! the account is the sum of the charges that exist.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Deref;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::identity::Identity;

/// Longest id, progress token, method, URI or cursor of a peer, in bytes. An id is held as long as
/// its request, and none that a program makes up is longer.
pub const NAME_BYTES_MAX: usize = 8192;
/// Longest capabilities of a client that are kept for servers behind the engine, in bytes.
pub(crate) const CAPABILITY_BYTES_MAX: usize = 64 * 1024;

/// The account of one identity. Empty for peers whose bytes count for no identity: servers and
/// agents.
#[derive(Debug, Clone, Default)]
pub struct Account(Option<Arc<Sums>>);

/// The account of an identity, and the one of all.
#[derive(Debug)]
struct Sums {
    own: AtomicUsize,
    all: Arc<AtomicUsize>,
}

/// Bytes of one holder. Dropping it returns them.
#[derive(Debug, Default)]
pub struct Charge {
    account: Account,
    bytes: usize,
}

/// A text with the charge of its bytes.
#[derive(Debug)]
pub(crate) struct ChargedText {
    text: Box<str>,
    charge: Charge,
}

/// The accounts of all identities that hold something.
#[derive(Debug, Default)]
pub struct Accounts {
    of: BTreeMap<Identity, Account>,
    all: Arc<AtomicUsize>,
}

impl Account {
    /// Bytes held for the identity.
    #[must_use]
    pub fn own(&self) -> usize {
        self.0.as_ref().map_or(0, |sums| sums.own.load(Relaxed))
    }

    /// Bytes held for all identities.
    #[must_use]
    pub fn all(&self) -> usize {
        self.0.as_ref().map_or(0, |sums| sums.all.load(Relaxed))
    }

    /// Whether its bytes count for no identity.
    pub(crate) const fn is_unowned(&self) -> bool {
        self.0.is_none()
    }

    /// Whether both are accounts of one identity.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (Some(_) | None, _) => false,
        }
    }

    /// Charges this many bytes.
    #[must_use]
    pub fn charge(&self, bytes: usize) -> Charge {
        let mut charge = Charge { account: self.clone(), bytes: 0 };
        charge.set(bytes);
        charge
    }

    fn is_used(&self) -> bool {
        self.0.as_ref().is_some_and(|sums| Arc::strong_count(sums) > 1)
    }
}

impl Charge {
    /// A charge that no account has.
    pub(crate) const NONE: Self = Self { account: Account(None), bytes: 0 };

    /// Bytes of the holder.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The account that is charged.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// Charges this account from now on, unless an account is charged already.
    #[inline]
    pub(crate) fn assign(&mut self, account: &Account) {
        if self.account.0.is_none() {
            *self = account.charge(self.bytes);
        }
    }

    /// The holder holds this many bytes now.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        let before = core::mem::replace(&mut self.bytes, bytes);
        if let Some(sums) = &self.account.0 {
            // One thread changes accounts, so that a load and a store are as good as one step. A
            // difference wraps, and so does the sum.
            for sum in [&sums.own, &*sums.all] {
                sum.store(sum.load(Relaxed).wrapping_add(bytes.wrapping_sub(before)), Relaxed);
            }
        }
    }

    /// The holder holds this many bytes more.
    pub fn grow(&mut self, bytes: usize) {
        self.set(self.bytes + bytes);
    }

    /// The holder holds this many bytes less.
    pub fn shrink(&mut self, bytes: usize) {
        self.set(self.bytes - bytes);
    }
}

impl ChargedText {
    /// A text, with `more` bytes that are held beside it.
    pub(crate) fn new(account: &Account, text: Box<str>, more: usize) -> Self {
        let charge = account.charge(text.len() + more);
        Self { text, charge }
    }

    /// Bytes that are charged.
    pub(crate) const fn charged(&self) -> usize {
        self.charge.bytes()
    }
}

impl Deref for ChargedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Accounts {
    /// The account of an identity.
    pub fn of(&mut self, identity: &Identity) -> Account {
        if let Some(account) = self.of.get(identity) {
            return account.clone();
        }
        // Identities come and go; those that hold nothing are forgotten when another comes.
        self.of.retain(|_, account| account.is_used());
        let sums = Sums { own: AtomicUsize::new(0), all: Arc::clone(&self.all) };
        let account = Account(Some(Arc::new(sums)));
        self.of.insert(identity.clone(), account.clone());
        account
    }

    /// Bytes held for one identity.
    pub(crate) fn own(&self, identity: &Identity) -> usize {
        self.of.get(identity).map_or(0, Account::own)
    }

    /// Bytes held for all identities.
    pub(crate) fn all(&self) -> usize {
        self.all.load(Relaxed)
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(crate) fn check(&self) {
        let sum: usize = self.of.values().map(Account::own).sum();
        assert_eq!(sum, self.all(), "the account of all is the sum of the others");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The account is the sum of the charges that exist, and an identity without any is forgotten.
    #[test]
    fn account_is_the_sum_of_its_charges() {
        let mut accounts = Accounts::default();
        let (ann, bob) = (Identity::User(1), Identity::User(2));
        let mut one = accounts.of(&ann).charge(5);
        let two = accounts.of(&ann).charge(7);
        let other = accounts.of(&bob).charge(100);
        one.grow(1);
        one.shrink(2);
        assert_eq!((accounts.own(&ann), accounts.own(&bob), accounts.all()), (11, 100, 111));
        accounts.check();
        drop(two);
        one.set(3);
        assert_eq!((accounts.own(&ann), accounts.all()), (3, 103));
        drop((one, other));
        assert_eq!((accounts.own(&ann), accounts.own(&bob), accounts.all()), (0, 0, 0));
        accounts.of(&Identity::Anonymous);
        assert_eq!(accounts.of.len(), 1);
    }
}
