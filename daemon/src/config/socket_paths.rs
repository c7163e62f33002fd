//! The sockets of this user's daemon and of the system's: one rule for the daemon, for every command
//! that looks for it, and for the lock of `connect --spawn`.
//!
//! Programs that start MCP servers often pass no `XDG_RUNTIME_DIR`, so the rule finds the same place
//! without it. A directory of another user is no place: root with the environment of a user does not
//! meet that user's daemon, nor the other way round.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Below a directory that is the user's.
const NAME: &str = "ceased/ceased.sock";
/// Directory of the sockets of the system.
const SYSTEM_DIR: &str = "/run/ceased";
/// The socket of a system daemon.
const SYSTEM: &str = "/run/ceased/ceased.sock";
/// The parent of the runtime directories of users.
const RUN_USER: &str = "/run/user";
/// Permission to write for others than the owner.
const OTHERS_WRITE: u32 = 0o022;
const ROOT: u32 = 0;

/// The facts about a path that the rule needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathFacts {
    /// Its owner.
    pub owner: u32,
    /// Its permission bits.
    pub mode: u32,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether this process may write to it, which is what connecting to a socket needs.
    pub may_write: bool,
}

impl PathFacts {
    /// The facts of this machine, symbolic links followed; `None` when nothing is there.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            owner: found.uid(),
            mode: found.mode() & 0o7777,
            is_directory: found.is_dir(),
            may_write: accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok(),
        })
    }
}

/// The variables that the rule looks at; absolute paths.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketVariables<'a> {
    /// `$XDG_RUNTIME_DIR`
    pub runtime_dir: Option<&'a Path>,
    /// `$XDG_STATE_HOME`
    pub state_home: Option<&'a Path>,
    /// `$HOME`
    pub home: Option<&'a Path>,
}

/// Where the sockets of a user are, by [`SocketPaths::of`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketPaths {
    /// Sockets in directories of this user, the best first. A daemon listens at the first one;
    /// clients try all of them, because a daemon may have been started in another environment.
    pub own: Vec<PathBuf>,
    /// The socket of a system daemon, if this user may connect to it.
    pub system: Option<PathBuf>,
}

impl SocketPaths {
    /// The rule, for a user with these variables on a machine with these facts.
    ///
    /// The first is `$XDG_RUNTIME_DIR`, else `/run/user/UID`, each if it is there, the user's, and
    /// writable by no other; else for root `/run/ceased`, unless it is another user's; else
    /// `$XDG_STATE_HOME/ceased/run` (`~/.local/state` when unset), if the part of that path that is
    /// there is the user's. Where there is none of these, it is the system's, which only root can
    /// make.
    #[must_use]
    pub fn of(
        uid: u32,
        variables: SocketVariables<'_>,
        look: &dyn Fn(&Path) -> Option<PathFacts>,
    ) -> Self {
        let is_private = |found: PathFacts| {
            found.is_directory && found.owner == uid && found.mode & OTHERS_WRITE == 0
        };
        let mut own: Vec<PathBuf> = Vec::new();
        let run_user = Path::new(RUN_USER).join(uid.to_string());
        for dir in variables.runtime_dir.into_iter().chain([run_user.as_path()]) {
            let socket = dir.join(NAME);
            if look(dir).is_some_and(is_private) && !own.contains(&socket) {
                own.push(socket);
            }
        }
        let system_dir = look(Path::new(SYSTEM_DIR));
        if uid == ROOT && system_dir.is_none_or(is_private) {
            own.push(SYSTEM.into());
        }
        let state = variables.state_home.map(Path::to_path_buf);
        let state = state.or_else(|| Some(variables.home?.join(".local/state")));
        own.extend(
            state
                .filter(|dir| is_own(uid, dir, look))
                .map(|dir| dir.join("ceased/run/ceased.sock")),
        );
        if own.is_empty() {
            own.push(SYSTEM.into());
        }
        let may_use = look(Path::new(SYSTEM)).is_some_and(|found| found.may_write);
        let system = Some(PathBuf::from(SYSTEM)).filter(|path| may_use && !own.contains(path));
        Self { own, system }
    }

