//! `ceased check --as`: the view of a caller, by the decision that the daemon makes (AUTH-03).

use std::collections::BTreeSet;
use std::io::{self, Write};

use ceased_core::identity::Identity;
use ceased_core::policy::access::{Caller, Item};
use ceased_core::policy::allow::{Grants, Verdict};
use ceased_core::upstream::server::UpstreamServer;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::accounts;
use crate::config::Config;
use crate::daemon::servers::KnownServers;
use crate::store::manifests::Manifests;
use crate::tools::catalog;
use crate::tools::server_key::server_key;
use ceased_client::printable::clean;

/// A caller that is not there.
pub(super) struct ImaginedCaller {
    identity: Identity,
    grants: Grants,
}

/// Something that the caller may see.
struct Seen {
    kind: &'static str,
    name: String,
    /// Why it is not there, if more scopes would help.
    lacks: Vec<String>,
}

impl ImaginedCaller {
    /// Reads the elements of `--as`; `None` if there are none.
    ///
    /// # Errors
    /// A text if they name no identity, or two.
    pub(super) fn read(elements: &[String]) -> Result<Option<Self>, String> {
        let (mut identity, mut grants) = (None, Grants::default());
        for element in elements {
            let found = match element.split_once(':') {
                Some(("group", name)) => {
                    grants.groups.insert(name.into());
                    continue;
                }
                Some(("scope", name)) => {
                    grants.scopes.insert(name.into());
                    continue;
                }
                Some(("user", name)) => {
                    let uid = accounts::user(name).map_err(|why| format!("--as {element}: {why}"));
                    Some(Identity::User(uid?))
                }
                Some(_) | None => Identity::parse(element),
            };
            let Some(found) = found else {
                let forms = "user:NAME, uid:NUMBER, token:NAME, sub:ISSUER#SUBJECT or anonymous, and \
                             group:NAME and scope:NAME of a signed token";
                return Err(format!("--as {element:?} is no caller: it takes {forms}"));
            };
            if identity.replace(found).is_some() {
                return Err(format!("--as {element}: a caller has one identity"));
            }
        }
        match identity {
            Some(identity) => Ok(Some(Self { identity, grants })),
            None if elements.is_empty() => Ok(None),
            None => Err("--as: name an identity beside its groups and scopes".into()),
        }
    }

    /// Profiles, tools and servers that it sees, or would see with more scopes.
    fn seen(&self, config: &Config) -> Vec<Seen> {
        let caller = Caller::new(&self.identity, &self.grants, &config.profiles);
        let profiles = caller.own_profiles();
        let mut all: Vec<Seen> = profiles
            .map(|it| Seen { kind: "profile", name: it.name.to_string(), lacks: Vec::new() })
            .collect();
        let mut note = |kind, name: &str, verdict: Verdict<'_>| match verdict {
            Verdict::Granted => all.push(Seen { kind, name: name.to_owned(), lacks: Vec::new() }),
            Verdict::Lacks(scopes) => {
                let lacks = scopes.into_iter().map(str::to_owned).collect();
                all.push(Seen { kind, name: name.to_owned(), lacks });
            }
            Verdict::Absent => {}
        };
        for tool in &config.tools {
            note("tool", &tool.name, caller.verdict(Item::Tool(&catalog::configured(tool))));
        }
        let kept = Manifests::of(&config.daemon.state_dir);
        for server in KnownServers::default().of(config).unwrap_or_default() {
            note("server", &server.name, caller.verdict(Item::Server(&server)));
            for short in known_tools(&kept, &server) {
                let whole = format!("{}{short}", server.prefix);
                note("tool", &whole, caller.verdict(Item::ServerTool(&server, &short)));
            }
        }
        all
    }

    /// Servers whose tools are not known, since they have not run as far as this user can read.
    fn unknown(config: &Config) -> Vec<String> {
        let kept = Manifests::of(&config.daemon.state_dir);
        let servers = KnownServers::default().of(config).unwrap_or_default();
        let unknown = servers.iter().filter(|server| known_tools(&kept, server).is_empty());
        unknown.map(|server| server.name.to_string()).collect()
    }

    /// Writes the view, a line for each item.
    pub(super) fn write_text(&self, config: &Config, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "\n{} sees", clean(&self.identity.to_string()))?;
        let seen = self.seen(config);
        if seen.is_empty() {
            writeln!(out, "  nothing")?;
        }
        for Seen { kind, name, lacks } in seen {
            match lacks.is_empty() {
                true => writeln!(out, "  {kind} {name}")?,
                false => writeln!(out, "  not {kind} {name}: lacks scope {}", lacks.join(" "))?,
            }
        }
        let unknown = Self::unknown(config);
        if !unknown.is_empty() {
            let names = unknown.join(", ");
            writeln!(
                out,
                "  the tools of {names} are not known yet: no list is in the state directory"
            )?;
        }
        Ok(())
    }

    /// The view as a member of the verdict.
    pub(super) fn json(&self, config: &Config) -> Value {
        let seen = self.seen(config).into_iter().map(
            |Seen { kind, name, lacks }| json!({"kind": kind, "name": name, "lacksScopes": lacks}),
        );
        json!({
            "caller": self.identity.to_string(),
            "items": seen.collect::<Vec<_>>(),
            "unknownTools": Self::unknown(config),
        })
    }
}

/// The offered tools of a server, as its last runs have told them to any client.
fn known_tools(kept: &Manifests, server: &UpstreamServer) -> BTreeSet<Box<str>> {
    #[derive(Deserialize)]
    struct Named {
        name: Box<str>,
    }
    let manifests = server_key(server).map(|key| kept.load(&key)).unwrap_or_default();
    let all = manifests.iter().flat_map(|manifest| &manifest.tools);
    let names = all.filter_map(|tool| Some(serde_json::from_str::<Named>(tool).ok()?.name));
    names.filter(|name| server.filter.offers(name)).collect()
}
