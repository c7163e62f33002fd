//! The directory of a client, in which a tool with `cwd = "client"` runs.
//!
//! The first root of a client with the roots capability, else the working directory of the process
//! at the other end of the socket: `ceased connect`, `ceased call`, or this process for `ceased
//! stdio`. The peer chooses it, so it must be below the roots of the configuration, and the command
//! enters it beneath them with the rights of its own user.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use ceased_core::ids::ConnId;
use ceased_core::outgoing::call::Answer;
use ceased_process::WorkingDir;
use ceased_transports::Peer as Origin;
use serde::Deserialize;

use crate::config::{ClientRoots, RunAs};

/// The working directory of the process at the other end of a connection. The process must belong
/// to the connection's user: its process id may have been reused.
pub(crate) fn of_process(origin: &Origin) -> Option<PathBuf> {
    match origin {
        Origin::Stdio { .. } => std::env::current_dir().ok(),
        Origin::Unix { uid, pid: Some(pid), .. } => {
            let process = PathBuf::from(format!("/proc/{pid}"));
            let is_theirs = std::fs::metadata(&process).ok()?.uid() == *uid;
            is_theirs.then(|| process.join("cwd").read_link().ok()).flatten()
        }
        Origin::Unix { pid: None, .. } | Origin::Tcp { .. } | Origin::Child { .. } => None,
    }
}

/// The first root of a client that is a local directory.
pub(crate) fn of_roots(answer: &Answer) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Listed<'a> {
        #[serde(borrow)]
        roots: Vec<Root<'a>>,
    }
    #[derive(Deserialize)]
    struct Root<'a> {
        #[serde(borrow)]
        uri: Cow<'a, str>,
    }
    let Answer::Result(result) = answer else { return None };
    let listed: Listed<'_> = serde_json::from_str(result.get()).ok()?;
    listed.roots.iter().find_map(|root| path_of(&root.uri))
}

/// The path of a local `file` URI.
fn path_of(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let mut bytes = Vec::with_capacity(path.len());
    let mut left = path.as_bytes();
    while let Some((first, rest)) = left.split_first() {
        left = rest;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, rest) = left.split_at_checked(2)?;
        left = rest;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
    }
    let path = PathBuf::from(OsString::from_vec(bytes));
    path.is_absolute().then_some(path)
}

/// Directories of connections, recorded when they open: a client may have disconnected when its
/// task starts.
#[derive(Debug, Default)]
pub(crate) struct ClientDirectories(BTreeMap<ConnId, PathBuf>);

impl ClientDirectories {
    /// Records the directory of a connection. At most `max` are kept; the oldest one of a closed
    /// connection is evicted first.
    pub(crate) fn note(
        &mut self,
        conn: ConnId,
        dir: PathBuf,
        max: usize,
        is_open: impl Fn(ConnId) -> bool,
    ) {
        self.0.insert(conn, dir);
        if self.0.len() > max
            && let Some(oldest) = self.0.keys().copied().find(|conn| !is_open(*conn))
        {
            self.0.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, conn: ConnId) -> Option<&PathBuf> {
        self.0.get(&conn)
    }
}

/// Users in a call of a tool that runs in the directory of its client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Users {
    /// The caller, if it is a local user.
    pub(crate) caller: Option<u32>,
    /// The daemon's user.
    pub(crate) us: u32,
    /// The command's user.
    pub(crate) runs_as: u32,
}

