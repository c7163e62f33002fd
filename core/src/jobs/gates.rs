//! Gates: how many calls of a tool run at once, and locks by which calls run one after the other.
//!
//! A job passes all gates of its tool together when it starts, and leaves them when it is gone. A
//! job before a closed gate holds nothing: no worker, and no other gate.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde_json::value::RawValue;

use crate::identity::Identity;
use crate::ids::JobId;
use crate::tool::Tool;

/// Key of a gate. Tools and locks of the same name are different gates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GateName {
    /// `max_running` of a tool.
    Tool(Arc<str>),
    /// `lock` of one or several tools, with the arguments of the call filled in.
    Lock(Arc<str>),
}

/// A gate as one job sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gate {
    name: GateName,
    /// Jobs that may be behind it at once.
    limit: usize,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            GateName::Tool(_) if self.limit == 1 => f.write_str("for another call of this tool"),
            GateName::Tool(_) => write!(f, "for one of {} calls of this tool", self.limit),
            GateName::Lock(name) => write!(f, "for lock {name:?}"),
        }
    }
}

/// The gates of a call with these arguments.
pub(crate) fn of(tool: &Tool, arguments: &str) -> Vec<Gate> {
    let mut gates = Vec::new();
    if let Some(limit) = tool.max_running {
        gates.push(Gate { name: GateName::Tool(Arc::clone(&tool.name)), limit });
    }
    if let Some(lock) = &tool.lock {
        let name = GateName::Lock(lock_name(lock, arguments).into());
        gates.push(Gate { name, limit: 1 });
    }
    gates
}

/// The name of a lock: `{name}` is the argument of that name, nothing where it is absent; `{{` and
/// `}}` are the braces themselves.
fn lock_name(template: &str, arguments: &str) -> String {
    let values: BTreeMap<Cow<'_, str>, &RawValue> =
        serde_json::from_str(arguments).unwrap_or_default();
    let mut name = String::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, brace) = rest.split_at(at);
        name.push_str(before);
        let after = brace.get(1..).unwrap_or_default();
        if let Some(doubled) = brace.strip_prefix("{{").or_else(|| brace.strip_prefix("}}")) {
            name.push_str(&brace[..1]);
            rest = doubled;
        } else if let Some((argument, after)) = after.split_once('}') {
            if let Some(value) = values.get(argument) {
                match serde_json::from_str::<Cow<'_, str>>(value.get()) {
                    Ok(text) => name.push_str(&text),
                    Err(_) => name.push_str(value.get()),
                }
            }
            rest = after;
        } else {
            rest = after;
        }
    }
    name.push_str(rest);
    name
}

/// One gate: the jobs behind and before it.
#[derive(Debug, Default)]
struct Traffic {
    /// Jobs that have passed it and are not gone.
    held: usize,
    /// Jobs that wait, whether it is open or not.
    waiting: usize,
    /// Identity whose job passed it last: the next is of another one that waits.
    last: Option<Identity>,
}

/// The gates of all jobs that wait or run.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    /// Jobs that have gates, and whether they have passed them.
    jobs: BTreeMap<JobId, (Vec<Gate>, bool)>,
    traffic: BTreeMap<GateName, Traffic>,
}

impl Gates {
    /// Adds a job that waits.
    pub(crate) fn add(&mut self, job: JobId, gates: Vec<Gate>) {
        if gates.is_empty() {
            return;
        }
        for gate in &gates {
            self.traffic.entry(gate.name.clone()).or_default().waiting += 1;
        }
        self.jobs.insert(job, (gates, false));
    }

    /// Whether no job has gates.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The first closed gate of a waiting job.
    pub(crate) fn closed(&self, job: JobId) -> Option<&Gate> {
        let (gates, _) = self.jobs.get(&job)?;
        let held = |gate: &Gate| self.traffic.get(&gate.name).map_or(0, |it| it.held);
        gates.iter().find(|gate| held(gate) >= gate.limit)
    }

    /// Whether a further job with these gates would wait for those that run or wait now.
    pub(crate) fn would_wait(&self, gates: &[Gate]) -> bool {
        let ahead = |gate: &Gate| self.traffic.get(&gate.name).map_or(0, |it| it.held + it.waiting);
        gates.iter().any(|gate| ahead(gate) >= gate.limit)
    }

    /// The gate of a job at which others wait, too, and the identity whose job passed it last.
    pub(crate) fn contended(&self, job: JobId) -> Option<(GateName, Option<Identity>)> {
        let (gates, _) = self.jobs.get(&job)?;
        gates.iter().rev().find_map(|gate| {
            let traffic = self.traffic.get(&gate.name).filter(|it| it.waiting > 1)?;
            Some((gate.name.clone(), traffic.last.clone()))
        })
    }

    /// Whether a job waits at a gate.
    pub(crate) fn is_at(&self, job: JobId, name: &GateName) -> bool {
        let gates = self.jobs.get(&job);
        gates.is_some_and(|(gates, _)| gates.iter().any(|gate| gate.name == *name))
    }

    /// A job starts.
    pub(crate) fn enter(&mut self, owner: &Identity, job: JobId) {
        let Some((gates, has_passed)) = self.jobs.get_mut(&job) else { return };
        *has_passed = true;
        for gate in gates.iter() {
            if let Some(traffic) = self.traffic.get_mut(&gate.name) {
                traffic.waiting -= 1;
                traffic.held += 1;
                traffic.last = Some(owner.clone());
            }
        }
    }

    /// Removes a job, whether it has started or not; true if that may open a gate.
    pub(crate) fn leave(&mut self, job: JobId) -> bool {
        let Some((gates, has_passed)) = self.jobs.remove(&job) else { return false };
        for gate in gates {
            let Some(traffic) = self.traffic.get_mut(&gate.name) else { continue };
            let count = if has_passed { &mut traffic.held } else { &mut traffic.waiting };
            *count -= 1;
            if traffic.held + traffic.waiting == 0 {
                self.traffic.remove(&gate.name);
            }
        }
        has_passed
    }

    /// Its own agreements, for tests.
    ///
    /// # Panics
    /// When one is broken.
    pub(crate) fn check(&self) {
        let mut counts: BTreeMap<&GateName, (usize, usize)> = BTreeMap::new();
        for (gates, has_passed) in self.jobs.values() {
            for gate in gates {
                let (held, waiting) = counts.entry(&gate.name).or_default();
                *(if *has_passed { held } else { waiting }) += 1;
            }
        }
        let kept = self.traffic.iter().map(|(name, it)| (name, (it.held, it.waiting)));
        assert!(counts.into_iter().eq(kept), "jobs at gates are counted");
    }
}

#[cfg(test)]
pub(crate) fn gate(name: &str, limit: usize) -> Gate {
    Gate { name: GateName::Lock(name.into()), limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_lock_has_the_arguments_of_the_call() {
        for (template, arguments, name) in [
            ("cargo", "{}", "cargo"),
            ("cargo:{package}", r#"{"package":"a b"}"#, "cargo:a b"),
            ("cargo:{package}", "{}", "cargo:"),
            ("{a}-{b}-{{x}}", r#"{"a":1,"b":"q\"r"}"#, "1-q\"r-{x}"),
            ("{a}", r#"{"a":[1, 2]}"#, "[1, 2]"),
        ] {
            assert_eq!(lock_name(template, arguments), name, "{template}");
        }
    }
}
