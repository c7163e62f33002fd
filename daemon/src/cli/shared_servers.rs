//! `ceased adopt --shared`: servers of a host's file that move into the daemon's configuration.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::host_entry::failure;
use super::{DaemonLocation, Exit, Failure, Io};
use crate::config::{Config, Environment};
use crate::host_files::{Binary, HostFile, Outcome, entries, share, tables};

/// Beginning of a configuration that this command makes.
const HEADING: &str = "# Written by `ceased adopt --shared`. `ceased check` shows the commands; the \
                       documentation lists every\n# key.\n";

/// Servers that move from a host's file into the daemon's configuration.
pub(super) struct Shared {
    outcome: Option<Outcome>,
    config: PathBuf,
    /// The configuration as it is, if there is one.
    old: Option<HostFile>,
    /// Text that is appended to it.
    added: String,
    /// The same without values of variables.
    shown: String,
}

/// Chooses the servers that move and their names, and checks the configuration that results.
/// `is_named`: the user named the daemon's configuration.
pub(super) fn plan(
    file: &HostFile,
    named: &Path,
    binary: &Binary,
    site: &DaemonLocation,
    is_named: bool,
) -> Result<Shared, Failure> {
    let config = match &site.config {
        Some(path) => path.clone(),
        None => Environment::of_process().user_config().ok_or_else(|| {
            let what = "$HOME is not set, so there is no place for the daemon's configuration";
            Failure::new(Exit::Usage, format!("{what}\nname one with --config FILE"))
        })?,
    };
    let old = match site.config {
        Some(_) => Some(HostFile::read(&config).map_err(|why| failure(&config, &why))?),
        None => None,
    };
    let text = old.as_ref().map_or(HEADING, |old| old.text.as_str());
    let there = Config::parse(text, &config)?;
    let taken: BTreeSet<String> = there.servers.iter().map(|server| server.name.clone()).collect();
    let found = entries(&file.text).map_err(|why| failure(named, &why))?;
    let (mut names, mut added, mut shown) = (Vec::new(), String::new(), String::new());
    for (entry, table) in found.iter().zip(tables(&found, &taken)) {
        names.push(match table {
            Ok(table) if !table.unresolved.is_empty() => {
                Err(format!("only the host can fill in {:?}", table.unresolved.join(" ")))
            }
            Ok(table) => {
                // One that is behind ceased already stays as it is.
                if entry.is_command() {
                    added.push_str(&format!("\n{}", table.text));
                    shown.push_str(&format!("\n{}", table.without_values()));
                }
                Ok(table.name)
            }
            Err(why) => Err(why),
        });
    }
    Config::parse(&format!("{text}{added}"), &config)?;
    // The daemon that the host starts has to find the same configuration.
    let options = match is_named {
        true => {
            let path = config.canonicalize().unwrap_or_else(|_| config.clone());
            vec!["--config".to_owned(), path.to_string_lossy().into_owned()]
        }
        false => Vec::new(),
    };
    let outcome =
        share(&file.text, binary, &names, &options).map_err(|why| failure(named, &why))?;
    Ok(Shared { outcome: Some(outcome), config, old, added, shown })
}

impl Shared {
    /// The change of the host's file.
    pub(super) fn take_outcome(&mut self) -> Outcome {
        let none = || Outcome { edits: Vec::new(), entries: Vec::new() };
        self.outcome.take().unwrap_or_else(none)
    }

    /// The change of the daemon's configuration, for people.
    pub(super) fn diff(&self) -> String {
        let path = self.config.display();
        let lines: String = self.shown.lines().map(|line| format!("+{line}\n")).collect();
        format!("--- {path}\n+++ {path}\n{lines}")
    }

    /// Writes the daemon's configuration; a new one can hold secrets, and is for its user alone.
    pub(super) fn write(&self, io: &mut Io<'_>) -> Result<(), Failure> {
        let path = self.config.display();
        let Some(old) = &self.old else {
            let fail = |why: std::io::Error| {
                Failure::new(Exit::Failed, format!("cannot write {path}: {why}"))
            };
            if let Some(dir) = self.config.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
            }
            let mut options = OpenOptions::new();
            let options = options.write(true).create_new(true).mode(0o600);
            let mut file = options.open(&self.config).map_err(fail)?;
            file.write_all(format!("{HEADING}{}", self.added).as_bytes()).map_err(fail)?;
            io.say(&format!("wrote {path}; `ceased reload` has a running daemon read it"));
            return Ok(());
        };
        let copy = old
            .replace(&format!("{}{}", old.text, self.added))
            .map_err(|why| Failure::new(Exit::Failed, format!("{}\n{}", why.what, why.hint)))?;
        let copy = copy.display();
        io.say(&format!(
            "wrote {path}; {copy} has the old content; `ceased reload` has a running daemon read it"
        ));
        Ok(())
    }
}
