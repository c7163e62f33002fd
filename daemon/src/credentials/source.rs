//! Sources of the token of a server, and its renewal.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ceased_core::identity::Identity;

use super::discovery::discover;
use super::login_file::{Login, LoginFile};
use super::login_place::LoginPlace;
use super::reach::Reach;
use super::token_request::{Client, Granted, NoGrant, request};
use crate::owned_file::{self, Secrecy};
use crate::server_token::{Lack, Token, TokenAnswer};

/// Bytes of a file with a token or a secret.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// A token that expires sooner is renewed, or one in the last quarter of its life: a little before
/// its users ask for another one.
const RENEWED_BEFORE: Duration = Duration::from_secs(60);
const LAST_PART: u32 = 4;

/// The credentials of a program of its own (RFC 6749, 4.4).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) url: String,
    pub(crate) client_id: String,
    pub(crate) secret_file: PathBuf,
    pub(crate) scopes: Vec<String>,
    pub(crate) reach: Reach,
}

/// The logins for a server: the first that there is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Logins {
    /// Name of the server, for the command that is named.
    pub(crate) server: String,
    pub(crate) url: String,
    pub(crate) files: Vec<LoginFile>,
    pub(crate) reach: Reach,
}

/// The credentials of a server, for all identities.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// A file with the token alone.
    File(PathBuf),
    Program(Box<Program>),
    /// Logins, of all and of each identity.
    Logins(Box<LoginPlace>),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Program(_) => "Program",
            Self::Logins(_) => "Logins",
        })
    }
}

impl Credentials {
    /// The source of the tokens that are used for an identity.
    pub(crate) fn source(&self, identity: Option<&Identity>) -> Source {
        match self {
            Self::File(path) => Source::File(path.clone()),
            Self::Program(program) => Source::Program(program.clone()),
            Self::Logins(place) => {
                let LoginPlace { target, state_dir, reach } = &**place;
                let (server, url) = (&target.server, &target.url);
                let own = identity.map(ToString::to_string);
                let own = own.map(|own| LoginFile::of(state_dir, server, Some(&own)));
                let files = own.into_iter().chain([LoginFile::of(state_dir, server, None)]);
                let (server, url, reach) = (server.clone(), url.clone(), reach.clone());
                let files = files.collect();
                Source::Logins(Box::new(Logins { server, url, files, reach }))
            }
        }
    }
}

/// A source of tokens.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file with the token alone.
    File(PathBuf),
    Program(Box<Program>),
    Logins(Box<Logins>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Program(_) => "Program",
            Self::Logins(_) => "Logins",
        })
    }
}

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NoToken {
    /// There is no login.
    Missing(String),
    /// The token is refused, and no other can be had: a person has to act.
    Refused(String),
    /// It could not be renewed now.
    Failed(String),
}

impl From<NoToken> for Lack {
    fn from(no: NoToken) -> Self {
        let needs_login = !matches!(no, NoToken::Failed(_));
        match no {
            NoToken::Missing(why) | NoToken::Refused(why) | NoToken::Failed(why) => {
                Self { why, needs_login }
            }
        }
    }
}

impl Source {
    /// A token other than the one that was refused.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn obtain(&self, refused: Option<&str>) -> TokenAnswer {
        let answer = match self {
            Self::File(path) => of_file(path, refused),
            Self::Program(program) => program.obtain(),
            Self::Logins(logins) => logins.obtain(refused),
        };
        Ok(answer?)
    }
}

/// The only word of a file that only its owner reads.
pub(crate) fn secret_word(path: &std::path::Path) -> Result<String, String> {
    let place = path.display();
    let bytes = owned_file::read(path, Secrecy::Secret, FILE_BYTES_MAX);
    let bytes = bytes.map_err(|why| format!("{place}: {why}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{place} is not UTF-8"))?;
    let word = text.trim();
    let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
    is_word.then(|| word.to_owned()).ok_or_else(|| format!("{place} must have one word alone"))
}

fn of_file(path: &std::path::Path, refused: Option<&str>) -> Result<Token, NoToken> {
    let text = secret_word(path).map_err(NoToken::Failed)?;
    if refused == Some(&*text) {
        let why = format!("the token in {} is refused: write a new one there", path.display());
        return Err(NoToken::Refused(why));
    }
    Ok(Token { text, expires_in: None })
}

