//! Text description of an agent, as printed by `ceased check`. Values of variables may be secrets
//! and are not shown.

use ceased_core::upstream::server::OnIgnoredCancel;

use super::agent::Agent;
use super::describe_access::describe_allow;
use super::units::show_duration;

impl Agent {
    /// The settings of the agent, a line each.
    #[cfg(feature = "cli")]
    pub(crate) fn settings_in_words(&self) -> Vec<String> {
        describe_agent(self).into_iter().skip(1).map(|(_, text)| text).collect()
    }
}

/// Name and command, then the other settings.
pub(super) fn describe_agent(agent: &Agent) -> Vec<(String, String)> {
    let mut rows = vec![(format!("agent {}", agent.name), agent.runs())];
    let mut more = |text: String| rows.push((String::new(), text));
    let start_timeout = show_duration(agent.start_timeout);
    let (max, share) = (agent.max_instances, agent.max_instances_per_identity);
    more(format!(
        "max_instances {max}, max_instances_per_identity {share}, start_timeout {start_timeout}"
    ));
    let limits = [agent.watchdogs.turn, agent.watchdogs.stall];
    let [turn, stall] = limits.map(|it| it.map_or_else(|| "off".to_owned(), show_duration));
    more(format!("turn_timeout {turn}, stall_timeout {stall}"));
    let [cancel, kill] = [agent.cancel_grace, agent.kill_grace].map(show_duration);
    let ignored = match agent.on_ignored_cancel {
        OnIgnoredCancel::Replace => "replace",
        OnIgnoredCancel::Leave => "leave",
    };
    let drain = show_duration(agent.drain);
    more(format!(
        "cancel_grace {cancel}, kill_grace {kill}, on_ignored_cancel {ignored}, drain {drain}"
    ));
    agent.launch.describe(&mut more);
    describe_allow(&agent.allow, &mut more);
    rows
}
