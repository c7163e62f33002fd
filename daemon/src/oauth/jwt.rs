//! The check of one token (AUTH-02, RFC 8725): its form before its key, its key before its claims.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ceased_core::policy::allow::Grants;
use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::key_set::Key;

/// Size limit of a token.
const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Size limit of its header, encoded.
const HEADER_BYTES_MAX: usize = 1400;
/// Clock skew between this machine and an issuer.
pub(super) const LEEWAY: Duration = Duration::from_secs(30);
/// Bytes of a subject and of an issuer together: they are an identity in tables and logs.
const SUBJECT_BYTES_MAX: usize = 512;
/// Bytes of an id or a client in records.
const NAME_BYTES_MAX: usize = 128;
/// Groups and scopes of one token at most.
const GRANTS_MAX: usize = 256;

/// The latest end of a token that is taken as it is: in the year 2242.
const MOMENT_MAX: f64 = 8.6e9;

/// Types of tokens: an id token of OpenID Connect has `JWT` as well, and is told by its audience.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// Flaw of a token that was good: its signature is checked before its time.
pub(super) const EXPIRED: &str = "the token has expired";

/// The claims of a token that was accepted.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) subject: Arc<str>,
    pub(super) grants: Arc<Grants>,
    /// Seconds since 1970.
    pub(super) expires: u64,
    pub(super) client: Option<Box<str>>,
    pub(super) id: Option<Box<str>>,
}

/// A token whose signature is not checked yet.
pub(super) struct Unverified<'t> {
    token: &'t str,
    pub(super) header: Header,
    pub(super) issuer: String,
}

/// Whether a text has the form of a signed token; tokens of a file have it not.
pub(super) fn is_signed(token: &str) -> bool {
    token.split('.').count() == 3
}

/// Reads the form of a token.
///
/// # Errors
/// Its flaw.
pub(super) fn read(token: &str) -> Result<Unverified<'_>, &'static str> {
    #[derive(Deserialize)]
    struct OfIssuer {
        iss: String,
    }
    let head = token.split('.').next().unwrap_or_default();
    if token.len() > TOKEN_BYTES_MAX || head.len() > HEADER_BYTES_MAX {
        return Err("the token is too long");
    }
    let header = decode_header(token).map_err(|_| "the header of the token cannot be used")?;
    if header.crit.is_some() {
        return Err("the token has critical extensions");
    }
    if header.jku.is_some() || header.x5u.is_some() || header.jwk.is_some() {
        return Err("the token brings its own key");
    }
    let is_known = |kind: &String| TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known));
    if !header.typ.as_ref().is_none_or(is_known) {
        return Err("the token is of another type");
    }
    let OfIssuer { iss } =
        insecure_decode_claims(token).map_err(|_| "the token names no issuer")?;
    Ok(Unverified { token, header, issuer: iss })
}

impl Unverified<'_> {
    /// Checks signature and claims. Every knob of the library is turned here.
    ///
    /// # Errors
    /// The flaw of the token.
    pub(super) fn verify(
        &self,
        key: &Key,
        audience: &[String],
        groups_claim: &str,
        now: SystemTime,
    ) -> Result<Claims, &'static str> {
        // The key allows this algorithm: it was found by it.
        let mut validation = Validation::new(self.header.alg);
        validation.algorithms = vec![self.header.alg];
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.leeway = LEEWAY.as_secs();
        validation.reject_tokens_expiring_in_less_than = 0;
        validation.validate_exp = true;
        validation.validate_nbf = true;
        validation.validate_aud = true;
        validation.set_audience(audience);
        validation.set_issuer(&[&self.issuer]);
        validation.sub = None;
        let decoded = decode::<Map<String, Value>>(self.token, &key.key, &validation);
        let claims = decoded.map_err(|why| in_words(why.kind()))?.claims;
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let time = |name: &str| claims.get(name).map(Value::as_f64);
        match time("iat") {
            None => {}
            Some(Some(issued)) if issued <= seconds + LEEWAY.as_secs_f64() => {}
            Some(_) => return Err("the token is from the future"),
        }
        let expires = time("exp").flatten().ok_or("the token has no end")?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        // A list of issuers is none of an issuer.
        let issuer = text("iss").filter(|it| *it == self.issuer);
        let (Some(issuer), Some(subject)) = (issuer, text("sub")) else {
            return Err("the token names no issuer or no subject");
        };
        let subject = format!("{issuer}#{subject}");
        let is_plain = !subject.chars().any(char::is_control) && !subject.ends_with('#');
        if subject.len() > SUBJECT_BYTES_MAX || !is_plain {
            return Err("the subject of the token cannot be used");
        }
        let name = |names: &[&str]| {
            let found = names.iter().find_map(|name| text(name));
            found.map(|it| it.chars().take(NAME_BYTES_MAX).collect::<String>().into())
        };
        let scopes = words(claims.get("scope")).into_iter().chain(words(claims.get("scp")));
        Ok(Claims {
            grants: Arc::new(Grants {
                groups: list(claims.get(groups_claim)).into_iter().take(GRANTS_MAX).collect(),
                scopes: scopes.take(GRANTS_MAX).collect(),
            }),
            subject: subject.into(),
            // A fraction ends with its second.
            expires: expires.clamp(0.0, MOMENT_MAX) as u64,
            client: name(&["client_id", "azp", "appid"]),
            id: name(&["jti", "uti"]),
        })
    }
}

/// The words of a text, or the texts of a list.
fn words(value: Option<&Value>) -> BTreeSet<Box<str>> {
    match value.and_then(Value::as_str) {
        Some(text) => text.split_ascii_whitespace().map(Into::into).collect(),
        None => list(value),
    }
}

/// The texts of a list, or one text.
fn list(value: Option<&Value>) -> BTreeSet<Box<str>> {
    let one = value.and_then(Value::as_str);
    let many = value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    one.into_iter().chain(many).map(Into::into).collect()
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "an enum of another package, which may have more variants"
)]
fn in_words(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => EXPIRED,
        ErrorKind::ImmatureSignature => "the token is not valid yet",
        ErrorKind::InvalidAudience => "the token is for another audience",
        ErrorKind::InvalidIssuer => "the token is of another issuer",
        ErrorKind::MissingRequiredClaim(_) => "the token lacks exp, iss, aud or sub",
        ErrorKind::InvalidSignature => "the signature of the token is wrong",
        _ => "the token cannot be used",
    }
}
