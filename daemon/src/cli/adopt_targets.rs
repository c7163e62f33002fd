//! The files that `ceased adopt` is about: one that is named, those of a host, or all that are found.

use std::path::{Path, PathBuf};

use super::adopt_args::AdoptArgs;
use super::{Exit, Failure, Io};
use crate::host_files::{Host, all_hosts, host_by_name};

/// Most differing letters of a name that is suggested.
const TYPOS_MAX: usize = 2;

/// The files of a command.
pub(super) enum Target {
    /// A file.
    File(PathBuf),
    /// The files of a host that exist.
    Host(&'static Host, Vec<PathBuf>),
    /// The files of every host that exist.
    All(Vec<(&'static Host, Vec<PathBuf>)>),
}

impl Target {
    /// The files, each with the name of its host if several are possible.
    pub(super) fn paths(&self) -> Vec<(Option<&'static str>, PathBuf)> {
        let of = |host: &&'static Host, paths: &Vec<PathBuf>| -> Vec<_> {
            paths.iter().map(|path| (Some(host.title), path.clone())).collect()
        };
        match self {
            Self::File(path) => vec![(None, path.clone())],
            Self::Host(host, paths) => of(host, paths),
            Self::All(hosts) => hosts.iter().flat_map(|(host, paths)| of(host, paths)).collect(),
        }
    }

    /// Whether the files are found, not named: one of them can have no servers.
    pub(super) const fn is_search(&self) -> bool {
        matches!(self, Self::Host(..) | Self::All(_))
    }
}

/// Finds the files.
pub(super) fn targets(args: &AdoptArgs, io: &mut Io<'_>) -> Result<Target, Failure> {
    let Some(target) = &args.target else { return all(args, io) };
    let name = target.to_str().filter(|it| !it.contains(['/', '.']));
    let Some(name) = name else { return Ok(Target::File(target.clone())) };
    let Some(host) = host_by_name(&name.to_ascii_lowercase()) else {
        return if target.exists() { Ok(Target::File(target.clone())) } else { Err(unknown(name)) };
    };
    if let Some(note) = host.note {
        io.say(note);
    }
    if target.is_file() {
        io.say(&format!("{name} is taken for the host; ./{name} names the file of this directory"));
    }
    let places = places(host);
    let found: Vec<PathBuf> = distinct(places.iter().filter(|path| path.exists()), &mut Vec::new());
    if found.is_empty() {
        let what = format!("there is no file of {} here", host.title);
        let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
        let hint = format!("looked for {}; name another one", places.join(", "));
        return Err(Failure::new(Exit::Usage, format!("{what}\n{hint}")));
    }
    Ok(Target::Host(host, found))
}

/// Every file that is found. Nothing is written to hosts that were not named.
fn all(args: &AdoptArgs, io: &mut Io<'_>) -> Result<Target, Failure> {
    if args.write {
        let hint = format!("name one of {}, or a file; without --write all are shown", names());
        return Err(Failure::new(Exit::Usage, format!("--write needs a host or a file\n{hint}")));
    }
    let mut seen = Vec::new();
    let hosts = all_hosts().iter().filter_map(|host| {
        let paths = places(host);
        let found = distinct(paths.iter().filter(|path| path.exists()), &mut seen);
        (!found.is_empty()).then_some((host, found))
    });
    let hosts: Vec<_> = hosts.collect();
    if hosts.is_empty() {
        io.say(&format!("no file of a host is found; known are {}", names()));
    }
    Ok(Target::All(hosts))
}

/// The places of a host for this user and directory.
fn places(host: &Host) -> Vec<PathBuf> {
    let variable =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    host.places(&variable, Path::new("."))
}

/// Each file once; the user's file can be that of a project in the home directory.
fn distinct<'p>(paths: impl Iterator<Item = &'p PathBuf>, seen: &mut Vec<PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        let whole = path.canonicalize().unwrap_or_else(|_| path.clone());
        if !seen.contains(&whole) {
            seen.push(whole);
            found.push(path.clone());
        }
    }
    found
}

fn names() -> String {
    all_hosts().iter().map(|host| host.name).collect::<Vec<_>>().join(", ")
}

fn unknown(name: &str) -> Failure {
    let near = all_hosts()
        .iter()
        .map(|host| (strsim::damerau_levenshtein(name, host.name), host.name))
        .filter(|(distance, _)| *distance <= TYPOS_MAX)
        .min();
    let hint = match near {
        Some((_, near)) => format!("did you mean {near}?"),
        None => format!("hosts: {}; the path of another host's file does as well", names()),
    };
    Failure::new(Exit::Usage, format!("{name} is neither a file here nor a known host\n{hint}"))
}
