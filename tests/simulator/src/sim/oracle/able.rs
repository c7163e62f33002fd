//! Declared capabilities of a peer.

use serde_json::Value;

/// Declared capabilities of a peer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::sim) struct Able {
    methods: Vec<&'static str>,
    /// TSK-02: these as tasks, too.
    tasks: Vec<&'static str>,
    /// Its tasks can be cancelled.
    pub(super) cancel: bool,
}

const TASKS: [(&str, &str); 3] = [
    ("/tasks/requests/tools/call", "tools/call"),
    ("/tasks/requests/elicitation/create", "elicitation/create"),
    ("/tasks/requests/sampling/createMessage", "sampling/createMessage"),
];

impl Able {
    /// Reads the capabilities of a client; `tasks` and `elicitation` where the revision has them.
    pub(super) fn of_client(said: &Value, tasks: bool, elicitation: bool) -> Self {
        let has = |at: &str| said.pointer(at).is_some_and(|value| !value.is_null());
        // Nothing in it means forms.
        let forms = has("/elicitation/form") || !has("/elicitation/url");
        let methods = [
            (elicitation && said["elicitation"].is_object() && forms, "elicitation/create"),
            (has("/sampling"), "sampling/createMessage"),
            (has("/roots"), "roots/list"),
        ];
        Self::of(said, tasks, &methods)
    }

    /// Reads the capabilities of a server.
    pub(super) fn of_server(said: &Value, tasks: bool) -> Self {
        let has = |at: &str| said.pointer(at).is_some_and(|value| !value.is_null());
        let methods = [
            (has("/tools"), "tools/list"),
            (has("/tools"), "tools/call"),
            (has("/logging"), "logging/setLevel"),
        ];
        Self::of(said, tasks, &methods)
    }

    fn of(said: &Value, tasks: bool, methods: &[(bool, &'static str)]) -> Self {
        let has = |at: &str| tasks && said.pointer(at).is_some_and(|value| !value.is_null());
        let of_tasks = [
            (has("/tasks"), "tasks/get"),
            (has("/tasks"), "tasks/result"),
            (has("/tasks/list"), "tasks/list"),
            (has("/tasks/cancel"), "tasks/cancel"),
        ];
        let all = methods.iter().chain(&of_tasks).chain(&[(true, "ping")]);
        Self {
            methods: all.filter(|(has, _)| *has).map(|(_, method)| *method).collect(),
            tasks: TASKS.iter().filter(|(at, _)| has(at)).map(|(_, method)| *method).collect(),
            cancel: has("/tasks/cancel"),
        }
    }

    pub(super) fn answers(&self, method: &str) -> bool {
        self.methods.contains(&method)
    }

    pub(super) fn augments(&self, method: &str) -> bool {
        self.tasks.contains(&method)
    }
}
