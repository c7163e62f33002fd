//! Requests for tokens (RFC 6749).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::reach::{Reach, encode, form};

/// Bytes of an error text that are shown.
const SHOWN: usize = 200;

/// The client at an authorization server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client<'a> {
    pub(super) id: &'a str,
    pub(super) secret: Option<&'a str>,
    /// Whether the secret goes into the form instead of a header.
    pub(super) in_form: bool,
}

/// Tokens as they were granted.
#[derive(Deserialize)]
pub(super) struct Granted {
    pub(super) access_token: String,
    #[serde(default)]
    pub(super) token_type: Option<String>,
    #[serde(default)]
    pub(super) expires_in: Option<u64>,
    #[serde(default)]
    pub(super) refresh_token: Option<String>,
    #[serde(default)]
    pub(super) scope: Option<String>,
}

/// Why no token was granted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoGrant {
    /// It was refused with this code and text: another request like it is refused, too.
    Refused(String),
    /// There is no usable answer; a later request may have one.
    Failed(String),
}

impl NoGrant {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Refused(why) | Self::Failed(why) => why,
        }
    }
}

#[derive(Deserialize)]
struct Refused {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

/// Asks for tokens.
///
/// # Errors
/// [`NoGrant`].
pub(super) fn request(
    reach: &Reach,
    endpoint: &str,
    client: Client<'_>,
    fields: &[(&str, &str)],
) -> Result<Granted, NoGrant> {
    let mut fields = fields.to_vec();
    let mut authorization = None;
    match client.secret {
        Some(secret) if !client.in_form => {
            let pair = format!("{}:{}", encode(client.id), encode(secret));
            authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
        }
        Some(secret) => fields.extend([("client_id", client.id), ("client_secret", secret)]),
        None => fields.push(("client_id", client.id)),
    }
    let mut headers =
        vec![("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json")];
    headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
    let answer = reach.send(endpoint, "POST", &headers, &form(&fields)).map_err(NoGrant::Failed)?;
    read(endpoint, answer.head.status, &answer.body)
}

fn read(endpoint: &str, status: u16, body: &[u8]) -> Result<Granted, NoGrant> {
    if !matches!(status, 200..=299) {
        let refused: Option<Refused> = serde_json::from_slice(body).ok();
        return Err(match refused.filter(|_| matches!(status, 400..=499)) {
            Some(refused) => {
                let told = refused.error_description.unwrap_or_default();
                let told: String = told.chars().take(SHOWN).collect();
                let error: String = refused.error.chars().take(SHOWN).collect();
                let colon = if told.is_empty() { "" } else { ": " };
                NoGrant::Refused(format!("{error}{colon}{told}"))
            }
            None => NoGrant::Failed(format!("{endpoint} answers HTTP {status}")),
        });
    }
    let granted: Granted = serde_json::from_slice(body)
        .map_err(|_| NoGrant::Failed(format!("{endpoint} answers without an access token")))?;
    let is_bearer =
        granted.token_type.as_deref().is_none_or(|it| it.eq_ignore_ascii_case("bearer"));
    let is_sendable = granted.access_token.bytes().all(|byte| byte.is_ascii_graphic());
    match is_bearer && is_sendable && !granted.access_token.is_empty() {
        true => Ok(granted),
        false => {
            Err(NoGrant::Failed(format!("{endpoint} grants another kind of token than Bearer")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_strictly() {
        let read = |status, body: &str| read("E", status, body.as_bytes()).map(|it| it.expires_in);
        assert_eq!(
            read(200, r#"{"access_token":"a","expires_in":5,"token_type":"bearer"}"#),
            Ok(Some(5))
        );
        let refused = NoGrant::Refused("invalid_grant: gone".into());
        let told = r#"{"error":"invalid_grant","error_description":"gone"}"#;
        assert_eq!(read(400, told), Err(refused));
        for (status, body) in [
            (500, told),
            (400, "<html>"),
            (200, "{}"),
            (200, r#"{"access_token":""}"#),
            (200, r#"{"access_token":"a\nb"}"#),
            (200, r#"{"access_token":"a","token_type":"mac"}"#),
        ] {
            assert!(matches!(read(status, body), Err(NoGrant::Failed(_))), "{status} {body}");
        }
    }
}
