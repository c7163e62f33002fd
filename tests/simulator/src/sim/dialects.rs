//! Expectations of a peer of each revision, from the ledger and not from the core. A new revision
//! is one more row here, and its new rules are cases in the [oracle](super::oracle).

/// The rules of one revision as its peers know them.
#[derive(Debug, PartialEq, Eq)]
pub struct Rules {
    /// The value of `protocolVersion`.
    pub revision: &'static str,
    /// Arrays of messages are taken apart.
    pub batches: bool,
    /// An error without a readable id says `"id":null`; else it has no id (RPC-01).
    pub null_id: bool,
    /// Tasks exist (TSK-01, TSK-03).
    pub tasks: bool,
    /// Progress may have a message.
    pub progress_message: bool,
    /// The members a tool may have beyond name, description and inputSchema.
    pub tool_members: &'static [&'static str],
}

/// The revision without sessions: each request says for itself that it is of this one (MOD-01).
pub const STATELESS: &str = "2026-07-28";

/// ACP, in both its forms.
pub static ACP: Rules = Rules {
    revision: "acp",
    batches: false,
    null_id: true,
    tasks: false,
    progress_message: false,
    tool_members: &[],
};

/// Before anything was agreed on.
pub static UNSETTLED: Rules = Rules {
    revision: "",
    batches: false,
    null_id: true,
    tasks: false,
    progress_message: false,
    tool_members: &[],
};

/// Every revision, oldest first.
pub static ALL: [Rules; 4] = [
    Rules {
        revision: "2024-11-05",
        batches: false,
        null_id: true,
        tasks: false,
        progress_message: false,
        tool_members: &[],
    },
    Rules {
        revision: "2025-03-26",
        batches: true,
        null_id: true,
        tasks: false,
        progress_message: true,
        tool_members: &[],
    },
    Rules {
        revision: "2025-06-18",
        batches: false,
        null_id: true,
        tasks: false,
        progress_message: true,
        tool_members: &["title", "outputSchema"],
    },
    Rules {
        revision: "2025-11-25",
        batches: false,
        null_id: false,
        tasks: true,
        progress_message: true,
        tool_members: &["title", "outputSchema", "execution"],
    },
];

/// The revision that `initialize` with this `protocolVersion` agrees on (RPC-04).
///
/// # Panics
/// Never: the table has a newest revision.
#[must_use]
pub fn agreed(asked: &str) -> &'static Rules {
    let newest = ALL.last().expect("there is a newest revision");
    ALL.iter().find(|rules| rules.revision == asked).unwrap_or(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulator_knows_every_session() {
        for dialect in ceased_core::protocol::revision::ALL {
            if ceased_core::protocol::revision::Dialect::negotiate(dialect.revision) != dialect {
                assert_eq!(dialect.revision, STATELESS, "{} is not simulated", dialect.name);
                continue;
            }
            let known = ALL.iter().any(|rules| rules.revision == dialect.revision);
            assert!(known, "{} is not simulated: give it a row in sim/dialects.rs", dialect.name);
        }
    }
}
