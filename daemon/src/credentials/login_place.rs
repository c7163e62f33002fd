//! The place of the logins at a server by URL: the facts that one needs, the tokens that are kept,
//! and its end.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::login_file::{Login, LoginFile};
use super::reach::{Reach, form};
use crate::config::TlsFiles;

/// The place of the logins at a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginPlace {
    pub(crate) target: LoginTarget,
    pub(crate) state_dir: PathBuf,
    pub(crate) reach: Reach,
}

/// The facts that a login needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoginTarget {
    /// Name of the server.
    pub(crate) server: String,
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) client_id: Option<String>,
    #[serde(default)]
    pub(crate) client_secret_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) client_metadata: Option<String>,
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
    #[serde(default)]
    pub(crate) ca_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) client: Option<TlsFiles>,
    #[serde(default)]
    pub(crate) allow_private: bool,
}

/// The end of a login.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ended {
    /// Whether there was one.
    pub(crate) removed: bool,
    /// Why the authorization server may go on to take its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revocation_error: Option<String>,
}

impl LoginPlace {
    /// Whether tokens may be kept: they are for this URL, and renewed where the server may lead.
    ///
    /// # Errors
    /// Their flaw.
    pub(crate) fn permits(&self, login: &Login) -> Result<(), String> {
        let url = &self.target.url;
        if login.server != *url {
            return Err(format!("the login is for {:?}, not for {url:?}", login.server));
        }
        let is_sendable = login.access_token.bytes().all(|byte| byte.is_ascii_graphic());
        if login.access_token.is_empty() || !is_sendable {
            return Err("the login has no token that can be sent".to_owned());
        }
        let places = [Some(&login.token_endpoint), login.revocation_endpoint.as_ref()];
        places.into_iter().flatten().try_for_each(|place| self.reach.server(place).map(drop))
    }

    /// Ends a login: at the authorization server, if that can be reached, and here.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn end(&self, file: &LoginFile) -> io::Result<Ended> {
        let _held = file.hold()?;
        let login = file.read(&self.target.url).ok().flatten();
        let revoked = login.map(|login| revoke(&login, &self.reach));
        let removed = file.remove()?;
        Ok(Ended { removed, revocation_error: revoked.and_then(Result::err) })
    }
}

/// Ends the tokens of a login at the authorization server (RFC 7009).
fn revoke(login: &Login, reach: &Reach) -> Result<(), String> {
    let Some(place) = &login.revocation_endpoint else {
        return Err(format!("{} revokes no tokens", login.issuer));
    };
    let token = login.refresh_token.as_ref().unwrap_or(&login.access_token);
    let body = form(&[("token", token), ("client_id", &login.client_id)]);
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    let answer = reach.send(place, "POST", &headers, &body)?;
    match answer.head.status {
        200..=299 => Ok(()),
        status => Err(format!("{place} answers HTTP {status}")),
    }
}
