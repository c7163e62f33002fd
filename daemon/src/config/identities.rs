//! Users, groups and tokens of a configuration, by name or number, resolved when it is read.

use std::collections::BTreeSet;

use ceased_core::identity::Identity;
use ceased_core::policy::allow::{Allow, Holder};
use toml::Spanned;

use super::check::{Checker, Key};
use super::entry::Entry;
use super::kinds::Kind;
use super::{RunAs, Users, raw};
use crate::accounts;
use crate::token_file;

/// Resolves a user or a group.
pub(super) fn found(
    key: Key,
    written: &Spanned<raw::Account>,
    look_up: fn(&str) -> Result<u32, String>,
    check: &mut Checker<'_>,
) -> Option<u32> {
    let text = &written.get_ref().0;
    match look_up(text) {
        Ok(number) => Some(number),
        Err(hint) => {
            check.bad_value(key, written.span().start, &format!("{text:?}"), hint);
            None
        }
    }
}

/// Users that may connect to a Unix listener; `None` if no key names them.
pub(super) fn users(raw: &raw::UnixSocket, check: &mut Checker<'_>) -> Option<Users> {
    let (users, groups) = (&raw.allow_users, &raw.allow_groups);
    if let (Some(only), None) | (None, Some(only)) = (users.as_ref(), groups.as_ref())
        && only.get_ref().is_empty()
    {
        let hint = "list users or groups, or leave the key out to accept all users that can open the socket";
        check.problem(only.span().start, "this unix [[listen]] would accept no peer", hint);
    }
    if !users.is_some() && !groups.is_some() {
        return None;
    }
    let mut all = |list: &Entry<Vec<Spanned<raw::Account>>>, look_up: fn(&str) -> _| {
        let key = list.key();
        list.elements().filter_map(|written| found(key, written, look_up, check)).collect()
    };
    Some(Users { users: all(users, accounts::user), groups: all(groups, accounts::group) })
}

/// Resolves the user of a tool or server.
pub(super) fn run_as(raw: &Entry<String>, check: &mut Checker<'_>) -> Option<RunAs> {
    let written = raw.as_ref()?;
    match written.get_ref().as_str() {
        "daemon" => Some(RunAs::Daemon),
        "peer" => Some(RunAs::Peer),
        name => match accounts::user(name) {
            Ok(uid) => Some(RunAs::User(uid)),
            Err(why) => {
                let hint = format!("it takes \"daemon\", \"peer\" or a user: {why}");
                check.bad_value(raw.key(), written.span().start, &format!("{name:?}"), hint);
                None
            }
        },
    }
}

/// Callers that may use a tool, a server or a profile.
pub(super) fn allow(raw: &Entry<Vec<raw::Text>>, check: &mut Checker<'_>) -> Allow {
    if !raw.is_some() {
        return Allow::Everyone;
    }
    let mut found = BTreeSet::new();
    for text in raw.elements() {
        match holders(text.get_ref(), check.has_issuer) {
            Ok(more) => found.extend(more),
            Err(hint) => {
                check.bad_value(
                    raw.key(),
                    text.span().start,
                    &format!("{:?}", text.get_ref()),
                    hint,
                );
            }
        }
    }
    Allow::Only(found)
}

/// Operators beside root and the user of the daemon. An anonymous peer is none: every user of this
/// machine could be it.
pub(super) struct Operators;

impl Kind<BTreeSet<Identity>> for Operators {
    type Written = Vec<raw::Text>;

    fn parse(
        &self,
        key: Key,
        written: &Spanned<Vec<raw::Text>>,
        check: &mut Checker<'_>,
    ) -> Option<BTreeSet<Identity>> {
        Some(operators(key, written.get_ref(), check))
    }