/// The working directory of a command whose client is in `dir`.
///
/// # Errors
/// The reason, and the remedy.
pub(crate) fn place(
    dir: Option<PathBuf>,
    roots: &ClientRoots,
    run_as: Option<RunAs>,
    users: Users,
) -> Result<WorkingDir, String> {
    let Users { caller, us, runs_as } = users;
    if run_as.is_none() && caller != Some(us) {
        return Err(format!(
            "not run: the tool runs in the directory of its client, and without `run_as` that is only \
             for the user of the daemon, uid {us}; set run_as = \"peer\" in its [[tool]]"
        ));
    }
    let dir = dir.ok_or(
        "not run: the tool runs in the directory of its client, which is not known: the client is \
         not a process that the daemon can see, and has no roots; start it on this machine as the \
         user of the daemon, or with the roots capability",
    )?;
    let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if !dir.is_absolute() || !dir.components().all(is_plain) {
        return Err(format!("not run: the directory of the client is {dir:?}, no absolute path"));
    }
    let known = match (roots.listed.as_slice(), &roots.home) {
        ([], _) if caller != Some(runs_as) => {
            return Err(
                "not run: the tool runs in the directory of its client, as another user than the \
                 client's; name the directories where that is wanted as `roots` in [daemon]"
                    .into(),
            );
        }
        ([], Some(home)) if runs_as == us => std::slice::from_ref(home),
        ([], None) if runs_as == us => {
            return Err("not run: the tool runs in the directory of its client below the home \
                        directory, and $HOME is not set; name `roots` in [daemon]"
                .into());
        }
        // The home directory of that user is unknown here.
        ([], _) => return Ok(WorkingDir { base: PathBuf::new(), below: Some(dir) }),
        (listed, _) => listed,
    };
    let inside = known.iter().find_map(|root| Some((root, dir.strip_prefix(root).ok()?)));
    let Some((root, below)) = inside else {
        let known: Vec<String> = known.iter().map(|root| root.display().to_string()).collect();
        return Err(format!(
            "not run: the directory of the client, {}, is not below {}; start the client in a \
             project there, or name its directory in `roots` in [daemon]",
            dir.display(),
            known.join(" or ")
        ));
    };
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    Ok(WorkingDir { base: root.clone(), below: Some(below.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u32 = 1001;
    const BOB: u32 = 1002;

    fn roots(listed: &[&str], home: Option<&str>) -> ClientRoots {
        ClientRoots {
            listed: listed.iter().map(PathBuf::from).collect(),
            home: home.map(PathBuf::from),
        }
    }

    fn dir(base: &str, below: &str) -> WorkingDir {
        WorkingDir { base: base.into(), below: Some(below.into()) }
    }

    /// SEC-03: the whole table: a client's directory must be below a root, and no command runs in
    /// the directory of one user as another, unless the tool says so and the daemon has roots.
    #[test]
    fn places_of_every_client() {
        let home = roots(&[], Some("/home/ann"));
        let listed = roots(&["/srv", "/data"], Some("/home/ann"));
        let none = roots(&[], None);
        let (peer, daemon, bob) = (Some(RunAs::Peer), Some(RunAs::Daemon), Some(RunAs::User(BOB)));
        let run = |path: &str, roots: &ClientRoots, run_as, caller, us, runs_as| {
            place(Some(path.into()), roots, run_as, Users { caller, us, runs_as })
        };
        let ann = Some(ANN);
        // The daemon of ann, and ann.
        for run_as in [None, peer, daemon] {
            let at = |path| run(path, &home, run_as, ann, ANN, ANN);
            assert_eq!(at("/home/ann/p/q"), Ok(dir("/home/ann", "p/q")));
            assert_eq!(at("/home/ann"), Ok(dir("/home/ann", ".")));
            for outside in ["/", "/etc", "/home", "/home/bob", "/home/annex", "/home/ann/../bob"] {
                assert!(at(outside).is_err(), "{outside}");
            }
            assert!(run("/home/ann/p", &none, run_as, ann, ANN, ANN).is_err());
            assert_eq!(run("/data/p", &listed, run_as, ann, ANN, ANN), Ok(dir("/data", "p")));
            assert!(run("/home/ann/p", &listed, run_as, ann, ANN, ANN).is_err());
        }
        // The daemon of ann, and others.
        for caller in [Some(BOB), None] {
            assert!(run("/home/ann", &home, None, caller, ANN, ANN).is_err());
            assert!(run("/data/p", &listed, None, caller, ANN, ANN).is_err());
            assert!(run("/home/ann/p", &home, daemon, caller, ANN, ANN).is_err());
            assert_eq!(run("/srv/p", &listed, daemon, caller, ANN, ANN), Ok(dir("/srv", "p")));
        }
        // The daemon of root.
        let below_home = Ok(dir("", "/home/ann/p"));
        assert_eq!(
            run("/home/ann/p", &roots(&[], Some("/root-home")), peer, ann, 0, ANN),
            below_home
        );
        assert_eq!(run("/srv/p", &listed, peer, ann, 0, ANN), Ok(dir("/srv", "p")));
        assert!(run("/home/ann/p", &home, bob, ann, 0, BOB).is_err());
        assert_eq!(run("/srv/p", &listed, bob, ann, 0, BOB), Ok(dir("/srv", "p")));
        assert!(run("/home/ann/p", &home, daemon, ann, 0, 0).is_err());
        assert!(run("/srv/p", &listed, None, ann, 0, 0).is_err());
        // A directory that is not known.
        let users = Users { caller: ann, us: ANN, runs_as: ANN };
        assert!(place(None, &home, None, users).unwrap_err().contains("not known"));
    }

    #[test]
    fn roots_are_local_directories() {
        for (uri, path) in [
            ("file:///home/ann/my%20project", Some("/home/ann/my project")),
            ("file://localhost/srv/x", Some("/srv/x")),
            ("file:///srv/%C3%A4?x#y", Some("/srv/\u{e4}")),
            ("file://elsewhere/srv", None),
            ("file:srv", None),
            ("https://example.org/", None),
            ("file:///srv/%zz", None),
            ("file:///srv/%4", None),
        ] {
            assert_eq!(path_of(uri), path.map(PathBuf::from), "{uri}");
        }
        let json = r#"{"roots":[{"uri":"https://a"},{"uri":"file:///a"},{"uri":"file:///b"}]}"#;
        let result = Answer::Result(serde_json::from_str(json).unwrap());
        assert_eq!(of_roots(&result), Some("/a".into()));
        assert_eq!(of_roots(&Answer::TimedOut), None);
    }
}
