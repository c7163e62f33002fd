//! Upstreams in a recording: events of their processes, and the settings of a server.

use std::sync::Arc;
use std::time::Duration;

use ceased_core::ids::{CheckId, ConnId, InstanceId};
use ceased_core::policy::access::Allow;
use ceased_core::upstream::interface::{ProcessEvidence, UpstreamEvent};
use ceased_core::upstream::server::UpstreamServer;
use serde::{Deserialize, Serialize};

use super::parts::Who;

/// An [`UpstreamEvent`] as data.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UpstreamHappened {
    Started { instance: u64, conn: u64 },
    Examined { instance: u64, check: u64, born: Option<u32>, cpu: Option<Duration> },
    StraysEnded { instance: u64, check: u64, ended: u32, left: u32 },
    Ended { instance: u64, status: String, stderr: String },
}

impl UpstreamHappened {
    pub(super) fn new(event: &UpstreamEvent<'_>) -> Self {
        match event {
            UpstreamEvent::Started { instance, conn } => {
                Self::Started { instance: instance.get(), conn: conn.get() }
            }
            UpstreamEvent::Examined { instance, check, processes } => Self::Examined {
                instance: instance.get(),
                check: check.get(),
                born: processes.born,
                cpu: processes.cpu,
            },
            UpstreamEvent::StraysEnded { instance, check, ended, left } => Self::StraysEnded {
                instance: instance.get(),
                check: check.get(),
                ended: *ended,
                left: *left,
            },
            UpstreamEvent::Ended { instance, status, stderr } => Self::Ended {
                instance: instance.get(),
                status: (*status).to_owned(),
                stderr: (*stderr).to_owned(),
            },
        }
    }

    pub(super) fn get(&self) -> UpstreamEvent<'_> {
        match self {
            Self::Started { instance, conn } => UpstreamEvent::Started {
                instance: InstanceId::new(*instance),
                conn: ConnId::new(*conn),
            },
            Self::Examined { instance, check, born, cpu } => UpstreamEvent::Examined {
                instance: InstanceId::new(*instance),
                check: CheckId::new(*check),
                processes: ProcessEvidence { born: *born, cpu: *cpu },
            },
            Self::StraysEnded { instance, check, ended, left } => UpstreamEvent::StraysEnded {
                instance: InstanceId::new(*instance),
                check: CheckId::new(*check),
                ended: *ended,
                left: *left,
            },
            Self::Ended { instance, status, stderr } => {
                UpstreamEvent::Ended { instance: InstanceId::new(*instance), status, stderr }
            }
        }
    }
}

/// [`UpstreamServer`] as data, without the host's launch data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ServerRecipe {
    server: Box<UpstreamServer>,
    /// Identities that may use it; all if it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow: Option<Vec<Who>>,
}

impl ServerRecipe {
    /// The data of a server; `None` when it cannot be written as JSON.
    pub(super) fn new(server: &UpstreamServer) -> Option<Self> {
        let allow = match &server.allow {
            Allow::Everyone => None,
            Allow::Only(who) => Some(who.iter().map(Who::new).collect()),
        };
        let text = serde_json::to_string(server).ok()?;
        Some(Self { server: Box::new(serde_json::from_str(&text).ok()?), allow })
    }

    pub(super) fn get(&self) -> Result<Arc<UpstreamServer>, String> {
        let text = serde_json::to_string(&self.server).map_err(|error| error.to_string())?;
        let mut server: UpstreamServer =
            serde_json::from_str(&text).map_err(|error| error.to_string())?;
        server.allow = match &self.allow {
            None => Allow::Everyone,
            Some(who) => Allow::Only(who.iter().map(Who::get).collect()),
        };
        Ok(Arc::new(server))
    }
}