    /// The socket of a daemon that is not told another one.
    #[must_use]
    pub fn default_socket(&self) -> PathBuf {
        self.own.first().cloned().unwrap_or_else(|| SYSTEM.into())
    }

    /// Every socket that a client tries, the best first.
    pub fn candidates(&self) -> impl Iterator<Item = &Path> {
        self.own.iter().chain(&self.system).map(PathBuf::as_path)
    }
}

/// Whether a directory is the user's, or would be if it were made: the nearest directory above that
/// is there decides.
fn is_own(uid: u32, dir: &Path, look: &dyn Fn(&Path) -> Option<PathFacts>) -> bool {
    let nearest = dir.ancestors().find_map(look);
    nearest.is_some_and(|found| found.is_directory && found.owner == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u32 = 1001;
    const BOB: u32 = 1002;
    const SERVICE: u32 = 990;
    const RUN_ANN: &str = "/run/user/1001/ceased/ceased.sock";
    const STATE_ANN: &str = "/home/ann/.local/state/ceased/run/ceased.sock";

    /// A machine: directories with owner and mode, and the users that may use the system's socket.
    struct Machine {
        dirs: &'static [(&'static str, u32, u32)],
        system: Option<(u32, &'static [u32])>,
    }

    const BARE: Machine = Machine {
        dirs: &[
            ("/", 0, 0o755),
            ("/home/ann", ANN, 0o755),
            ("/home/bob", BOB, 0o755),
            ("/admin", 0, 0o700),
        ],
        system: None,
    };
    const DESKTOP: Machine = Machine {
        dirs: &[
            ("/", 0, 0o755),
            ("/run/user/0", 0, 0o700),
            ("/run/user/1001", ANN, 0o700),
            ("/run/user/1002", BOB, 0o700),
            ("/tmp", 0, 0o1777),
            ("/home/ann", ANN, 0o755),
            ("/home/bob", BOB, 0o755),
            ("/admin", 0, 0o700),
        ],
        system: None,
    };
    /// With a system daemon that the group of ann may use.
    const SERVER: Machine = Machine { system: Some((SERVICE, &[0, SERVICE, ANN])), ..DESKTOP };
    const BARE_SERVER: Machine = Machine { system: Some((SERVICE, &[0, SERVICE, ANN])), ..BARE };
    /// With a daemon that root started for itself.
    const ROOTS: Machine = Machine { system: Some((0, &[0])), ..BARE };

    fn paths(machine: &Machine, uid: u32, xdg: &str, home: &str) -> (Vec<String>, Option<String>) {
        let look = |path: &Path| {
            let (owner, mode, is_directory, may_write) = match path.to_str()? {
                SYSTEM => {
                    let (owner, users) = machine.system?;
                    (owner, 0o660, false, users.contains(&uid))
                }
                SYSTEM_DIR => (machine.system?.0, 0o755, true, machine.system?.0 == uid),
                dir => {
                    let (_, owner, mode) = machine.dirs.iter().find(|(name, ..)| *name == dir)?;
                    (*owner, *mode, true, *owner == uid)
                }
            };
            Some(PathFacts { owner, mode, is_directory, may_write })
        };
        let path = |text: &'static str| (!text.is_empty()).then(|| Path::new(text));
        let leak = |text: &str| path(text.to_owned().leak());
        let variables =
            SocketVariables { runtime_dir: leak(xdg), state_home: None, home: leak(home) };
        let SocketPaths { own, system } = SocketPaths::of(uid, variables, &look);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        (own.into_iter().map(text).collect(), system.map(text))
    }

    /// The whole table. No line leads one user to the directory of another, and root's own socket is
    /// no candidate of a user that may not connect to it.
    #[test]
    fn sockets_of_every_user_on_every_machine() {
        // Machine, user, XDG_RUNTIME_DIR, HOME; own sockets, and whether the system's is one.
        type Line =
            (&'static Machine, u32, &'static str, &'static str, &'static [&'static str], bool);
        let table: &[Line] = &[
            // A login session, and the same user in an environment without its variables.
            (&DESKTOP, ANN, "/run/user/1001", "/home/ann", &[RUN_ANN, STATE_ANN], false),
            (&DESKTOP, ANN, "", "/home/ann", &[RUN_ANN, STATE_ANN], false),
            (&DESKTOP, ANN, "", "", &[RUN_ANN], false),
            // A runtime directory of another user, of root and for all, and one that is gone.
            (&DESKTOP, BOB, "/run/user/1001", "", &["/run/user/1002/ceased/ceased.sock"], false),
            (&DESKTOP, 0, "/run/user/1001", "", &["/run/user/0/ceased/ceased.sock", SYSTEM], false),
            (&DESKTOP, 0, "/tmp", "", &["/run/user/0/ceased/ceased.sock", SYSTEM], false),
            (&DESKTOP, ANN, "/run/user/0", "", &[RUN_ANN], false),
            (&DESKTOP, ANN, "/gone", "", &[RUN_ANN], false),
            // Without /run/user: a container, a cron job.
            (&BARE, ANN, "", "/home/ann", &[STATE_ANN], false),
            (&BARE, ANN, "/run/user/1001", "/home/ann", &[STATE_ANN], false),
            (
                &BARE,
                0,
                "",
                "/admin",
                &[SYSTEM, "/admin/.local/state/ceased/run/ceased.sock"],
                false,
            ),
            // Root with the home of a user, and a user with the home of another.
            (&BARE, 0, "", "/home/ann", &[SYSTEM], false),
            (&BARE, BOB, "", "/home/ann", &[SYSTEM], false),
            (&BARE, BOB, "", "/nonexistent", &[SYSTEM], false),
            // A system daemon comes last, for those who may use it.
            (&SERVER, ANN, "", "/home/ann", &[RUN_ANN, STATE_ANN], true),
            (&SERVER, BOB, "", "", &["/run/user/1002/ceased/ceased.sock"], false),
            (&SERVER, 0, "", "", &["/run/user/0/ceased/ceased.sock"], true),
            (&BARE_SERVER, ANN, "", "/home/ann", &[STATE_ANN], true),
            // Its directory is not root's, so root's own daemon is elsewhere.
            (&BARE_SERVER, 0, "", "/admin", &["/admin/.local/state/ceased/run/ceased.sock"], true),
            // A daemon that root started for itself is root's alone.
            (&ROOTS, ANN, "", "/home/ann", &[STATE_ANN], false),
            (
                &ROOTS,
                0,
                "",
                "/admin",
                &[SYSTEM, "/admin/.local/state/ceased/run/ceased.sock"],
                false,
            ),
        ];
        for (at, (machine, uid, xdg, home, own, has_system)) in table.iter().enumerate() {
            let (found, system) = paths(machine, *uid, xdg, home);
            assert_eq!(found, *own, "line {at}: uid {uid}, {xdg:?}, {home:?}");
            assert_eq!(system.is_some(), *has_system, "line {at}: uid {uid}, {xdg:?}, {home:?}");
        }
    }

    #[test]
    fn state_home_comes_before_home() {
        let look = |path: &Path| {
            path.starts_with("/s").then_some(PathFacts {
                owner: ANN,
                mode: 0o755,
                is_directory: true,
                may_write: true,
            })
        };
        let (state_home, home) = (Some(Path::new("/s/x")), Some(Path::new("/home/ann")));
        let variables = SocketVariables { runtime_dir: None, state_home, home };
        let paths = SocketPaths::of(ANN, variables, &look);
        assert_eq!(paths.default_socket(), Path::new("/s/x/ceased/run/ceased.sock"));
        assert_eq!(paths.candidates().count(), 1);
    }
}