    fn show(&self, value: &BTreeSet<Identity>) -> Option<String> {
        let names: Vec<String> = value.iter().map(ToString::to_string).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

fn operators(key: Key, written: &[raw::Text], check: &mut Checker<'_>) -> BTreeSet<Identity> {
    let mut found = BTreeSet::new();
    for text in written {
        let named = match text.get_ref().as_str() {
            "anonymous" => Err("an operator has an identity: give it a token".into()),
            text => identities(text).map_err(|hint| {
                let (last, only) = (", \"sub:ISSUER#SUBJECT\"", " or \"sub:ISSUER#SUBJECT\"");
                hint.replace(", \"scope:NAME\" or \"anonymous\"", "").replace(last, only)
            }),
        };
        match named {
            Ok(more) => found.extend(more),
            Err(hint) => {
                check.bad_value(key, text.span().start, &format!("{:?}", text.get_ref()), hint);
            }
        }
    }
    found
}

/// Callers named by one element of `allow`.
fn holders(text: &str, has_issuer: bool) -> Result<BTreeSet<Holder>, String> {
    let named = match text.split_once(':') {
        Some(("scope", name)) if is_scope(name) => {
            return Ok(BTreeSet::from([Holder::Scope(name.into())]));
        }
        Some(("scope", _)) => {
            return Err("a scope has visible characters, without spaces, \" and \\".into());
        }
        // Groups of this machine, and those that a signed token names.
        Some(("group", name)) if has_issuer && !name.is_empty() => {
            let members = identities(text).unwrap_or_default();
            let of_tokens = [Holder::Group(name.into())];
            return Ok(members.into_iter().map(Holder::Identity).chain(of_tokens).collect());
        }
        Some(_) | None => identities(text)?,
    };
    Ok(named.into_iter().map(Holder::Identity).collect())
}

/// Whether a text is a scope as RFC 6749 has it.
pub(super) fn is_scope(text: &str) -> bool {
    let is_in = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
    !text.is_empty() && text.bytes().all(is_in)
}

/// Identities named by one element of `operators`.
fn identities(text: &str) -> Result<BTreeSet<Identity>, String> {
    let one = |identity| BTreeSet::from([identity]);
    match text.split_once(':') {
        None if text == "anonymous" => Ok(one(Identity::Anonymous)),
        Some(("uid", number)) if number.parse::<u32>().is_err() => {
            Err("`uid:` takes a number; use `user:` for a name".into())
        }
        Some(("uid" | "user", name)) => Ok(one(Identity::User(accounts::user(name)?))),
        Some(("group", name)) => {
            Ok(accounts::members(accounts::group(name)?).into_iter().map(Identity::User).collect())
        }
        Some(("token", name)) if token_file::is_name(name) => Ok(one(Identity::Token(name.into()))),
        Some(("token", _)) => Err("not a valid token name".into()),
        Some(("sub", name)) => match name.split_once('#') {
            Some((issuer, subject)) if !issuer.is_empty() && !subject.is_empty() => {
                Ok(one(Identity::Subject(name.into())))
            }
            Some(_) | None => Err("`sub:` takes an issuer, `#` and a subject".into()),
        },
        None | Some(_) => Err("it takes \"user:NAME\", \"uid:NUMBER\", \"group:NAME\", \
                               \"token:NAME\", \"sub:ISSUER#SUBJECT\", \"scope:NAME\" or \
                               \"anonymous\""
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TSK-39: every form that names a peer, and rejection of forms that would name all users.
    #[test]
    fn elements_of_allow_are_resolved() {
        let one = |identity| Ok(BTreeSet::from([identity]));
        assert_eq!(identities("uid:7"), one(Identity::User(7)));
        assert_eq!(identities("user:root"), one(Identity::User(0)));
        assert_eq!(identities("token:ci"), one(Identity::Token("ci".into())));
        assert_eq!(identities("anonymous"), one(Identity::Anonymous));
        assert!(identities("group:root").unwrap().contains(&Identity::User(0)));
        for wrong in ["", "root", "uid:root", "user:no such", "uid:65534", "token:", "any:x"] {
            assert!(identities(wrong).is_err(), "{wrong}");
        }
    }
}
