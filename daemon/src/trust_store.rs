//! Project configurations that their user trusts, by path and content.
//!
//! A `ceased.toml` is part of a checkout and contains commands. So it is used only after its user
//! has reviewed it and run `ceased trust`. The store keeps the SHA-256 of the content: a changed
//! file must be trusted again.

use std::fmt::{self, Write as _};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::config::Environment;
use crate::owned_file::{self, Secrecy, Unfit};
use crate::small_file;

/// Name of the configuration of a project, in its top directory.
pub(crate) const PROJECT_FILE: &str = "ceased.toml";
/// Size limit of the store: thousands of projects.
const STORE_BYTES_MAX: u64 = 1024 * 1024;
/// Maximum number of trusted files.
const TRUSTED_MAX: usize = 4096;
/// Number of digits of a digest shown in messages.
const DIGITS_SHOWN: usize = 12;

/// SHA-256 of a file, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Digest(String);

impl Digest {
    /// The digest of this content.
    pub(crate) fn of(content: &[u8]) -> Self {
        let mut digits = String::with_capacity(64);
        for byte in Sha256::digest(content) {
            // Writing to a String cannot fail.
            let _ = write!(digits, "{byte:02x}");
        }
        Self(digits)
    }
}

impl fmt::Display for Digest {
    /// The first digits, which distinguish versions of a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get(..DIGITS_SHOWN).unwrap_or(&self.0))
    }
}

/// A trusted file: one line of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trusted {
    /// Its absolute path without symbolic links.
    pub(crate) path: PathBuf,
    /// The trusted content.
    pub(crate) sha256: Digest,
}

/// Trust state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This content is trusted.
    Trusted,
    /// Another content is trusted.
    Changed,
    /// It is not trusted.
    Unknown,
}

/// Why the store, or a file to trust, cannot be used.
#[derive(Debug)]
pub(crate) struct TrustError(String);

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TrustError {
    fn new(what: &str, path: &Path, why: impl fmt::Display) -> Self {
        Self(format!("cannot {what} ({}): {why}", path.display()))
    }
}

/// The store of one user: a file of mode 0600 in the state directory of that user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrustStore {
    path: PathBuf,
}

impl TrustStore {
    /// The store of the user with this environment.
    ///
    /// # Errors
    /// If there is no home directory.
    pub(crate) fn of(environment: &Environment) -> Result<Self, TrustError> {
        let dir = environment.user_state_dir().ok_or_else(|| {
            TrustError("trust is kept in ~/.local/state/ceased, and $HOME is not set".into())
        })?;
        Ok(Self { path: dir.join("trusted.jsonl") })
    }

    /// Every trusted file, in the order of their paths.
    ///
    /// # Errors
    /// If another user can have written the store, or it is damaged.
    pub(crate) fn read(&self) -> Result<Vec<Trusted>, TrustError> {
        let fail = |why: String| TrustError::new("read the list of trusted files", &self.path, why);
        let bytes = match owned_file::read(&self.path, Secrecy::Secret, STORE_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(Unfit::Io(why)) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(fail(why.to_string())),
        };
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let trusted = lines.map(serde_json::from_slice).collect::<Result<Vec<Trusted>, _>>();
        trusted.map_err(|why| fail(format!("{why}; remove it and trust your projects again")))
    }

