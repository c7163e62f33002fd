//! The servers of a host's file as the daemon runs them: `--mcp-servers FILE`.

use std::collections::BTreeSet;
use std::path::Path;

use super::base::Base;
use super::document::Format;
use super::entry::entries;
use super::server_table::tables;
use crate::config::{Config, ConfigError, Server};
use crate::owned_file::{self, Secrecy, Unfit};

/// Size limit of a host's file. That of Claude Code, which holds more than settings, has megabytes.
const BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The servers of a host's file, and remarks for its user.
#[derive(Debug)]
pub(crate) struct HostServers {
    pub(crate) servers: Vec<Server>,
    pub(crate) notes: Vec<String>,
}

/// Reads the servers of a host's file. Variables of the host are filled in from the environment.
///
/// # Errors
/// If the file cannot be read, other users than root and the user of this process can have written
/// it, or it is no file of a host.
pub(crate) fn host_servers(path: &Path) -> Result<HostServers, ConfigError> {
    let text = read(path)?;
    let found = entries(&text, Format::of(path)).map_err(|why| {
        let place = if why.line > 0 { format!("line {}: ", why.line) } else { String::new() };
        ConfigError::of_file(path, format!("{place}{}", why.what), why.hint)
    })?;
    let value = |name: &str| std::env::var(name).ok();
    let (mut toml, mut notes) = (String::new(), Vec::new());
    let tables = tables(&found, &Base::of(path), &BTreeSet::new(), &value);
    for (entry, table) in found.iter().zip(tables) {
        let why = match table.and_then(|table| table.flaw().map_or(Ok(table), Err)) {
            Ok(table) => {
                toml.push_str(&table.text);
                toml.push('\n');
                continue;
            }
            Err(why) => why,
        };
        notes.push(format!("{} (line {}) is left out: {why}", entry.name, entry.line));
    }
    // The tables are not in the file, so that their lines would mislead.
    let config = Config::parse(&toml, path).map_err(|error| {
        let why = error.problems().first().map(|problem| (&problem.what, &problem.hint));
        let (what, hint) = why.map_or((String::new(), String::new()), |(what, hint)| {
            (format!("a server in it cannot be used: {what}"), hint.clone())
        });
        ConfigError::of_file(path, what, hint)
    })?;
    Ok(HostServers { servers: config.servers, notes })
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let fail = |what: String, hint: &str| ConfigError::of_file(path, what, hint);
    let bytes =
        owned_file::read(path, Secrecy::Public, BYTES_MAX).map_err(|unfit| match unfit {
            Unfit::Io(why) if why.kind() == std::io::ErrorKind::FileTooLarge => {
                fail(format!("the host's file is larger than {BYTES_MAX} bytes"), "check the path")
            }
            Unfit::Io(why) => {
                fail(format!("cannot read the host's file: {why}"), "name another file")
            }
            Unfit::Refused { what, remedy } => {
                fail(format!("rejected the host's file: {what}"), &remedy)
            }
        })?;
    String::from_utf8(bytes).map_err(|why| {
        let at = why.utf8_error().valid_up_to();
        fail(format!("byte {at} of the host's file is not UTF-8"), "save it as UTF-8")
    })
}
