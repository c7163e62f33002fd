//! Prompts and resources of the host itself, beside its tools.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::de::IgnoredAny;

use crate::policy::access::{Caller, Item};
use crate::tool::Tool;

/// Kind of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "trace", serde(rename_all = "lowercase"))]
pub enum OfferKind {
    /// A prompt, by its name.
    Prompt,
    /// A resource, by its URI.
    Resource,
    /// Resources by the template of their URIs.
    Template,
}

/// A prompt, a resource or a template of resources, served by jobs of the host.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "trace", derive(serde::Serialize, serde::Deserialize))]
pub struct HostOffer {
    /// Its kind.
    pub kind: OfferKind,
    /// Name of a prompt, URI of a resource, URI template: unique within its kind.
    pub id: Box<str>,
    /// Its element in the list of its kind, as JSON text of an object.
    pub listed: Box<str>,
    /// Work behind `prompts/get` or `resources/read`. The arguments of a prompt are those of the
    /// request; those of a resource are `uri` and `variables`, an object of texts.
    pub serve: Arc<Tool>,
    /// Work behind `completion/complete`, with the members `argument` and `context` of the request.
    pub complete: Option<Arc<Tool>>,
}

/// An invalid prompt, resource or template, with its flaw.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadOffer {
    /// Name, URI or template of the offer.
    pub id: String,
    /// The mistake.
    pub why: String,
}

impl fmt::Display for BadOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the offer {:?}: {}", self.id, self.why)
    }
}

impl core::error::Error for BadOffer {}

/// The offers of a host, in the order they are listed.
#[derive(Debug, Clone, Default)]
pub struct Provider(Vec<Arc<HostOffer>>);

impl Provider {
    /// A provider of `offers`.
    ///
    /// # Errors
    /// [`BadOffer`] for the first that has the name, URI or template of one before it, or whose
    /// element is not JSON text of an object.
    pub fn new(offers: impl IntoIterator<Item = HostOffer>) -> Result<Self, BadOffer> {
        let mut provider = Self::default();
        for offer in offers {
            let bad = |why: String| BadOffer { id: String::from(&*offer.id), why };
            if provider.find(offer.kind, &offer.id).is_some() {
                return Err(bad("there is another of this name: rename one of them".into()));
            }
            if let Err(why) = serde_json::from_str::<BTreeMap<String, IgnoredAny>>(&offer.listed) {
                return Err(bad(alloc::format!(
                    "its listing must be JSON text of an object: {why}"
                )));
            }
            provider.0.push(Arc::new(offer));
        }
        Ok(provider)
    }

    /// The same with one more offer, in the place of one with its kind and name if there is one.
    ///
    /// # Errors
    /// [`BadOffer`] as for [`Provider::new`].
    pub fn with(&self, offer: HostOffer) -> Result<Self, BadOffer> {
        let position =
            self.0.iter().position(|other| other.kind == offer.kind && other.id == offer.id);
        let [offer] = Self::new([offer])?.0.try_into().unwrap_or_else(|_| unreachable!());
        let mut offers = self.0.clone();
        match position {
            Some(at) => offers[at] = offer,
            None => offers.push(offer),
        }
        Ok(Self(offers))
    }