    /// Whether this content of a file is trusted.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn verdict(&self, path: &Path, content: &[u8]) -> Result<Verdict, TrustError> {
        let trusted = self.read()?;
        Ok(match trusted.iter().find(|trusted| trusted.path == path) {
            None => Verdict::Unknown,
            Some(trusted) if trusted.sha256 == Digest::of(content) => Verdict::Trusted,
            Some(_) => Verdict::Changed,
        })
    }

    /// Trusts this content of a file instead of any other.
    ///
    /// # Errors
    /// If the store cannot be written, or is full.
    pub(crate) fn trust(&self, path: &Path, content: &[u8]) -> Result<Digest, TrustError> {
        let sha256 = Digest::of(content);
        let _lock = self.lock()?;
        let mut all = self.read()?;
        all.retain(|trusted| trusted.path != path);
        if all.len() >= TRUSTED_MAX {
            let why = format!(
                "it has {TRUSTED_MAX} files, which is the limit; `ceased trust --revoke FILE` makes \
                 room"
            );
            return Err(TrustError::new("trust one more file", &self.path, why));
        }
        all.push(Trusted { path: path.to_owned(), sha256: sha256.clone() });
        self.write(all)?;
        Ok(sha256)
    }

    /// Removes a file from the store; false if it was not trusted.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub(crate) fn revoke(&self, path: &Path) -> Result<bool, TrustError> {
        let _lock = self.lock()?;
        let mut all = self.read()?;
        let before = all.len();
        all.retain(|trusted| trusted.path != path);
        let was_there = all.len() < before;
        if was_there {
            self.write(all)?;
        }
        Ok(was_there)
    }

    /// Locks the store, so that concurrent writers do not lose entries.
    fn lock(&self) -> Result<File, TrustError> {
        let path = self.path.with_extension("lock");
        let fail = |why: io::Error| TrustError::new("lock the list of trusted files", &path, why);
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
        }
        let file = options().truncate(false).open(&path).map_err(fail)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|why| fail(why.into()))?;
        Ok(file)
    }

    /// Replaces the file atomically: readers see the old or the new list.
    fn write(&self, mut all: Vec<Trusted>) -> Result<(), TrustError> {
        let fail =
            |why: io::Error| TrustError::new("write the list of trusted files", &self.path, why);
        all.sort_by(|one, other| one.path.cmp(&other.path));
        let mut text = Vec::new();
        for trusted in &all {
            serde_json::to_writer(&mut text, trusted).map_err(|why| fail(why.into()))?;
            text.push(b'\n');
        }
        small_file::replace(&self.path, &text).map_err(fail)
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn store(dir: &Path) -> TrustStore {
        TrustStore { path: dir.join("state/ceased/trusted.jsonl") }
    }

    #[test]
    fn sha256_is_the_standard_one() {
        let digest = Digest::of(b"abc");
        assert_eq!(digest.0, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(digest.to_string(), "ba7816bf8f01");
    }

    #[test]
    fn content_is_trusted_until_it_changes_or_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        let (one, two) = (Path::new("/p/one/ceased.toml"), Path::new("/p/two/ceased.toml"));
        assert_eq!(store.verdict(one, b"a").unwrap(), Verdict::Unknown);
        store.trust(one, b"a").unwrap();
        assert_eq!(store.verdict(one, b"a").unwrap(), Verdict::Trusted);
        assert_eq!(store.verdict(one, b"b").unwrap(), Verdict::Changed);
        // The same content at another path is not trusted.
        assert_eq!(store.verdict(two, b"a").unwrap(), Verdict::Unknown);
        store.trust(one, b"b").unwrap();
        assert_eq!(store.verdict(one, b"a").unwrap(), Verdict::Changed);
        store.trust(two, b"c").unwrap();
        assert_eq!(store.read().unwrap().len(), 2);
        assert!(store.revoke(one).unwrap() && !store.revoke(one).unwrap());
        assert_eq!(store.verdict(one, b"b").unwrap(), Verdict::Unknown);
        assert_eq!(store.verdict(two, b"c").unwrap(), Verdict::Trusted);
        let mode = fs::metadata(&store.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn store_accessible_to_others_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        store.trust(Path::new("/p"), b"a").unwrap();
        for mode in [0o602, 0o604] {
            fs::set_permissions(&store.path, fs::Permissions::from_mode(mode)).unwrap();
            let why = store.verdict(Path::new("/p"), b"a").unwrap_err().to_string();
            assert!(why.contains("chmod"), "{why}");
        }
        fs::set_permissions(&store.path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&store.path, "{}\n").unwrap();
        let why = store.read().unwrap_err().to_string();
        assert!(why.contains("trust your projects again"), "{why}");
    }
}
