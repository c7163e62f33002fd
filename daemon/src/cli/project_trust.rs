//! `ceased trust`: trust in the `ceased.toml` files of projects.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::args::TrustArgs;
use super::format::{self, clean, table};
use super::{Exit, Failure, Io};
use crate::config::{Config, Environment};
use crate::trust_store::{Digest, PROJECT_FILE, TrustError, TrustStore, Trusted};

impl From<TrustError> for Failure {
    fn from(error: TrustError) -> Self {
        Self::new(Exit::Failed, error.to_string())
    }
}

/// Runs the command.
pub(super) fn trust(args: &TrustArgs, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let store = TrustStore::of(&Environment::of_process())?;
    if args.list {
        return list(&store, args.json, io);
    }
    let named = args.file.as_deref().unwrap_or(Path::new(PROJECT_FILE));
    let path = resolved(named);
    if args.revoke {
        if !store.revoke(&path)? {
            let what = format!("{} was not trusted", path.display());
            return Err(Failure::new(Exit::Failed, format!("{what}\n`ceased trust --list` lists")));
        }
        io.say(&format!("{} is trusted no longer", path.display()));
        if args.json {
            let document = json!({"path": path.to_string_lossy(), "state": "unknown"});
            format::json(&document, io)?;
        }
        return Ok(Exit::Done);
    }
    let bytes = match args.file {
        Some(_) => Config::read(&path)?,
        None => Config::read_found(&path)?,
    };
    let config = Config::from_bytes(bytes.clone(), &path)?;
    let rows = config.differences_in_words(&Config::parse("", &path)?);
    let digest = store.trust(&path, &bytes)?;
    if args.json {
        let part = |name: &str, runs: String| json!({"name": name, "runs": runs});
        let tools = config.tools.iter().map(|tool| part(&tool.name, tool.runs()));
        let servers = config.servers.iter().map(|server| part(&server.name, server.runs()));
        let agents = config.agents.iter().map(|agent| part(&agent.name, agent.runs()));
        let settings = rows.iter().map(|(name, text)| json!({"name": name, "text": text}));
        let path = path.to_string_lossy();
        let document = json!({
            "path": path,
            "state": "trusted",
            "sha256": digest,
            "tools": tools.collect::<Vec<_>>(),
            "servers": servers.collect::<Vec<_>>(),
            "agents": agents.collect::<Vec<_>>(),
            "settings": settings.collect::<Vec<_>>(),
        });
        format::json(&document, io)?;
    } else {
        let rows: Vec<Vec<String>> =
            rows.into_iter().map(|(name, text)| vec![name, text]).collect();
        table(io.out, &rows)?;
    }
    let dir = path.parent().unwrap_or(&path).display();
    io.say(&format!(
        "{} is trusted as it is now (sha256 {digest}): `ceased stdio` offers these tools in {dir}",
        path.display()
    ));
    Ok(Exit::Done)
}

/// The canonical path of a file to trust: absolute, without symbolic links. For a missing file,
/// derived from its directory.
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

fn list(store: &TrustStore, json: bool, io: &mut Io<'_>) -> Result<Exit, Failure> {
    let trusted = store.read()?;
    if trusted.is_empty() {
        io.say("no file is trusted; `ceased trust` in a project trusts its ceased.toml");
    }
    let states: Vec<(&str, &Trusted)> = trusted
        .iter()
        .map(|trusted| {
            let state = match Config::read_found(&trusted.path) {
                Ok(bytes) if Digest::of(&bytes) == trusted.sha256 => "trusted",
                Ok(_) => "changed",
                Err(_) if trusted.path.exists() => "refused",
                Err(_) => "missing",
            };
            (state, trusted)
        })
        .collect();
    if json {
        let entry = |(state, trusted): &(&str, &Trusted)| {
            let path = trusted.path.to_string_lossy();
            json!({"path": path, "state": state, "sha256": trusted.sha256})
        };
        format::json(&states.iter().map(entry).collect(), io)?;
        return Ok(Exit::Done);
    }
    let row = |(state, trusted): &(&str, &Trusted)| {
        let path = clean(&trusted.path.to_string_lossy()).into_owned();
        vec![(*state).to_owned(), trusted.sha256.to_string(), path]
    };
    table(io.out, &states.iter().map(row).collect::<Vec<_>>())?;
    Ok(Exit::Done)
}
