//! The tokens of logins, below `tokens` in the state directory: a file a server, and one for each
//! identity that has logged in for itself. Only the user of the daemon reads them.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::Hasher as _;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher24};

use crate::owned_file::{self, Secrecy, Unfit};
use crate::small_file;

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The tokens of one login, and the place that renews them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// URL of the server as it is configured; tokens go to no other.
    pub(crate) server: String,
    /// Identifier of the server at its authorization server.
    pub(crate) resource: String,
    pub(crate) issuer: String,
    pub(crate) token_endpoint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revocation_endpoint: Option<String>,
    pub(crate) client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_secret: Option<String>,
    /// Whether the secret goes into forms instead of a header.
    #[serde(default)]
    pub(crate) secret_in_form: bool,
    pub(crate) access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<String>,
    /// Seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<u64>,
    /// Seconds that its access token was granted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) granted_for: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("server", &self.server)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

/// The file of one login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginFile {
    path: PathBuf,
}

/// The right to renew the tokens of a file; other processes with the same file wait.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "its lock ends with it")] File);

impl LoginFile {
    /// The file of a server, for one identity or for all.
    pub(crate) fn of(state_dir: &Path, server: &str, identity: Option<&str>) -> Self {
        let mut hash = SipHasher24::new();
        for part in [server, identity.unwrap_or_default()] {
            hash.write_u64(part.len() as u64);
            hash.write(part.as_bytes());
        }
        let hash = hash.finish128();
        let name = format!("{:016x}{:016x}.json", hash.h1, hash.h2);
        Self { path: state_dir.join("tokens").join(name) }
    }

    /// The login, if there is one for this URL.
    ///
    /// # Errors
    /// If the file cannot be read, or another user may have written it.
    pub(crate) fn read(&self, url: &str) -> Result<Option<Login>, String> {
        let bytes = match owned_file::read(&self.path, Secrecy::Secret, FILE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(Unfit::Io(why)) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(format!("{}: {why}", self.path.display())),
        };
        let login: Login = serde_json::from_slice(&bytes)
            .map_err(|why| format!("{} is no login: {why}", self.path.display()))?;
        Ok(Some(login).filter(|login| login.server == url))
    }

    /// Writes the login, durably and at once.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write(&self, login: &Login) -> io::Result<()> {
        self.folder()?;
        small_file::replace(&self.path, &serde_json::to_vec_pretty(login)?)
    }

    /// Removes the login. False if there was none.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn remove(&self) -> io::Result<bool> {
        match fs::remove_file(&self.path) {
            Ok(()) => self.folder()?.sync_all().map(|()| true),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Waits until no other process renews these tokens: a refresh token can often be used once.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn hold(&self) -> io::Result<Held> {
        self.folder()?;
        let path = self.path.with_extension("lock");
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Held(file))
    }

    fn folder(&self) -> io::Result<File> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        File::open(folder)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn login() -> Login {
        Login {
            server: "https://h/mcp".into(),
            resource: "https://h/mcp".into(),
            issuer: "https://a".into(),
            token_endpoint: "https://a/token".into(),
            revocation_endpoint: None,
            client_id: "c".into(),
            client_secret: None,
            secret_in_form: false,
            access_token: "secret".into(),
            refresh_token: Some("secret".into()),
            expires_at: Some(5),
            granted_for: Some(5),
            scope: None,
        }
    }

    #[test]
    fn login_is_for_one_url_and_one_identity() {
        let dir = tempfile::tempdir().unwrap();
        let file = LoginFile::of(dir.path(), "s", Some("uid:1"));
        assert_eq!(file.read("https://h/mcp"), Ok(None));
        file.write(&login()).unwrap();
        assert_eq!(file.read("https://h/mcp"), Ok(Some(login())));
        assert_eq!(file.read("https://evil/mcp"), Ok(None));
        for (server, identity) in [("s", None), ("s", Some("uid:2")), ("suid:1", None)] {
            let other = LoginFile::of(dir.path(), server, identity);
            assert_eq!(other.read("https://h/mcp"), Ok(None), "{server} {identity:?}");
        }
        let mode = fs::metadata(&file.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let folder = fs::metadata(dir.path().join("tokens")).unwrap().permissions().mode();
        assert_eq!(folder & 0o777, 0o700);
        assert!(!format!("{:?}", login()).contains("secret"));
        assert!(file.remove().unwrap() && !file.remove().unwrap());
    }

    #[test]
    fn file_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = LoginFile::of(dir.path(), "s", None);
        file.write(&login()).unwrap();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(file.read("https://h/mcp").unwrap_err().contains("chmod"));
    }
}
