//! Keys of an http `[[listen]]` about signed tokens and TLS, checked.

use toml::Spanned;

use super::check::{Checker, Key};
use super::identities::is_scope;
use super::oauth::{Jwks, OAuth, TlsFiles};
use super::raw;
use super::table::Part;
use crate::safe_url::is_safe_url;

/// Claim with the groups, if none is named.
const GROUPS_CLAIM: &str = "groups";

const fn key(name: &'static str) -> Key {
    Key { table: "[[listen]]", name }
}

/// The texts of a list.
fn texts(list: Option<&Spanned<Vec<raw::Text>>>) -> impl Iterator<Item = &raw::Text> {
    list.into_iter().flat_map(|list| list.get_ref())
}

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
    let mut url = |name, text: &raw::Text| {
        let value = text.get_ref();
        if !is_safe_url(value) || value.contains(['"', '\\', ' ', '#']) {
            let hint = "it takes an https:// URL, or an http:// URL of this machine";
            check.bad_value(key(name), text.span().start, &format!("{value:?}"), hint);
        }
        value.clone()
    };
    let issuers: Vec<String> = texts(Some(issuer)).map(|text| url("issuer", text)).collect();
    let resource = raw.tokens.resource.as_ref().map(|text| url("resource", text));
    let jwks = raw.tokens.jwks.as_ref().and_then(|text| jwks(text, check));
    let ca_file =
        raw.tokens.issuer_ca_file.as_ref().and_then(|it| check.path(key("issuer_ca_file"), it));
    if issuers.is_empty() {
        let hint = "list the issuers of tokens, or leave the key out";
        check.bad_value(key("issuer"), issuer.span().start, "[]", hint);
    }
    if resource.is_none() {
        let what = "this [[listen]] has an `issuer` and no `resource`";
        let hint = "write resource = \"https://…/mcp\", the address that clients use";
        check.problem(issuer.span().start, what, hint);
    }
    for text in texts(raw.tokens.scopes.as_ref()).filter(|text| !is_scope(text.get_ref())) {
        let hint = "a scope has visible characters, without spaces, \" and \\";
        check.bad_value(key("scopes"), text.span().start, &format!("{:?}", text.get_ref()), hint);
    }
    let resource = resource.filter(|_| check.problems.len() == before)?;
    let audience: Vec<String> =
        texts(raw.tokens.audience.as_ref()).map(|text| text.get_ref().clone()).collect();
    let claim = raw.tokens.groups_claim.as_ref().map(|text| text.get_ref().clone());
    Some(OAuth {
        audience: if audience.is_empty() { vec![resource.clone()] } else { audience },
        resource,
        issuers,
        jwks,
        ca_file,
        scopes: texts(raw.tokens.scopes.as_ref())
            .map(|text| text.get_ref().as_str().into())
            .collect(),
        groups_claim: claim.unwrap_or_else(|| GROUPS_CLAIM.to_owned()),
    })
}

fn jwks(text: &raw::Text, check: &mut Checker<'_>) -> Option<Jwks> {
    let value = text.get_ref();
    if let Some(path) = value.strip_prefix("file:") {
        return check.path_in(key("jwks"), text, path).map(Jwks::File);
    }
    if is_safe_url(value) {
        return Some(Jwks::Url(value.clone()));
    }
    let hint = "it takes \"https://…\", an http:// URL of this machine, or \"file:PATH\"";
    check.bad_value(key("jwks"), text.span().start, &format!("{value:?}"), hint);
    None
}

/// The files of TLS; `None` if the listener has none.
pub(super) fn tls(raw: &raw::Listen, check: &mut Checker<'_>) -> Option<TlsFiles> {
    match (&raw.tls.tls_cert, &raw.tls.tls_key) {
        (Some(cert), Some(secret)) => {
            let cert = check.path(key("tls_cert"), cert);
            Some(TlsFiles { key: check.path(key("tls_key"), secret)?, cert: cert? })
        }
        (Some(one), None) | (None, Some(one)) => {
            let what = "this [[listen]] has one of `tls_cert` and `tls_key`";
            check.problem(one.span().start, what, "write both, or none");
            None
        }
        (None, None) => None,
    }
}
