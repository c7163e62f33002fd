//! `ceased trust`: which `ceased.toml` files of projects may decide what runs.

use std::path::{Path, PathBuf};

use super::args::TrustArgs;
use super::format::{clean, table};
use super::{Exit, Failure, Io};
use crate::config::{Config, Environment};
use crate::trust_store::{Digest, PROJECT_FILE, TrustError, TrustStore};

impl From<TrustError> for Failure {
    fn from(error: TrustError) -> Self {
        Self::new(Exit::Failed, error.to_string())
    }
}

/// Runs the command.
pub(super) fn trust(args: &TrustArgs, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let store = TrustStore::of(&Environment::of_process())?;
    if args.list {
        return list(&store, io);
    }
    let named = args.file.as_deref().unwrap_or(Path::new(PROJECT_FILE));
    let path = resolved(named);
    if args.revoke {
        if !store.revoke(&path)? {
            let what = format!("{} was not trusted", path.display());
            return Err(Failure::new(Exit::Failed, format!("{what}\n`ceased trust --list` lists")));
        }
        io.say(&format!("{} is trusted no longer", path.display()));
        return Ok(Exit::Done);
    }
    let bytes = Config::read(&path)?;
    let config = Config::from_bytes(bytes.clone(), &path)?;
    let rows: Vec<Vec<String>> =
        config.tools.iter().map(|tool| vec![tool.name.clone(), tool.runs()]).collect();
    table(io.out, &rows)?;
    let digest = store.trust(&path, &bytes)?;
    let dir = path.parent().unwrap_or(&path).display();
    io.say(&format!(
        "{} is trusted as it is now (sha256 {digest}): `ceased stdio` offers these tools in {dir}",
        path.display()
    ));
    Ok(Exit::Done)
}

/// The path by which a file is trusted: absolute, without symbolic links. A file that is gone has
/// that of its directory.
fn resolved(named: &Path) -> PathBuf {
    let file = if named.is_dir() { named.join(PROJECT_FILE) } else { named.to_owned() };
    if let Ok(path) = file.canonicalize() {
        return path;
    }
    let absolute = std::path::absolute(&file).unwrap_or(file);
    match (absolute.parent().map(Path::canonicalize), absolute.file_name()) {
        (Some(Ok(dir)), Some(name)) => dir.join(name),
        _ => absolute,
    }
}

fn list(store: &TrustStore, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let trusted = store.read()?;
    if trusted.is_empty() {
        io.say("no file is trusted; `ceased trust` in a project trusts its ceased.toml");
    }
    let rows: Vec<Vec<String>> = trusted
        .iter()
        .map(|trusted| {
            let state = match Config::read(&trusted.path) {
                Ok(bytes) if Digest::of(&bytes) == trusted.sha256 => "trusted",
                Ok(_) => "changed",
                Err(_) if trusted.path.exists() => "refused",
                Err(_) => "missing",
            };
            let path = clean(&trusted.path.to_string_lossy()).into_owned();
            vec![state.to_owned(), trusted.sha256.to_string(), path]
        })
        .collect();
    table(io.out, &rows)?;
    Ok(Exit::Done)
}
