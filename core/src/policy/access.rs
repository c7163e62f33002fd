//! Access: one decision about the tools and servers that a caller sees and may use (TSK-39, AUTH-03).
//!
//! A list shows the items that the decision grants, and a call needs the same decision. Nothing else
//! in the engine compares a caller with an `allow`.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use crate::identity::Identity;
use crate::policy::allow::{Allow, Grants, Verdict};
use crate::tool::{Catalog, Tool};
use crate::upstream::scope::Scope;
use crate::upstream::server::{NameFilter, UpstreamServer};

/// A view: servers and tools for some callers (AUTH-03).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct Profile {
    /// Its name: unique.
    pub name: Box<str>,
    /// Names of its servers; every server and the tools of the host itself when `None`.
    pub servers: Option<BTreeSet<Box<str>>>,
    /// Names of its tools: those of servers with or without their prefix.
    pub tools: NameFilter,
    /// Callers that it is for.
    pub allow: Allow,
}

/// A caller, as far as decisions on access depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Its identity.
    pub identity: &'a Identity,
    /// Groups and scopes of its token.
    pub grants: &'a Grants,
    /// All profiles of the settings.
    pub profiles: &'a [Profile],
    /// Part that the connection is limited to.
    pub(crate) scope: Option<&'a Scope>,
}

