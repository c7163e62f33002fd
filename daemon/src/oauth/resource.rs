//! One protected resource: its issuers, its metadata and its challenges (AUTH-01, RFC 9728).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ceased_transports::http::{Response, Status};
use serde_json::json;

use super::fetch::{Authorities, Source};
use super::issuer_keys::{Found, IssuerKeys};
use super::jwt::{self, Claims, LEEWAY, Unverified};
use super::kept_keys::KeptKeys;
use super::key_set::KeySet;
use super::ring_provider;
use crate::config::{Jwks, OAuth};
use crate::http::signed::{Fetch, Refusal, SignedToken, SignedTokens};
use crate::needed_scopes::NeededScopes;

/// Tokens whose check is remembered: the signature of a token is checked once.
const ACCEPTED_MAX: usize = 4096;
/// Path of the metadata at the root; those of a path are behind it.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The resource server of a listener.
#[derive(Debug)]
pub(crate) struct ResourceServer {
    policy: OAuth,
    /// Path of the resource.
    path: String,
    metadata_url: String,
    metadata: Vec<u8>,
    issuers: Vec<Arc<Issuer>>,
    accepted: Mutex<BTreeMap<Digest, Accepted>>,
    /// Scopes that single tools need.
    needed: Arc<NeededScopes>,
}

/// SHA-256 of a token.
type Digest = [u8; 32];

/// A token that was accepted, and the keys that it was checked with.
#[derive(Debug)]
struct Accepted {
    claims: Arc<Claims>,
    set: Arc<KeySet>,
}

#[derive(Debug)]
struct Issuer {
    name: String,
    source: Source,
    authorities: Option<Authorities>,
    /// The file of its last good keys.
    kept: Option<KeptKeys>,
    keys: IssuerKeys,
}

impl ResourceServer {
    /// The resource server of a configuration. `needed`: scopes that tools, servers and profiles need;
    /// `state_dir`: the directory for the last good keys of issuers.
    pub(crate) fn new(policy: &OAuth, needed: &Arc<NeededScopes>, state_dir: &Path) -> Self {
        ring_provider::install();
        let (origin, path) = split(&policy.resource);
        let issuers = policy.issuers.iter().map(|name| {
            let source = match &policy.jwks {
                None => Source::Metadata(name.clone()),
                Some(Jwks::Url(url)) => Source::Url(url.clone()),
                Some(Jwks::File(path)) => Source::File(path.clone()),
            };
            Issuer::shared(name, source, policy.ca_file.as_deref(), state_dir)
        });
        let scopes: BTreeSet<&str> =
            policy.scopes.iter().chain(&needed.all).map(|name| &**name).collect();
        let metadata = json!({
            "resource": policy.resource,
            "authorization_servers": policy.issuers,
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes,
            "resource_name": "ceased",
        });
        Self {
            metadata_url: format!("{origin}{WELL_KNOWN}{path}"),
            path: path.to_owned(),
            metadata: metadata.to_string().into_bytes(),
            issuers: issuers.collect(),
            accepted: Mutex::default(),
            needed: Arc::clone(needed),
            policy: policy.clone(),
        }
    }

    /// The claims of a token, of an earlier check if the keys are the same.
    fn claims(
        &self,
        unverified: &Unverified<'_>,
        set: Arc<KeySet>,
        token: &str,
        now: SystemTime,
    ) -> Result<Arc<Claims>, Refusal> {
        let digest = digest_of(token);
        let mut accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = accepted.get(&digest)
            && Arc::ptr_eq(&known.set, &set)
            && now < end_of(&known.claims)
        {
            return Ok(Arc::clone(&known.claims));
        }
        let key = set.find(unverified.header.kid.as_deref(), unverified.header.alg);
        let key = key.ok_or(Refusal::Invalid("the key of the token is unknown"))?;
        let claims = unverified.verify(key, &self.policy.audience, &self.policy.groups_claim, now);
        let claims = Arc::new(claims.map_err(|why| match why {
            jwt::EXPIRED => Refusal::Expired,
            why => Refusal::Invalid(why),
        })?);
        if accepted.len() >= ACCEPTED_MAX {
            accepted.clear();
        }
        accepted.insert(digest, Accepted { claims: Arc::clone(&claims), set });
        Ok(claims)
    }

