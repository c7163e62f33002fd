//! Declarations of an agent and its client in `initialize`.

use crate::acp::protocol::AcpForm;
use crate::upstream::rewrite::member;

/// Declarations that supervision depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Abilities {
    /// Protocol version; 1 until the agent has said.
    pub(super) version: u64,
    /// Whether the agent has `session/load`.
    pub(super) loads: bool,
    /// Whether the agent has `session/resume`.
    pub(super) resumes: bool,
    /// Form of request cancellation that the agent knows.
    pub(super) agent_form: AcpForm,
    /// Form of request cancellation that the client knows.
    pub(super) client_form: AcpForm,
}

impl Default for Abilities {
    fn default() -> Self {
        Self {
            version: 1,
            loads: false,
            resumes: false,
            agent_form: AcpForm::Published,
            client_form: AcpForm::Published,
        }
    }
}

impl Abilities {
    /// Reads the params of `initialize`.
    pub(super) fn read_params(&mut self, params: &str) {
        let declared = member(params, "clientCapabilities");
        self.client_form = declared.map_or(AcpForm::Published, form);
    }

    /// Reads the result of `initialize`.
    pub(super) fn read_result(&mut self, result: &str) {
        let version = member(result, "protocolVersion").and_then(|text| text.parse().ok());
        self.version = version.unwrap_or(1);
        if self.version >= 2 {
            let declared = member(result, "capabilities").unwrap_or("{}");
            // A version 2 agent with sessions has `session/resume`.
            self.resumes = member(declared, "session").is_some();
            (self.loads, self.agent_form) = (false, form(declared));
            return;
        }
        let declared = member(result, "agentCapabilities").unwrap_or("{}");
        self.loads = member(declared, "loadSession") == Some("true");
        let of_sessions = member(declared, "sessionCapabilities").unwrap_or("{}");
        self.resumes = member(of_sessions, "resume").is_some();
        self.agent_form = form(declared);
    }
}

/// ACP-01, ACP-02: the proposed form is for a peer that declares it.
fn form(capabilities: &str) -> AcpForm {
    let declared = member(capabilities, "cancellation").and_then(|it| member(it, "request"));
    if declared == Some("true") { AcpForm::Proposed } else { AcpForm::Published }
}
