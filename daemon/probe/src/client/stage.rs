//! The place where scripted servers meet the probe: a socket in a folder of its own, and the command
//! line of the server, as a client takes it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use serde_json::json;

/// Placeholder of the server's command line.
const SERVER: &[u8] = b"{server}";
/// Placeholder of the path of a file with an `mcpServers` object.
const CONFIG: &[u8] = b"{config}";

/// A folder with a socket. Dropping it removes the folder.
#[derive(Debug)]
pub(super) struct Stage {
    folder: PathBuf,
    pub(super) listener: UnixListener,
    /// The server's command line, by words.
    server: Vec<OsString>,
}

impl Stage {
    pub(super) fn new() -> io::Result<Self> {
        let name = format!("ceased-probe-{}", uuid::Uuid::new_v4().simple());
        let folder = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&folder)?;
        let socket = folder.join("s");
        let listener =
            UnixListener::bind(&socket).inspect_err(|_| drop(fs::remove_dir(&folder)))?;
        let program = std::env::current_exe()?.into_os_string();
        let server = vec![program, "probe-server".into(), socket.into_os_string()];
        let stage = Self { folder, listener, server };
        stage.listener.set_nonblocking(true)?;
        let words: Vec<_> = stage.server.iter().map(|word| word.to_string_lossy()).collect();
        let entry = json!({"command": words[0], "args": words[1..]});
        fs::write(stage.config(), json!({"mcpServers": {"probe": entry}}).to_string())?;
        Ok(stage)
    }

    fn config(&self) -> PathBuf {
        self.folder.join("mcp.json")
    }

    /// The server's command line for a shell.
    fn line(&self) -> OsString {
        let quoted = self.server.iter().map(|word| {
            let mut out = vec![b'\''];
            for byte in word.as_bytes() {
                match byte {
                    b'\'' => out.extend(br"'\''"),
                    byte => out.push(*byte),
                }
            }
            out.push(b'\'');
            out
        });
        OsString::from_vec(quoted.collect::<Vec<_>>().join(&b' '))
    }

    /// The command with its placeholders replaced. `{server}` as a whole argument becomes the words of
    /// the command line, within an argument their text for a shell.
    pub(super) fn fill(&self, command: &[OsString]) -> Vec<OsString> {
        let mut filled = Vec::new();
        for word in command {
            if word.as_bytes() == SERVER {
                filled.extend(self.server.iter().cloned());
                continue;
            }
            let with_server = replace(word.as_bytes(), SERVER, &self.line());
            let config = self.config().into_os_string();
            filled.push(OsString::from_vec(replace(&with_server, CONFIG, &config)));
        }
        filled
    }

    /// The same for a client that reads its environment.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("CEASED_PROBE_SERVER".into(), self.line()),
            ("CEASED_PROBE_CONFIG".into(), self.config().into_os_string()),
        ]
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A text with every occurrence of a placeholder replaced.
fn replace(text: &[u8], placeholder: &[u8], with: &OsStr) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text);
    while let Some(at) = memchr::memmem::find(rest, placeholder) {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        out.extend_from_slice(with.as_bytes());
        rest = rest.get(at + placeholder.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_words_text_and_a_file() {
        let stage = Stage::new().unwrap();
        let command = ["client", "{server}", "--run={server}", "{config}"].map(OsString::from);
        let filled = stage.fill(&command);
        assert_eq!(filled[1..4], stage.server[..]);
        assert_eq!(filled[4], OsString::from(format!("--run={}", stage.line().display())));
        let config: serde_json::Value =
            serde_json::from_slice(&fs::read(&filled[5]).unwrap()).unwrap();
        assert_eq!(config["mcpServers"]["probe"]["args"][0], "probe-server");
        let folder = stage.folder.clone();
        drop(stage);
        assert!(!folder.exists());
    }
}
