//! `allow`: the callers that one tool, server or profile is for.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use crate::identity::Identity;

/// One element of [`Allow`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Holder {
    /// The bearers of tokens that name this group.
    Group(Box<str>),
    /// The bearers of tokens that name this scope.
    Scope(Box<str>),
    /// An identity.
    #[cfg_attr(feature = "trace", serde(untagged))]
    Identity(Identity),
}

impl From<Identity> for Holder {
    fn from(identity: Identity) -> Self {
        Self::Identity(identity)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(name) => write!(f, "group:{name}"),
            Self::Scope(name) => write!(f, "scope:{name}"),
            Self::Identity(identity) => identity.fmt(f),
        }
    }
}

/// Callers that may use a tool. For all others the tool does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum Allow {
    /// Every peer that can connect.
    #[default]
    Everyone,
    /// These callers only.
    Only(BTreeSet<Holder>),
}

/// Callers as which a tool or server can run at all, by the user that its processes get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub enum RunsFor {
    /// Every caller.
    #[default]
    Everyone,
    /// Users of this machine.
    Users,
    /// This user of this machine.
    User(u32),
    /// No caller.
    None,
}

/// Groups and scopes of a caller, as its token names them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Grants {
    /// Names of groups.
    pub groups: BTreeSet<Box<str>>,
    /// Names of scopes.
    pub scopes: BTreeSet<Box<str>>,
}

impl Grants {
    /// Of a caller without a token that names any.
    pub const NONE: &'static Self = &Self { groups: BTreeSet::new(), scopes: BTreeSet::new() };
}

/// The decision about a caller and an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// The caller sees it, and may use it.
    Granted,
    /// A token with these scopes more would be granted it.
    Lacks(Vec<&'a str>),
    /// For this caller there is no such item.
    Absent,
}

impl Verdict<'_> {
    /// Both decisions together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Granted, other) | (other, Self::Granted) => other,
            (Self::Absent, _) | (_, Self::Absent) => Self::Absent,
            (Self::Lacks(mut all), Self::Lacks(more)) => {
                all.extend(more);
                all.sort_unstable();
                all.dedup();
                Self::Lacks(all)
            }
        }
    }

    /// The better one of two decisions.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Granted, _) | (_, Self::Granted) => Self::Granted,
            (Self::Absent, other) | (other, Self::Absent) => other,
            (first @ Self::Lacks(_), Self::Lacks(_)) => first,
        }
    }
}

impl Allow {
    /// Callers with these identities only.
    pub fn only(identities: impl IntoIterator<Item = Identity>) -> Self {
        Self::Only(identities.into_iter().map(Holder::Identity).collect())
    }

    /// The scopes that it names.
    pub fn scopes(&self) -> impl Iterator<Item = &str> {
        let all = match self {
            Self::Everyone => None,
            Self::Only(holders) => Some(holders),
        };
        all.into_iter().flatten().filter_map(|holder| match holder {
            Holder::Scope(name) => Some(&**name),
            Holder::Group(_) | Holder::Identity(_) => None,
        })
    }

    /// The decision by it alone.
    #[must_use]
    pub fn verdict(&self, identity: &Identity, grants: &Grants) -> Verdict<'_> {
        let Self::Only(holders) = self else { return Verdict::Granted };
        let is_caller = |holder: &Holder| match holder {
            Holder::Group(name) => grants.groups.contains(name),
            Holder::Scope(name) => grants.scopes.contains(name),
            Holder::Identity(of) => of == identity,
        };
        if holders.iter().any(is_caller) {
            return Verdict::Granted;
        }
        // Another caller can get no scopes, and is not told that there are any.
        match (identity, self.scopes().next()) {
            (Identity::Subject(_), Some(scope)) => Verdict::Lacks([scope].into()),
            (
                Identity::Subject(_) | Identity::User(_) | Identity::Token(_) | Identity::Anonymous,
                _,
            ) => Verdict::Absent,
        }
    }
}

impl RunsFor {
    /// Whether there is a user as which it runs for a caller.
    #[must_use]
    pub fn includes(self, identity: &Identity) -> bool {
        match (self, identity) {
            (Self::Everyone, _) | (Self::Users, Identity::User(_)) => true,
            (Self::User(wanted), Identity::User(uid)) => wanted == *uid,
            (Self::Users | Self::User(_) | Self::None, _) => false,
        }
    }
}