/// An item that a caller may see.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// A tool of the host.
    Tool(&'a Tool),
    /// A prompt or resource of the host, by its work.
    Offer(&'a Tool),
    /// A server as a whole: its prompts and resources.
    Server(&'a UpstreamServer),
    /// A tool of a server, by its name without the prefix.
    ServerTool(&'a UpstreamServer, &'a str),
}

impl Profile {
    /// Whether the item is a part of it.
    #[must_use]
    pub fn has(&self, item: Item<'_>) -> bool {
        let has_server = |server: &UpstreamServer| {
            self.servers.as_ref().is_none_or(|all| all.contains(&server.name))
        };
        match item {
            // Beside servers a tool of the host is a part of it by a pattern alone.
            Item::Tool(tool) => {
                let is_named = self.servers.is_none() || !self.tools.only.is_empty();
                is_named && self.tools.offers(&tool.name)
            }
            Item::Offer(_) => self.servers.is_none(),
            Item::Server(server) => has_server(server),
            Item::ServerTool(server, short) => {
                let whole = alloc::format!("{}{short}", server.prefix);
                has_server(server) && self.tools.offers_any([short, &whole])
            }
        }
    }
}

impl<'a> Caller<'a> {
    /// A caller whose connection is not limited to a part.
    #[must_use]
    pub const fn new(identity: &'a Identity, grants: &'a Grants, profiles: &'a [Profile]) -> Self {
        Self { identity, grants, profiles, scope: None }
    }

    /// Whether no profile narrows its view.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.profiles.is_empty() && !matches!(self.scope, Some(Scope::Profile(_)))
    }

    /// The decision about an item.
    #[must_use]
    pub fn verdict(&self, item: Item<'a>) -> Verdict<'a> {
        let runs_for = match item {
            Item::Tool(tool) | Item::Offer(tool) => tool.runs_for,
            Item::Server(server) | Item::ServerTool(server, _) => server.runs_for,
        };
        if runs_for.includes(self.identity) { self.by_rules(item) } else { Verdict::Absent }
    }

    /// The decision about an item without regard to the user that it runs as.
    fn by_rules(&self, item: Item<'a>) -> Verdict<'a> {
        let allow = match item {
            Item::Tool(tool) | Item::Offer(tool) => &tool.allow,
            Item::Server(server) | Item::ServerTool(server, _) => &server.allow,
        };
        let own = allow.verdict(self.identity, self.grants);
        own.and(self.by_scope(item)).and(self.by_profiles(item))
    }

    /// Whether the item is not there for want of a user to run as alone, which a caller may know.
    pub(crate) fn lacks_user(&self, item: Item<'_>) -> bool {
        !self.sees(item) && self.by_rules(item) == Verdict::Granted
    }

    /// Whether the item is there for the caller.
    #[must_use]
    pub fn sees(&self, item: Item<'_>) -> bool {
        self.verdict(item) == Verdict::Granted
    }

    /// Whether the item would be there for the caller with more scopes.
    pub(crate) fn may_see(&self, item: Item<'_>) -> bool {
        self.verdict(item) != Verdict::Absent
    }

    /// The tool of the host with this name, if it is there for the caller.
    #[must_use]
    pub fn tool(&self, catalog: &'a Catalog, name: &str) -> Option<&'a Arc<Tool>> {
        catalog.get(name).filter(|tool| self.sees(Item::Tool(tool.as_ref())))
    }

    /// Whether it is one of the callers that `allow` names.
    #[must_use]
    pub fn is_in(&self, allow: &Allow) -> bool {
        allow.verdict(self.identity, self.grants) == Verdict::Granted
    }

    /// The profiles that are for it.
    pub fn own_profiles(self) -> impl Iterator<Item = &'a Profile> {
        self.profiles.iter().filter(move |profile| self.is_in(&profile.allow))
    }

    /// Whether a profile of this name is for it.
    #[must_use]
    pub fn has_profile(&self, name: &str) -> bool {
        self.own_profiles().any(|profile| *profile.name == *name)
    }

    /// The decision by the part that the connection is limited to.
    fn by_scope(&self, item: Item<'a>) -> Verdict<'a> {
        let Some(Scope::Servers(servers)) = self.scope else { return Verdict::Granted };
        let is_within = match item {
            Item::Tool(_) | Item::Offer(_) => false,
            Item::Server(server) | Item::ServerTool(server, _) => servers.contains(&server.name),
        };
        if is_within { Verdict::Granted } else { Verdict::Absent }
    }

    /// The decision by the profiles: without any, all is granted.
    fn by_profiles(&self, item: Item<'a>) -> Verdict<'a> {
        let view = match self.scope {
            Some(Scope::Profile(name)) => Some(name),
            None if self.profiles.is_empty() => return Verdict::Granted,
            Some(Scope::Servers(_)) if self.profiles.is_empty() => return Verdict::Granted,
            Some(Scope::Servers(_)) | None => None,
        };
        let all = self.profiles.iter();
        all.filter(|profile| view.is_none_or(|view| *view == profile.name) && profile.has(item))
            .map(|profile| profile.allow.verdict(self.identity, self.grants))
            .fold(Verdict::Absent, Verdict::or)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;

    use core::time::Duration;

    use super::*;
    use crate::policy::allow::{Holder, RunsFor};
    use crate::tool::StopPolicy;

    const ISSUER_ANN: &str = "https://issuer#ann";

    fn tool(name: &str, allow: Allow) -> Tool {
        let stop = StopPolicy::Command { kill_grace: Duration::ZERO };
        Tool { allow, ..Tool::new(name, stop) }
    }

    fn server(name: &str, prefix: &str, allow: Allow) -> UpstreamServer {
        UpstreamServer { prefix: prefix.into(), allow, ..UpstreamServer::new(name) }
    }

    fn only<const N: usize>(holders: [Holder; N]) -> Allow {
        Allow::Only(holders.into_iter().collect())
    }

    fn grants(groups: &[&str], scopes: &[&str]) -> Grants {
        let set = |all: &[&str]| all.iter().map(|name| (*name).into()).collect();
        Grants { groups: set(groups), scopes: set(scopes) }
    }

    fn profile(name: &str, servers: Option<&[&str]>, tools: &[&str], hide: &[&str]) -> Profile {
        let list = |all: &[&str]| all.iter().map(|name| (*name).into()).collect();
        Profile {
            name: name.into(),
            servers: servers.map(|all| all.iter().map(|name| (*name).into()).collect()),
            tools: NameFilter { only: list(tools), hide: list(hide) },
            allow: Allow::Everyone,
        }
    }

    /// AUTH-03: the parts of a profile, for every kind of item.
    #[test]
    fn profile_has_its_servers_and_tools() {
        let build = tool("build", Allow::Everyone);
        let git = server("git", "git_", Allow::Everyone);
        let has = |profile: &Profile| {
            let items = [
                Item::Tool(&build),
                Item::Offer(&build),
                Item::Server(&git),
                Item::ServerTool(&git, "log"),
                Item::ServerTool(&git, "push"),
            ];
            items.map(|item| u8::from(profile.has(item))).map(|bit| format!("{bit}")).concat()
        };
        for (servers, tools, hide, expected) in [
            (None, &[] as &[&str], &[] as &[&str], "11111"),
            (Some(&["git"] as &[&str]), &[], &[], "00111"),
            (Some(&["other"]), &[], &[], "00000"),
            (Some(&[]), &["build"], &[], "10000"),
            (Some(&["git"]), &["build", "log"], &[], "10110"),
            (None, &["log"], &[], "01110"),
            (None, &["git_log"], &[], "01110"),
            (None, &[], &["push"], "11110"),
            (None, &[], &["git_push"], "11110"),
            (None, &["*"], &["build", "git_*"], "01100"),
            (Some(&["git"]), &[], &["l*"], "00101"),
        ] {
            let row = format!("{servers:?} {tools:?} {hide:?}");
            assert_eq!(has(&profile("p", servers, tools, hide)), expected, "{row}");
        }
    }

    /// AUTH-03: the whole table of `allow` of a tool, of a profile and the caller.
    #[test]
    fn decision_is_that_of_the_table() {
        let ann = Identity::Subject(ISSUER_ANN.into());
        let (user, ci) = (Identity::User(7), Identity::Token("ci".into()));
        let (dev, review) = (Holder::Group("dev".into()), Holder::Scope("review".into()));
        let callers = [
            ("user", &user, grants(&[], &[])),
            ("token", &ci, grants(&[], &[])),
            ("anonymous", &Identity::Anonymous, grants(&[], &[])),
            ("ann", &ann, grants(&[], &[])),
            ("ann dev", &ann, grants(&["dev"], &[])),
            ("ann review", &ann, grants(&[], &["review"])),
        ];
        // Each letter is a caller of the row above: granted, lacks a scope, absent.
        let rows = [
            (Allow::Everyone, "GGGGGG"),
            (only([]), "AAAAAA"),
            (only([user.clone().into()]), "GAAAAA"),
            (only([ci.clone().into()]), "AGAAAA"),
            (only([Identity::Anonymous.into()]), "AAGAAA"),
            (only([ann.clone().into()]), "AAAGGG"),
            (only([dev.clone()]), "AAAAGA"),
            (only([review.clone()]), "AAALLG"),
            (only([dev, review]), "AAALGG"),
        ];
        let letter = |verdict: &Verdict<'_>| match verdict {
            Verdict::Granted => 'G',
            Verdict::Lacks(_) => 'L',
            Verdict::Absent => 'A',
        };
        let both = |one: char, other: char| match (one, other) {
            ('G', other) | (other, 'G') => other,
            ('A', _) | (_, 'A') => 'A',
            _ => 'L',
        };
        for (of_tool, by_tool) in &rows {
            let build = tool("build", of_tool.clone());
            for (of_profile, by_profile) in &rows {
                let hidden = profile("hidden", None, &["other"], &[]);
                let shown = Profile {
                    allow: of_profile.clone(),
                    ..profile("shown", None, &["build"], &[])
                };
                let profiles = [hidden, shown];
                let decide = |scope: Option<&Scope>, profiles: &[Profile]| -> String {
                    let all = callers.iter().map(|(_, identity, grants)| {
                        let caller = Caller { identity, grants, profiles, scope };
                        letter(&caller.verdict(Item::Tool(&build)))
                    });
                    all.collect()
                };
                let expected: String = by_tool
                    .chars()
                    .zip(by_profile.chars())
                    .map(|(one, other)| both(one, other))
                    .collect();
                let row = format!("{of_tool:?} {of_profile:?}");
                assert_eq!(decide(None, &profiles), expected, "{row}");
                assert_eq!(decide(None, &[]), *by_tool, "without profiles: {row}");
                let of = |name: &str| Scope::Profile(name.into());
                assert_eq!(decide(Some(&of("shown")), &profiles), expected, "{row}");
                for other in ["hidden", "unknown"] {
                    assert_eq!(decide(Some(&of(other)), &profiles), "AAAAAA", "{other}: {row}");
                }
                assert_eq!(decide(Some(&of("unknown")), &[]), "AAAAAA");
                let servers = Scope::Servers(vec!["git".into()]);
                assert_eq!(decide(Some(&servers), &[]), "AAAAAA");
            }
        }
    }

    #[test]
    fn union_of_profiles_is_granted() {
        let (log, push) = (tool("log", Allow::Everyone), tool("push", Allow::Everyone));
        let for_ci = Profile {
            allow: Allow::only([Identity::Token("ci".into())]),
            ..profile("ci", None, &["push"], &[])
        };
        let for_scope = Profile {
            allow: only([Holder::Scope("w".into())]),
            ..profile("write", None, &["push"], &[])
        };
        let profiles = [profile("all", None, &["log"], &[]), for_ci, for_scope];
        let sees = |identity: &Identity, grants: &Grants, tool: &Tool| -> String {
            let caller = Caller::new(identity, grants, &profiles);
            format!("{:?}", caller.verdict(Item::Tool(tool)))
        };
        let subject = Identity::Subject(ISSUER_ANN.into());
        assert_eq!(sees(&Identity::Token("ci".into()), Grants::NONE, &push), "Granted");
        assert_eq!(sees(&Identity::Token("cd".into()), Grants::NONE, &push), "Absent");
        assert_eq!(sees(&Identity::Token("cd".into()), Grants::NONE, &log), "Granted");
        assert_eq!(sees(&subject, Grants::NONE, &push), "Lacks([\"w\"])");
        assert_eq!(sees(&subject, &grants(&[], &["w"]), &push), "Granted");
    }

    #[test]
    fn item_without_a_user_to_run_as_is_absent() {
        for (runs_for, expected) in [
            (RunsFor::Everyone, [true, true, true]),
            (RunsFor::Users, [true, true, false]),
            (RunsFor::User(7), [false, true, false]),
            (RunsFor::None, [false, false, false]),
        ] {
            let build = Tool { runs_for, ..tool("build", Allow::Everyone) };
            let callers = [Identity::User(0), Identity::User(7), Identity::Token("ci".into())];
            let sees = callers
                .map(|identity| Caller::new(&identity, Grants::NONE, &[]).sees(Item::Tool(&build)));
            assert_eq!(sees, expected, "{runs_for:?}");
        }
    }

    #[test]
    fn lacking_scopes_of_tool_and_profile_are_named_together() {
        let ann = Identity::Subject(ISSUER_ANN.into());
        let push = tool("push", only([Holder::Scope("b".into())]));
        let profiles =
            [Profile { allow: only([Holder::Scope("a".into())]), ..profile("p", None, &[], &[]) }];
        let verdict = |grants: &Grants| {
            let caller = Caller::new(&ann, grants, &profiles);
            format!("{:?}", caller.verdict(Item::Tool(&push)))
        };
        assert_eq!(verdict(Grants::NONE), "Lacks([\"a\", \"b\"])");
        assert_eq!(verdict(&grants(&[], &["a"])), "Lacks([\"b\"])");
        assert_eq!(verdict(&grants(&[], &["a", "b"])), "Granted");
    }
}
