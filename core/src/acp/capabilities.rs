//! Capabilities that the peers of ACP exchange by `initialize` (ACP-02).

use crate::acp::protocol::{AcpPeer, AcpRole, INITIALIZE};
use crate::ids::ConnId;
use crate::jobs::job::Job;
use crate::json::raw::Raw;
use crate::outbox::Outbox;

/// ACP state of a connection on which we have this role.
fn acp_as(outbox: &mut Outbox, conn: ConnId, side: AcpRole) -> Option<&mut AcpPeer> {
    let party = outbox.connection_mut(conn)?.acp.as_mut()?;
    (party.side == side).then_some(party)
}

/// Handles the answer of a service; an answer to `initialize` exchanges capabilities (ACP-02).
pub(crate) fn note_served(outbox: &mut Outbox, job: &Job, result: &str) {
    if &*job.tool.name == INITIALIZE
        && let Some(party) = acp_as(outbox, job.conn, AcpRole::Agent)
    {
        party.complete(job.declares, result);
    }
}

/// Handles the answer of a peer to `initialize`: it exchanges capabilities (ACP-02).
pub(crate) fn note_answered(outbox: &mut Outbox, conn: ConnId, declares: bool, result: Raw<'_>) {
    if let Some(party) = acp_as(outbox, conn, AcpRole::Client) {
        party.complete(declares, result.get());
    }
}
