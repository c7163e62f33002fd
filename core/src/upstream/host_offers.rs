//! Prompts and resources of the host itself, as a connection sees them beside those of servers.

use alloc::string::String;
use alloc::sync::Arc;

use crate::ids::ConnId;
use crate::outbox::Outbox;
use crate::policy::access::Item;
use crate::provider::{HostOffer, OfferKind};
use crate::upstream::list::{PROMPTS, RESOURCES, TEMPLATES};
use crate::upstream::table::Upstreams;

impl Upstreams {
    /// Whether a connection may see offers of the host: not beside those of a server that shows
    /// through.
    pub(crate) fn sees_offers(&self, outbox: &Outbox, conn: ConnId) -> bool {
        !outbox.settings().provider.is_empty() && self.shown_through(outbox, conn).is_none()
    }

    /// Offers of a list that a connection sees.
    fn offers<'a>(
        &self,
        outbox: &'a Outbox,
        at: usize,
        conn: ConnId,
    ) -> impl Iterator<Item = &'a Arc<HostOffer>> + use<'a> {
        let kind = match at {
            PROMPTS => Some(OfferKind::Prompt),
            RESOURCES => Some(OfferKind::Resource),
            TEMPLATES => Some(OfferKind::Template),
            _ => None,
        };
        let kind = kind.filter(|_| self.sees_offers(outbox, conn));
        let caller = outbox.caller(conn);
        let all = outbox.settings().provider.iter();
        all.filter(move |it| Some(it.kind) == kind && caller.sees(Item::Offer(&it.serve)))
    }

    /// Elements of a list, separated by commas.
    pub(super) fn offered_elements(&self, outbox: &Outbox, at: usize, conn: ConnId) -> String {
        let mut elements = String::new();
        for offer in self.offers(outbox, at, conn) {
            elements.push_str(if elements.is_empty() { "" } else { "," });
            elements.push_str(&offer.listed);
        }
        elements
    }

    /// Whether the host has offers for a capability of servers.
    pub(super) fn has_offers(&self, outbox: &Outbox, capability: &str, conn: ConnId) -> bool {
        let any = |at| self.offers(outbox, at, conn).next().is_some();
        match capability {
            "prompts" => any(PROMPTS),
            "resources" => any(RESOURCES) || any(TEMPLATES),
            "completions" => [PROMPTS, TEMPLATES]
                .iter()
                .any(|at| self.offers(outbox, *at, conn).any(|offer| offer.complete.is_some())),
            _ => false,
        }
    }

    /// Whether the host has a resource of this URI for a connection.
    pub(crate) fn has_offer(&self, outbox: &Outbox, conn: ConnId, uri: &str) -> bool {
        let caller = outbox.caller(conn);
        let provider = &outbox.settings().provider;
        self.sees_offers(outbox, conn) && provider.resource(uri, &caller).is_some()
    }
}
