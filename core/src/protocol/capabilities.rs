//! Capabilities that a peer declared.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::json::raw::{FoundMembers, Raw};
use crate::protocol::revision::{Dialect, TaskRules};

/// Capabilities of a peer that matter for outgoing requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PeerCapabilities {
    pub(crate) elicitation: bool,
    pub(crate) sampling: bool,
    pub(crate) roots: bool,
    pub(crate) tasks: TaskCapabilities,
}

impl PeerCapabilities {
    /// Reads the `capabilities` of an `initialize`. Unreadable ones count as not declared, and so
    /// do those that the revision lacks.
    pub(crate) fn read(raw: Option<Raw<'_>>, dialect: &Dialect) -> Self {
        let found = raw.and_then(|raw| raw.members(["tasks", "elicitation", "sampling", "roots"]));
        let Some(FoundMembers { members: [tasks, elicitation, sampling, roots], .. }) = found
        else {
            return Self::default();
        };
        let forms = elicitation.and_then(|elicitation| elicitation.members(["form", "url"]));
        // An empty declaration means forms, the only mode before 2025-11-25.
        let forms = forms.is_some_and(|FoundMembers { members: [form, url], .. }| {
            form.is_some() || url.is_none()
        });
        let tasks = tasks.and_then(|tasks| serde_json::from_str(tasks.get()).ok());
        Self {
            elicitation: forms && dialect.elicitation,
            sampling: sampling.is_some(),
            roots: roots.is_some(),
            tasks: TaskCapabilities::read(tasks, dialect),
        }
    }

    /// Whether a request of this method may be sent to the peer.
    pub(crate) fn answers(self, method: &str) -> bool {
        match method {
            "elicitation/create" => self.elicitation,
            "sampling/createMessage" => self.sampling,
            "roots/list" => self.roots,
            "ping" => true,
            _ => false,
        }
    }
}

/// Methods of the services that a client may offer.
pub(crate) const SAMPLING: &str = "sampling/createMessage";

pub(crate) const ELICITATION: &str = "elicitation/create";

pub(crate) const ROOTS: &str = "roots/list";

/// Task capabilities of a peer (TSK-02).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TaskCapabilities {
    /// True for any declaration of tasks.
    pub(crate) any: bool,
    pub(crate) list: bool,
    pub(crate) cancel: bool,
    tools_call: bool,
    sampling: bool,
    elicitation: bool,
}

impl TaskCapabilities {
    pub(crate) const NONE: Self = Self {
        any: false,
        list: false,
        cancel: false,
        tools_call: false,
        sampling: false,
        elicitation: false,
    };

    /// Reads a `tasks` capability; an unreadable part counts as not declared. Ignored in revisions
    /// without tasks.
    pub(crate) fn read(raw: Option<&RawValue>, dialect: &Dialect) -> Self {
        #[derive(Deserialize)]
        struct DeclaredTasks {
            list: Option<IgnoredAny>,
            cancel: Option<IgnoredAny>,
            requests: Option<TaskRequests>,
        }
        #[derive(Deserialize)]
        struct TaskRequests {
            tools: Option<Tools>,
            sampling: Option<Sampling>,
            elicitation: Option<Elicitation>,
        }
        #[derive(Deserialize)]
        struct Tools {
            call: Option<IgnoredAny>,
        }
        #[derive(Deserialize)]
        struct Sampling {
            #[serde(rename = "createMessage")]
            create_message: Option<IgnoredAny>,
        }
        #[derive(Deserialize)]
        struct Elicitation {
            create: Option<IgnoredAny>,
        }
        let raw = raw.filter(|_| dialect.tasks == TaskRules::Core);
        let Some(raw) = raw.filter(|raw| raw.get().starts_with('{')) else { return Self::NONE };
        let Ok(tasks) = serde_json::from_str::<DeclaredTasks>(raw.get()) else { return Self::NONE };
        let requests = tasks.requests;
        let requests = requests.as_ref();
        let within = |declares: fn(&TaskRequests) -> bool| requests.is_some_and(declares);
        Self {
            any: true,
            list: tasks.list.is_some(),
            cancel: tasks.cancel.is_some(),
            tools_call: within(|r| r.tools.as_ref().is_some_and(|t| t.call.is_some())),
            sampling: within(|r| r.sampling.as_ref().is_some_and(|s| s.create_message.is_some())),
            elicitation: within(|r| r.elicitation.as_ref().is_some_and(|e| e.create.is_some())),
        }
    }

    /// Whether a request of this method may ask for a task.
    pub(crate) fn augments(self, method: &str) -> bool {
        match method {
            "tools/call" => self.tools_call,
            SAMPLING => self.sampling,
            ELICITATION => self.elicitation,
            _ => false,
        }
    }

    /// Whether this method about tasks may be sent; `None` for any other method.
    pub(crate) fn answers(self, method: &str) -> Option<bool> {
        match method {
            "tasks/get" | "tasks/result" => Some(self.any),
            "tasks/list" => Some(self.list),
            "tasks/cancel" => Some(self.cancel),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::revision::{MCP_2025_03_26, MCP_2025_11_25};

    /// TSK-02, MOD-07: an unreadable capability counts as not declared and does not affect the
    /// others.
    #[test]
    fn capabilities_are_read_one_by_one() {
        for (declared, [elicitation, sampling, roots, tasks]) in [
            (r#"{"elicitation":{"form":{},"url":{}},"sampling":{}}"#, [true, true, false, false]),
            (r#"{"elicitation":{},"roots":{"listChanged":true}}"#, [true, false, true, false]),
            (r#"{"elicitation":{"url":{}},"sampling":null}"#, [false; 4]),
            (r#"{"elicitation":true,"sampling":true,"roots":7}"#, [false, true, true, false]),
            (r#"{ "s\u0061mpling" : {} , "\ud800" : 1 }"#, [false, true, false, false]),
            (r#"{"tasks":{"list":{}},"roots":{}}"#, [false, false, true, true]),
            (r#"{"tasks":7,"roots":{}}"#, [false, false, true, false]),
            ("null", [false; 4]),
            ("[]", [false; 4]),
        ] {
            let read = PeerCapabilities::read(Some(Raw::checked(declared)), &MCP_2025_11_25);
            let is = [
                read.elicitation,
                read.sampling,
                read.roots,
                read.tasks.answers("tasks/get") == Some(true),
            ];
            assert_eq!(is, [elicitation, sampling, roots, tasks], "{declared}");
        }
        let before = Raw::checked(r#"{"elicitation":{},"tasks":{}}"#);
        assert_eq!(
            PeerCapabilities::read(Some(before), &MCP_2025_03_26),
            PeerCapabilities::default()
        );
    }
}