    fn issuer(&self, name: &str) -> Option<&Arc<Issuer>> {
        self.issuers.iter().find(|issuer| issuer.name == *name)
    }
}

/// The end of a token's time.
fn end_of(claims: &Claims) -> SystemTime {
    let end = Duration::from_secs(claims.expires).saturating_add(LEEWAY);
    UNIX_EPOCH.checked_add(end).unwrap_or(UNIX_EPOCH)
}

fn digest_of(token: &str) -> Digest {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().unwrap_or_default()
}

/// Origin and path of a URL; a path of `/` alone is none.
fn split(url: &str) -> (&str, &str) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find('/').map_or(url.len(), |at| start + at);
    let (origin, path) = url.split_at(end);
    (origin, if path == "/" { "" } else { path })
}

impl SignedTokens for ResourceServer {
    fn waits(&self, token: &str) -> bool {
        if !jwt::is_signed(token) {
            return false;
        }
        let Ok(unverified) = jwt::read(token) else { return false };
        let Some(issuer) = self.issuer(&unverified.issuer) else { return false };
        let found = issuer.keys.find(unverified.header.kid.as_deref(), Instant::now());
        matches!(found, Found::Later)
    }

    fn check(&self, token: &str) -> Result<SignedToken, Refusal> {
        if !jwt::is_signed(token) {
            return Err(Refusal::Invalid("the token is unknown"));
        }
        let unverified = jwt::read(token).map_err(Refusal::Invalid)?;
        let issuer = self
            .issuer(&unverified.issuer)
            .ok_or(Refusal::Invalid("the token is of another issuer"))?;
        let id = unverified.header.kid.as_deref();
        let set = match issuer.keys.find(id, Instant::now()) {
            Found::Set(set) => set,
            Found::Later | Found::Nothing => return Err(Refusal::NoKeys),
        };
        let now = SystemTime::now();
        let claims = self.claims(&unverified, set, token, now)?;
        let needed = self.policy.scopes.iter();
        if !needed.clone().all(|scope| claims.grants.scopes.contains(scope)) {
            return Err(Refusal::Scopes(needed.cloned().collect()));
        }
        Ok(SignedToken {
            subject: Arc::clone(&claims.subject),
            grants: Arc::clone(&claims.grants),
            valid_for: end_of(&claims).duration_since(now).unwrap_or_default(),
            client: claims.client.clone(),
            id: claims.id.clone(),
        })
    }

    fn metadata(&self, path: &str) -> Option<Response> {
        let below = path.strip_prefix(WELL_KNOWN)?;
        let is_profile = |rest: &str| rest.strip_prefix(&*self.path).is_some_and(is_name);
        let is_here = below.is_empty() || below == self.path || is_profile(below);
        is_here.then(|| {
            Response::json(Status::Ok, self.metadata.clone())
                .header("cache-control", "public, max-age=300")
                .header("access-control-allow-origin", "*")
                .header("access-control-allow-methods", "GET, OPTIONS")
                .header("access-control-allow-headers", "mcp-protocol-version")
        })
    }

    fn challenge(&self, error: Option<(&str, &str)>, scopes: Option<&[Box<str>]>) -> String {
        let mut text = format!("Bearer resource_metadata=\"{}\"", self.metadata_url);
        let scopes = scopes.unwrap_or(&self.policy.scopes);
        if !scopes.is_empty() {
            text.push_str(&format!(", scope=\"{}\"", scopes.join(" ")));
        }
        if let Some((error, description)) = error {
            text.push_str(&format!(", error=\"{error}\", error_description=\"{description}\""));
        }
        text
    }