    /// The same without an offer.
    #[must_use]
    pub fn without(&self, kind: OfferKind, id: &str) -> Self {
        let kept = self.0.iter().filter(|offer| offer.kind != kind || *offer.id != *id);
        Self(kept.cloned().collect())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every offer, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<HostOffer>> {
        self.0.iter()
    }

    /// Changes the tools of the offers in place; one that is in use elsewhere is left as it is.
    #[cfg(feature = "trace")]
    pub(crate) fn change_tools(
        &mut self,
        change: &mut dyn FnMut(&mut Tool) -> Result<(), String>,
    ) -> Result<(), String> {
        let offers = self.0.iter_mut().filter_map(Arc::get_mut);
        offers
            .flat_map(|offer| [Some(&mut offer.serve), offer.complete.as_mut()])
            .flatten()
            .filter_map(Arc::get_mut)
            .try_for_each(change)
    }

    /// Whether these are the same offers of this kind.
    pub(crate) fn is_same(&self, other: &Self, kinds: &[OfferKind]) -> bool {
        let of = |provider: &Self| -> Vec<*const HostOffer> {
            let all = provider.0.iter().filter(|offer| kinds.contains(&offer.kind));
            all.map(Arc::as_ptr).collect()
        };
        of(self) == of(other)
    }

    fn find(&self, kind: OfferKind, id: &str) -> Option<&Arc<HostOffer>> {
        self.0.iter().find(|offer| offer.kind == kind && *offer.id == *id)
    }

    /// The prompt of a name, or the resource or template of a URI, as a caller may use it.
    pub(crate) fn offered(
        &self,
        kind: OfferKind,
        id: &str,
        caller: &Caller<'_>,
    ) -> Option<&Arc<HostOffer>> {
        self.find(kind, id).filter(|offer| caller.sees(Item::Offer(&offer.serve)))
    }

    /// The resource of a URI, or the first template that the URI fits, with its variables.
    pub(crate) fn resource<'u>(
        &self,
        uri: &'u str,
        caller: &Caller<'_>,
    ) -> Option<(&Arc<HostOffer>, UriVariables<'_, 'u>)> {
        if let Some(offer) = self.offered(OfferKind::Resource, uri, caller) {
            return Some((offer, Vec::new()));
        }
        let templates = self.0.iter().filter(|offer| offer.kind == OfferKind::Template);
        templates.filter(|offer| caller.sees(Item::Offer(&offer.serve))).find_map(|offer| {
            let variables = variables(&offer.id, uri)?;
            Some((offer, variables))
        })
    }
}

/// Values of the variables of a template, by their names.
pub(crate) type UriVariables<'t, 'u> = Vec<(&'t str, &'u str)>;

/// Variables of a URI that fits a template of RFC 6570, as far as it has `{name}`, which stands for
/// a text without slashes, and `{+name}`, which stands for any text. A text is not empty, and ends at
/// the first place where the template's next fixed part follows.
#[must_use]
pub fn variables<'t, 'u>(template: &'t str, uri: &'u str) -> Option<Vec<(&'t str, &'u str)>> {
    let mut found = Vec::new();
    let (mut template, mut uri) = (template, uri);
    while let Some((fixed, rest)) = template.split_once('{') {
        let (name, after) = rest.split_once('}')?;
        uri = uri.strip_prefix(fixed)?;
        let next = after.split('{').next().unwrap_or_default();
        let end = match next {
            "" if after.is_empty() => uri.len(),
            "" => return None,
            // The last fixed part ends the URI.
            next if next.len() == after.len() => uri.strip_suffix(next)?.len(),
            next => uri.find(next)?,
        };
        let (value, remainder) = uri.split_at(end);
        let (name, is_whole) = match name.strip_prefix('+') {
            Some(name) => (name, true),
            None => (name, false),
        };
        if value.is_empty() || !is_whole && value.contains('/') {
            return None;
        }
        found.push((name, value));
        (template, uri) = (after, remainder);
    }
    (uri == template).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_gives_the_variables_of_a_uri() {
        for (template, uri, expected) in [
            ("t://a/{id}/data", "t://a/123/data", Some(&[("id", "123")] as &[_])),
            ("t://a/{id}/data", "t://a/1/2/data", None),
            ("t://a/{+id}/data", "t://a/1/2/data", Some(&[("id", "1/2")])),
            ("t://a/{id}/data", "t://a//data", None),
            ("t://{a}/{b}", "t://x/y", Some(&[("a", "x"), ("b", "y")])),
            ("t://{a}-{b}.x", "t://1-2-3.x", Some(&[("a", "1"), ("b", "2-3")])),
            ("t://{a}{b}", "t://xy", None),
            ("t://{a", "t://x", None),
            ("t://x", "t://x", Some(&[])),
            ("t://x", "t://y", None),
        ] {
            assert_eq!(variables(template, uri).as_deref(), expected, "{template} {uri}");
        }
    }
}
