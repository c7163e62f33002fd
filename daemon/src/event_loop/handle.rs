//! Handle of a running server, for other threads.

use std::io;
use std::os::unix::net::UnixStream;

use ceased_core::provider::{HostOffer, OfferKind};
use ceased_core::tool::Tool;

use super::mailbox::{LoopSender, OfferChange, Report};

/// Reaches into a running server from another thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    pub(crate) reports: LoopSender,
}

impl ServerHandle {
    /// A connection to the server, as a peer with this process's user.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.reports.send(Report::Adopt(theirs));
        Ok(ours)
    }

    /// Offers one more tool, in the place of one with its name if there is one. Clients are told.
    /// Running calls are not touched. A tool that the engine does not take is logged and dropped.
    pub fn add_tool(&self, tool: Tool) {
        self.reports.send(Report::Offers(OfferChange::AddTool(Box::new(tool))));
    }

    /// Withdraws a tool. Clients are told.
    pub fn remove_tool(&self, name: &str) {
        self.reports.send(Report::Offers(OfferChange::RemoveTool(name.into())));
    }

    /// Offers one more prompt or resource, in the place of one with its name or URI if there is one.
    /// Clients are told.
    pub fn add_offer(&self, offer: HostOffer) {
        self.reports.send(Report::Offers(OfferChange::Add(Box::new(offer))));
    }

    /// Withdraws a prompt by its name, a resource by its URI, or a template. Clients are told.
    pub fn remove_offer(&self, kind: OfferKind, id: &str) {
        self.reports.send(Report::Offers(OfferChange::Remove(kind, id.into())));
    }

    /// Tells the sessions that are subscribed to a resource that it has another content now.
    pub fn resource_updated(&self, uri: &str) {
        self.reports.send(Report::Offers(OfferChange::Updated(uri.into())));
    }

    /// Asks the server to shut down, as SIGTERM does.
    pub fn shut_down(&self) {
        self.reports.send(Report::ShutDown);
    }
}
