//! The last good keys of issuers in the state directory, so that a daemon that starts while an issuer is
//! away takes its tokens (AUTH-02).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::key_set::KeySet;
use crate::owned_file::{self, Secrecy};
use crate::small_file;

/// Size limit of a file: that of a key set.
const BYTES_MAX: u64 = 256 * 1024;
/// Files at most; the ones written longest ago are removed first.
const FILES_MAX: usize = 64;

/// The file of the keys of one issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptKeys {
    path: PathBuf,
}

impl KeptKeys {
    /// The file of this name below a state directory.
    pub(super) fn of(state_dir: &Path, name: &str) -> Self {
        Self { path: state_dir.join("issuer-keys").join(name) }
    }

    /// The set and its age, if it is there and not from the future.
    pub(super) fn load(&self) -> Option<(KeySet, Duration)> {
        match self.read() {
            Ok(read) => Some(read),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "the kept keys of an issuer cannot be used");
                None
            }
        }
    }

    fn read(&self) -> io::Result<(KeySet, Duration)> {
        let age = SystemTime::now().duration_since(fs::metadata(&self.path)?.modified()?);
        let age = age.map_err(|_| io::Error::other("it is from the future"))?;
        // Keys of another user would be an issuer of that user.
        let text = owned_file::read(&self.path, Secrecy::Public, BYTES_MAX);
        let text = text.map_err(|why| io::Error::other(why.to_string()))?;
        Ok((KeySet::read(&text).map_err(io::Error::other)?, age))
    }

    /// Keeps the text of a set; its time is that of the file.
    pub(super) fn save(&self, text: &[u8]) {
        if let Err(error) = self.write(text) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "cannot keep the keys of an issuer");
        }
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        let Some(dir) = self.path.parent() else { return Ok(()) };
        // The state directory is there; without it nothing is kept.
        small_file::replace(&self.path, text)?;
        small_file::remove_oldest(dir, FILES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    /// AUTH-02: keys are read back with their age; a damaged file is none.
    #[test]
    fn keys_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptKeys::of(dir.path(), "a.json");
        assert!(kept.load().is_none());
        kept.save(SET.as_bytes());
        let (set, age) = kept.load().unwrap();
        assert!(set.knows(Some("a")) && age < Duration::from_secs(60));
        let file = fs::File::options().write(true).open(&kept.path).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
        assert!(kept.load().is_none(), "keys from the future");
        fs::write(&kept.path, "{").unwrap();
        assert!(kept.load().is_none());
        let nowhere = KeptKeys::of(&dir.path().join("none"), "a.json");
        nowhere.save(SET.as_bytes());
        assert!(nowhere.load().is_none());
    }
}