impl Program {
    fn obtain(&self) -> Result<Token, NoToken> {
        let secret = secret_word(&self.secret_file).map_err(NoToken::Failed)?;
        let found = discover(&self.url, &self.reach).map_err(NoToken::Failed)?;
        let methods = &found.authorization.token_endpoint_auth_methods_supported;
        let in_form = prefers_form(methods);
        let client = Client { id: &self.client_id, secret: Some(&secret), in_form };
        let scope = match self.scopes.is_empty() {
            true => found.scope.clone().unwrap_or_default(),
            false => self.scopes.join(" "),
        };
        let mut fields = vec![("grant_type", "client_credentials"), ("resource", &*found.resource)];
        if !scope.is_empty() {
            fields.push(("scope", &scope));
        }
        let granted = request(&self.reach, &found.authorization.token_endpoint, client, &fields);
        granted.map(token_of).map_err(|why| match why {
            NoGrant::Refused(why) => NoToken::Refused(format!(
                "the authorization server refuses client {:?}: {why}",
                self.client_id
            )),
            NoGrant::Failed(why) => NoToken::Failed(why),
        })
    }
}

/// Whether a secret goes into the form, as far as an authorization server tells.
pub(super) fn prefers_form(methods: &[String]) -> bool {
    let has = |name: &str| methods.iter().any(|method| method == name);
    has("client_secret_post") && !has("client_secret_basic")
}

fn token_of(granted: Granted) -> Token {
    let expires_in = granted.expires_in.map(Duration::from_secs);
    Token { text: granted.access_token, expires_in }
}

impl Logins {
    fn obtain(&self, refused: Option<&str>) -> Result<Token, NoToken> {
        for file in &self.files {
            if let Some(login) = file.read(&self.url).map_err(NoToken::Failed)? {
                return match usable(&login, refused) {
                    Some(token) => Ok(token),
                    None => self.renew(file, refused),
                };
            }
        }
        let name = &self.server;
        Err(NoToken::Missing(format!("there is no login: run `ceased login {name}`")))
    }

    /// Renews a token, once for all users of the file.
    fn renew(&self, file: &LoginFile, refused: Option<&str>) -> Result<Token, NoToken> {
        let failed = |why: String| NoToken::Failed(why);
        let _held = file.hold().map_err(|why| failed(format!("cannot lock the tokens: {why}")))?;
        let again = || format!("run `ceased login {}` again", self.server);
        let login = file.read(&self.url).map_err(NoToken::Failed)?;
        let Some(mut login) = login else { return Err(NoToken::Missing(again())) };
        // Another process may have renewed it meanwhile.
        if let Some(token) = usable(&login, refused) {
            return Ok(token);
        }
        let Some(refresh) = login.refresh_token.clone() else {
            let why = format!("the login has expired, and cannot be renewed: {}", again());
            return Err(NoToken::Refused(why));
        };
        // A full disk is found before the refresh token, which often serves once, is used up.
        file.write(&login).map_err(|why| failed(format!("cannot keep new tokens: {why}")))?;
        let (secret, in_form) = (login.client_secret.as_deref(), login.secret_in_form);
        let client = Client { id: &login.client_id, secret, in_form };
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", &*refresh),
            ("resource", &*login.resource),
        ];
        let granted = request(&self.reach, &login.token_endpoint, client, &fields);
        let granted = granted.map_err(|why| match why {
            NoGrant::Refused(why) => {
                NoToken::Refused(format!("the login has ended ({why}): {}", again()))
            }
            NoGrant::Failed(why) => failed(format!("the token could not be renewed: {why}")),
        })?;
        login.take(&granted);
        file.write(&login).map_err(|why| failed(format!("cannot keep the new tokens: {why}")))?;
        Ok(token_of(granted))
    }
}

impl Login {
    /// Notes new tokens. A refresh token stays, unless a new one is given.
    pub(super) fn take(&mut self, granted: &Granted) {
        self.access_token.clone_from(&granted.access_token);
        if granted.refresh_token.is_some() {
            self.refresh_token.clone_from(&granted.refresh_token);
        }
        if granted.scope.is_some() {
            self.scope.clone_from(&granted.scope);
        }
        self.granted_for = granted.expires_in;
        self.expires_at = granted.expires_in.map(|seconds| unix_now().saturating_add(seconds));
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The token of a login, unless it was refused or is about to expire.
fn usable(login: &Login, refused: Option<&str>) -> Option<Token> {
    let expires_in = login.expires_at.map(|at| Duration::from_secs(at.saturating_sub(unix_now())));
    // One that cannot be renewed is used to its end.
    let life = login.granted_for.map_or(Duration::MAX, Duration::from_secs);
    let least = match login.refresh_token {
        Some(_) => RENEWED_BEFORE.min(life / LAST_PART),
        None => Duration::ZERO,
    };
    let is_fresh = expires_in.is_none_or(|left| left > least);
    let is_good = is_fresh && refused != Some(&*login.access_token);
    is_good.then(|| Token { text: login.access_token.clone(), expires_in })
}
