//! Text description of `allow` and of `[[profile]]`.

use ceased_core::policy::access::Profile;
use ceased_core::policy::allow::Allow;

/// Describes the callers that something is for, if they are listed.
pub(super) fn describe_allow(allow: &Allow, more: &mut impl FnMut(String)) {
    if let Allow::Only(holders) = allow {
        let holders: Vec<String> = holders.iter().map(ToString::to_string).collect();
        more(format!("allow {}", holders.join(", ")));
    }
}

/// Describes a profile: its servers, then its other settings.
pub(super) fn describe_profile(profile: &Profile) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut more = |text: String| rows.push((String::new(), text));
    for (name, patterns) in [("tools", &profile.tools.only), ("hide", &profile.tools.hide)] {
        if !patterns.is_empty() {
            more(format!("{name} {}", patterns.join(" ")));
        }
    }
    describe_allow(&profile.allow, &mut more);
    let servers = profile.servers.as_ref().map(|all| all.iter().map(|name| &**name));
    let servers = match servers.map(|all| all.collect::<Vec<_>>()) {
        None => "every server".into(),
        Some(none) if none.is_empty() => "no server".into(),
        Some(names) => format!("servers {}", names.join(" ")),
    };
    rows.insert(0, (format!("profile {}", profile.name), servers));
    rows
}