    fn scopes_of(&self, tool: &str) -> Vec<Box<str>> {
        let mut scopes = self.policy.scopes.clone();
        for scope in self.needed.of_tool(tool) {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    fn take_fetches(&self) -> Vec<Fetch> {
        let due = self.issuers.iter().filter(|issuer| issuer.keys.begin_read(Instant::now()));
        due.map(|issuer| {
            let read = Read(Some(Arc::clone(issuer)));
            Box::new(move || read.run()) as Fetch
        })
        .collect()
    }
}

/// Issuers in use: a reload keeps their last good keys.
static IN_USE: Mutex<Vec<Weak<Issuer>>> = Mutex::new(Vec::new());

impl Issuer {
    /// The issuer with this name and these keys, whose keys are to be read now.
    fn shared(name: &str, source: Source, ca_file: Option<&Path>, state_dir: &Path) -> Arc<Self> {
        let authorities = ca_file.map(Authorities::of);
        let mut all = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        let mut known = all.iter().filter_map(Weak::upgrade);
        let is_same = |it: &Arc<Self>| {
            it.name == *name && it.source == source && it.authorities == authorities
        };
        if let Some(same) = known.find(is_same) {
            same.keys.renew();
            return same;
        }
        let kept =
            source.file_name(name, authorities.as_ref()).map(|file| KeptKeys::of(state_dir, &file));
        let known = kept.as_ref().and_then(KeptKeys::load).and_then(|(set, age)| {
            tracing::debug!(issuer = name, ?age, "took the kept keys of an issuer");
            Some((set, Instant::now().checked_sub(age)?))
        });
        let (name, keys) = (name.to_owned(), IssuerKeys::new(known));
        let new = Arc::new(Self { name, source, authorities, kept, keys });
        all.push(Arc::downgrade(&new));
        new
    }

    /// Reads the keys; takes as long as the issuer does, within the limits of a read.
    fn read(&self) {
        let read = self.source.read(self.authorities.as_ref().map(|ca| &*ca.file));
        if let (Ok((_, text)), Some(kept)) = (&read, &self.kept) {
            kept.save(text);
        }
        match &read {
            Ok(_) => tracing::debug!(issuer = self.name, "read the keys of an issuer"),
            Err(why) => {
                tracing::warn!(issuer = self.name, %why, "the keys of an issuer cannot be read: \
                    its last ones stay in use for a day");
            }
        }
        self.keys.end_read(read.ok().map(|(set, _)| set), Instant::now());
    }
}

/// A read that is due. Without its thread it has failed.
struct Read(Option<Arc<Issuer>>);

impl Read {
    fn run(mut self) {
        if let Some(issuer) = self.0.take() {
            issuer.read();
        }
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        if let Some(issuer) = self.0.take() {
            issuer.keys.end_read(None, Instant::now());
        }
    }
}

/// Whether the rest of a path is the name of a profile.
fn is_name(rest: &str) -> bool {
    rest.strip_prefix('/').is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn knows_its_key(issuer: &Issuer) -> bool {
        matches!(issuer.keys.find(Some("a"), Instant::now()), Found::Set(_))
    }

    /// AUTH-02: keys that other authorities vouched for are not taken, neither kept ones nor those of
    /// the configuration before a reload.
    #[test]
    fn keys_belong_to_the_content_of_the_authorities() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let shared = |authorities: &str| {
            std::fs::write(&file, authorities).unwrap();
            let source = Source::Metadata("https://ca.example".into());
            Issuer::shared("https://ca.example", source, Some(&file), dir.path())
        };
        let before = shared("one");
        assert!(!knows_its_key(&before));
        before.kept.as_ref().unwrap().save(SET.as_bytes());
        let set = KeySet::read(SET.as_bytes()).unwrap();
        before.keys.end_read(Some(set), Instant::now());
        assert!(Arc::ptr_eq(&before, &shared("one")) && knows_its_key(&before));
        assert!(!knows_its_key(&shared("two")), "of a reload");
        drop(before);
        assert!(knows_its_key(&shared("one")), "kept");
        assert!(!knows_its_key(&shared("two")), "kept by other authorities");
    }
}
