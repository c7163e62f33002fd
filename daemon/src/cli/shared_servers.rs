//! `ceased adopt --shared`: servers of hosts' files that move into the daemon's configuration.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::host_entry::failure;
use super::written_file::Written;
use super::{Backend, DaemonLocation, Exit, Failure};
use crate::config::{Config, Environment};
use crate::host_files::{Base, Binary, Format, HostFile, Outcome, entries, share, tables};
use ceased_client::printable::clean;

/// Beginning of a configuration that this command makes.
const HEADING: &str = "# Written by `ceased adopt --shared`. `ceased check` shows the commands; the \
                       documentation lists every\n# key.\n";
/// Lines shown before the new ones.
const CONTEXT: usize = 3;

/// The daemon's configuration, and the servers that it gets.
pub(super) struct Shared {
    config: PathBuf,
    /// The configuration as it is, if there is one.
    old: Option<HostFile>,
    /// Names of its servers.
    taken: BTreeSet<String>,
    /// Text that is appended to it.
    added: String,
    /// The same without secrets.
    shown: String,
    /// Options with which a host finds the daemon.
    options: Vec<String>,
}

impl Shared {
    /// Reads the daemon's configuration. `is_named`: the user named it.
    pub(super) fn of(site: &DaemonLocation, is_named: bool) -> Result<Self, Failure> {
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
        let there = Config::parse(old.as_ref().map_or("", |old| &old.text), &config)?;
        let taken = there.servers.iter().map(|server| server.name.clone()).collect();
        // The daemon that the host starts has to find the same configuration.
        let path = config.canonicalize().unwrap_or_else(|_| config.clone());
        let options = match is_named {
            true => vec!["--config".to_owned(), path.to_string_lossy().into_owned()],
            false => Vec::new(),
        };
        let (added, shown) = (String::new(), String::new());
        Ok(Self { config, old, taken, added, shown, options })
    }

    /// Chooses the servers of a host's file that move, and their names. Returns the change of the
    /// file.
    pub(super) fn take(
        &mut self,
        file: &HostFile,
        named: &Path,
        binary: &Binary,
    ) -> Result<Outcome, Failure> {
        let format = Format::of(&file.path);
        let found = entries(&file.text, format).map_err(|why| failure(named, &why))?;
        let mut names = Vec::new();
        let tables = tables(&found, &Base::of(named), &self.taken, &|_| None);
        for (entry, table) in found.iter().zip(tables) {
            let table = table.and_then(|table| match (table.flaw(), &table.cwd) {
                (Some(why), _) => Err(why),
                (None, Some(cwd)) if !Path::new(cwd).is_dir() => {
                    Err(format!("its directory {} does not exist", clean(cwd)))
                }
                (None, _) => Ok(table),
            });
            names.push(table.map(|table| {
                // One that is behind ceased already stays as it is.
                let moves = entry.remote().is_none_or(|remote| remote.movable(format).is_ok());
                if entry.is_direct() && moves {
                    self.added.push_str(&format!("\n{}", table.text));
                    self.shown.push_str(&format!("\n{}", table.shown));
                    self.taken.insert(table.name.clone());
                }
                table.name
            }));
        }
        share(&file.text, format, binary, &names, &self.options).map_err(|why| failure(named, &why))
    }

    /// The text of the configuration with the servers.
    fn text(&self) -> String {
        let old = self.old.as_ref().map_or(HEADING, |old| &old.text);
        let gap = if old.ends_with('\n') { "" } else { "\n" };
        format!("{old}{gap}{}", self.added)
    }

    /// Checks the configuration that results as a start of the daemon would. Returns defects that do
    /// not prevent it.
    pub(super) fn check(&self, backend: &dyn Backend) -> Result<Vec<String>, Failure> {
        backend.check_text(&self.text(), &self.config)
    }

    /// The change of the daemon's configuration, for people.
    pub(super) fn diff(&self) -> String {
        if self.added.is_empty() {
            return String::new();
        }
        let path = clean(&self.config.to_string_lossy()).into_owned();
        let lines = |sign: char, text: &str| -> String {
            text.lines().map(|line| format!("{sign}{line}\n")).collect()
        };
        let Some(old) = &self.old else {
            let all = format!("{HEADING}{}", self.shown);
            let count = all.lines().count();
            return format!(
                "--- /dev/null\n+++ {path}\n@@ -0,0 +1,{count} @@\n{}",
                lines('+', &all)
            );
        };
        // The end of a configuration can be a secret, so that only empty lines are shown of it.
        let all: Vec<&str> = old.text.lines().collect();
        let before = all.iter().rev().take(CONTEXT).take_while(|line| line.is_empty()).count();
        let (first, count) = (all.len() - before, self.shown.lines().count());
        let start = if before == 0 { first } else { first + 1 };
        let new = first + 1;
        let context = " \n".repeat(before);
        format!(
            "--- {path}\n+++ {path}\n@@ -{start},{before} +{new},{} @@\n{context}{}",
            before + count,
            lines('+', &self.shown)
        )
    }

    /// Checks that the configuration can be written.
    pub(super) fn permit(&self) -> Result<(), Failure> {
        let old = self.old.as_ref().map_or(Ok(()), HostFile::permit);
        old.map_err(|why| Failure::new(Exit::Failed, format!("{}\n{}", why.what, why.hint)))
    }

    /// Writes the daemon's configuration, if it changes; a new one can hold secrets, and is for its
    /// user alone.
    pub(super) fn write(&self) -> Result<Option<Written>, Failure> {
        if self.added.is_empty() {
            return Ok(None);
        }
        let path = self.config.clone();
        let Some(old) = &self.old else {
            let fail = |why: std::io::Error| {
                Failure::new(Exit::Failed, format!("cannot write {}: {why}", path.display()))
            };
            if let Some(dir) = path.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
            }
            let mut options = OpenOptions::new();
            let options = options.write(true).create_new(true).mode(0o600);
            let mut file = options.open(&path).map_err(fail)?;
            let written = file.write_all(self.text().as_bytes()).and_then(|()| file.sync_all());
            if let Err(why) = written {
                // Half of a configuration is worse than none.
                let _ = fs::remove_file(&path);
                return Err(fail(why));
            }
            return Ok(Some(Written { path, copy: None }));
        };
        let copy = old
            .replace(&self.text())
            .map_err(|why| Failure::new(Exit::Failed, format!("{}\n{}", why.what, why.hint)))?;
        Ok(Some(Written { path: old.path.clone(), copy: Some(copy) }))
    }
}
