//! Keys of an http `[[listen]]` about signed tokens and TLS, checked.

use super::check::{Checker, Key};
use super::identities::is_scope;
use super::kinds::{FilePath, Kind, Words};
use super::oauth::{Jwks, OAuth, TlsFiles};
use super::raw;
use super::table::Part;
use crate::safe_url::is_safe_url;

/// Claim with the groups, if none is named.
const GROUPS_CLAIM: &str = "groups";

/// The keys about signed tokens; `None` without an `issuer`.
pub(super) fn oauth(raw: &raw::Listen, check: &mut Checker<'_>) -> Option<OAuth> {
    let before = check.problems.len();
    let Some(issuer) = raw.tokens.issuer.as_ref() else {
        for (name, at) in raw.tokens.written() {
            let what = format!("`{name}` in [[listen]] has no meaning without `issuer`");
            check.problem(at, what, "write issuer = [\"https://…\"]");
        }
        return None;
    };
    if check.lacks_tls(issuer.span().start, "`issuer`") {
        return None;
    }
    let tokens = &raw.tokens;
    let mut url = |key, text: &raw::Text| {
        let value = text.get_ref();
        if !is_safe_url(value) || value.contains(['"', '\\', ' ', '#']) {
            let hint = "it takes an https:// URL, or an http:// URL of this machine";
            check.bad_value(key, text.span().start, &format!("{value:?}"), hint);
        }
        value.clone()
    };
    let key = tokens.issuer.key();
    let issuers: Vec<String> = tokens.issuer.elements().map(|text| url(key, text)).collect();
    let resource = tokens.resource.as_ref().map(|text| url(tokens.resource.key(), text));
    let jwks = tokens.jwks.read(&KeySet, check);
    let ca_file = tokens.issuer_ca_file.read(&FilePath, check);
    if issuers.is_empty() {
        let hint = "list the issuers of tokens, or leave the key out";
        check.bad_value(key, issuer.span().start, "[]", hint);
    }
    if resource.is_none() {
        let what = "this [[listen]] has an `issuer` and no `resource`";
        let hint = "write resource = \"https://…/mcp\", the address that clients use";
        check.problem(issuer.span().start, what, hint);
    }
    for text in tokens.scopes.elements().filter(|text| !is_scope(text.get_ref())) {
        let hint = "a scope has visible characters, without spaces, \" and \\";
        let (at, written) = (text.span().start, format!("{:?}", text.get_ref()));
        check.bad_value(tokens.scopes.key(), at, &written, hint);
    }
    let resource = resource.filter(|_| check.problems.len() == before)?;
    let audience: Vec<String> =
        tokens.audience.elements().map(|text| text.get_ref().clone()).collect();
    Some(OAuth {
        audience: if audience.is_empty() { vec![resource.clone()] } else { audience },
        resource,
        issuers,
        jwks,
        ca_file,
        scopes: tokens.scopes.elements().map(|text| text.get_ref().as_str().into()).collect(),
        groups_claim: tokens.groups_claim.or(GROUPS_CLAIM.to_owned(), &Words, check),
    })
}

/// Place of a key set.
struct KeySet;

impl Kind<Jwks> for KeySet {
    type Written = String;

    fn parse(&self, key: Key, text: &raw::Text, check: &mut Checker<'_>) -> Option<Jwks> {
        let value = text.get_ref();
        if let Some(path) = value.strip_prefix("file:") {
            return check.path_in(key, text, path).map(Jwks::File);
        }
        if is_safe_url(value) {
            return Some(Jwks::Url(value.clone()));
        }
        let hint = "it takes \"https://…\", an http:// URL of this machine, or \"file:PATH\"";
        check.bad_value(key, text.span().start, &format!("{value:?}"), hint);
        None
    }

    fn show(&self, value: &Jwks) -> Option<String> {
        Some(match value {
            Jwks::Url(url) => url.clone(),
            Jwks::File(path) => path.display().to_string(),
        })
    }
}

/// The files of TLS; `None` if the listener has none.
pub(super) fn tls(raw: &raw::Listen, check: &mut Checker<'_>) -> Option<TlsFiles> {
    let (cert, key) = (&raw.tls.tls_cert, &raw.tls.tls_key);
    match (cert.at(), key.at()) {
        (Some(at), Some(_)) if check.lacks_tls(at, "`tls_cert`") => None,
        (Some(_), Some(_)) => {
            let cert = cert.read(&FilePath, check);
            Some(TlsFiles { key: key.read(&FilePath, check)?, cert: cert? })
        }
        (Some(at), None) | (None, Some(at)) => {
            let what = "this [[listen]] has one of `tls_cert` and `tls_key`";
            check.problem(at, what, "write both, or none");
            None
        }
        (None, None) => None,
    }
}
