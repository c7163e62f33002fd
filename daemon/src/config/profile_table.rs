//! `[[profile]]` as written, checked.

use std::collections::BTreeSet;

use ceased_core::policy::access::Profile;
use ceased_core::upstream::server::NameFilter;

use super::check::Checker;
use super::error::{did_you_mean, line_of};
use super::server::Server;
use super::server_table::{name, patterns};
use super::{identities, raw};

/// All profiles of the file. Names of servers are checked when every file is read.
pub(super) fn profiles(
    raw: &[(usize, raw::Profile)],
    servers: &[Server],
    check: &mut Checker<'_>,
) -> Vec<Profile> {
    let mut profiles: Vec<(usize, Profile)> = Vec::new();
    for (at, raw) in raw {
        let Some(name) = name(*at, &raw.name, check) else { continue };
        if let Some((first, _)) = profiles.iter().find(|(_, it)| *it.name == *name) {
            let line = line_of(check.text, *first);
            let what = format!("there is another profile {name:?}");
            check.problem(*at, what, format!("the first is in line {line}; rename one of them"));
        }
        let tools =
            NameFilter { only: patterns(&raw.tools, check), hide: patterns(&raw.hide, check) };
        let allow = identities::allow(&raw.allow, check);
        let servers = servers_of(raw, servers, check);
        profiles.push((*at, Profile { name: name.into(), servers, tools, allow }));
    }
    profiles.into_iter().map(|(_, profile)| profile).collect()
}

/// The servers of a profile, which are servers of the file.
fn servers_of(
    raw: &raw::Profile,
    servers: &[Server],
    check: &mut Checker<'_>,
) -> Option<BTreeSet<Box<str>>> {
    let written = raw.servers.as_ref()?;
    let known: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    let mut found = BTreeSet::new();
    for name in written.get_ref() {
        let text = name.get_ref();
        // Another file may name it: `--mcp-servers`.
        if !known.is_empty() && !known.contains(&text.as_str()) {
            let hint = did_you_mean(text, "servers", &known);
            check.bad_value(raw.servers.key(), name.span().start, &format!("{text:?}"), hint);
        }
        found.insert(text.as_str().into());
    }
    Some(found)
}
