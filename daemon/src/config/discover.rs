//! Paths of the configuration, the state and the default socket, by the user's environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::error::ConfigError;
use super::socket_paths::{PathFacts, SocketPaths, SocketVariables};

/// System-wide configuration, searched last.
const SYSTEM_CONFIG: &str = "/etc/ceased/config.toml";

/// The environment variables that determine paths; a value, so that tests can construct one.
///
/// As the XDG base directory specification wants it, a relative path in one counts as unset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `$CEASED_CONFIG`, which may be relative.
    pub ceased_config: Option<PathBuf>,
    /// `$HOME`
    pub home: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`
    pub config_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`
    pub state_home: Option<PathBuf>,
    /// `$STATE_DIRECTORY`, which systemd sets; the first of the list.
    pub state_directory: Option<PathBuf>,
    /// Where daemons listen that are not told another place.
    pub sockets: SocketPaths,
}

impl Environment {
    /// The environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let path = |name: &str| absolute(std::env::var_os(name));
        let first = |list: OsString| std::env::split_paths(&list).next().map(OsString::from);
        let (home, state_home) = (path("HOME"), path("XDG_STATE_HOME"));
        let runtime_dir = path("XDG_RUNTIME_DIR");
        let variables = SocketVariables {
            runtime_dir: runtime_dir.as_deref(),
            state_home: state_home.as_deref(),
            home: home.as_deref(),
        };
        let sockets = SocketPaths::of(geteuid().as_raw(), variables, &PathFacts::of);
        Self {
            ceased_config: std::env::var_os("CEASED_CONFIG")
                .filter(|value| !value.is_empty())
                .map(PathBuf::from),
            home,
            config_home: path("XDG_CONFIG_HOME"),
            state_home,
            state_directory: absolute(std::env::var_os("STATE_DIRECTORY").and_then(first)),
            sockets,
        }
    }

    /// The socket of a daemon that is not told another one; see [`SocketPaths::of`].
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.sockets.default_socket()
    }

    /// The state directory: `$STATE_DIRECTORY`, else `$XDG_STATE_HOME/ceased`, else
    /// `~/.local/state/ceased`; `/var/lib/ceased` without a home directory.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        let under = |dir: &Option<PathBuf>, rest: &str| dir.as_ref().map(|dir| dir.join(rest));
        self.state_directory
            .clone()
            .or_else(|| under(&self.state_home, "ceased"))
            .or_else(|| under(&self.home, ".local/state/ceased"))
            .unwrap_or_else(|| PathBuf::from("/var/lib/ceased"))
    }

    /// The directory of this user's state, whatever a service manager gives:
    /// `$XDG_STATE_HOME/ceased`, else `~/.local/state/ceased`; `None` without a home.
    #[must_use]
    pub fn user_state_dir(&self) -> Option<PathBuf> {
        let state = self.state_home.clone();
        let state = state.or_else(|| Some(self.home.as_ref()?.join(".local/state")));
        state.map(|dir| dir.join("ceased"))
    }

    /// The configuration file to use: `explicit`, else `$CEASED_CONFIG`, else
    /// `$XDG_CONFIG_HOME/ceased/config.toml` (`~/.config` when unset), else
    /// `/etc/ceased/config.toml`. `None` if there is no file: the defaults apply.
    ///
    /// The working directory is not searched: it may be an untrusted checkout.
    ///
    /// # Errors
    /// If an explicitly named file does not exist.
    pub fn locate(&self, explicit: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
        Ok(self.named(explicit)?.or_else(|| self.usual()))
    }

    /// The configuration file that is asked for by name: `explicit`, else `$CEASED_CONFIG`.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn named(&self, explicit: Option<&Path>) -> Result<Option<PathBuf>, ConfigError> {
        let named = explicit
            .map(|path| (path, "--config"))
            .or_else(|| self.ceased_config.as_deref().map(|path| (path, "$CEASED_CONFIG")));
        if let Some((path, by)) = named {
            if exists(path) {
                return Ok(Some(path.to_owned()));
            }
            let what = format!("the configuration file named by {by} does not exist");
            return Err(ConfigError::of_file(path, what, "name an existing file, or leave it out"));
        }
        Ok(None)
    }

    /// The configuration file that is used when none is asked for.
    #[must_use]
    pub fn usual(&self) -> Option<PathBuf> {
        let found = [self.user_config(), Some(PathBuf::from(SYSTEM_CONFIG))];
        found.into_iter().flatten().find(|path| exists(path))
    }

    /// Where the configuration of this user belongs; `None` without a home.
    #[must_use]
    pub fn user_config(&self) -> Option<PathBuf> {
        let home = self.config_home.clone();
        let home = home.or_else(|| Some(self.home.as_ref()?.join(".config")));
        home.map(|dir| dir.join("ceased/config.toml"))
    }
}

/// Whether the file exists or its absence is uncertain: an inaccessible file is reported when it is
/// read, instead of being skipped silently.
fn exists(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

/// The path in a variable, if absolute.
fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    value.map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(dir: &Path) -> Environment {
        Environment {
            ceased_config: None,
            home: Some(dir.join("home")),
            config_home: None,
            state_home: None,
            state_directory: None,
            sockets: SocketPaths::default(),
        }
    }

    fn put(path: &Path) -> PathBuf {
        std::fs::create_dir_all(path.parent().expect("a file has a parent")).expect("mkdir");
        std::fs::write(path, "").expect("write");
        path.to_owned()
    }

    #[test]
    fn first_existing_file_is_found() {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut env = environment(dir.path());
        let system = Path::new(SYSTEM_CONFIG);
        let last = exists(system).then(|| system.to_owned());
        assert_eq!(env.locate(None), Ok(last));

        let in_home = put(&dir.path().join("home/.config/ceased/config.toml"));
        assert_eq!(env.locate(None), Ok(Some(in_home)));
        env.config_home = Some(dir.path().join("xdg"));
        let in_xdg = put(&dir.path().join("xdg/ceased/config.toml"));
        assert_eq!(env.locate(None), Ok(Some(in_xdg)));
        let by_variable = put(&dir.path().join("variable.toml"));
        env.ceased_config = Some(by_variable.clone());
        assert_eq!(env.locate(None), Ok(Some(by_variable)));
        let explicit = put(&dir.path().join("explicit.toml"));
        assert_eq!(env.locate(Some(&explicit)), Ok(Some(explicit)));
    }

    #[test]
    fn missing_named_file_is_an_error() {
        let mut env = environment(Path::new("/nowhere"));
        env.ceased_config = Some("/nowhere/a.toml".into());
        let error = env.locate(None).expect_err("missing");
        assert_eq!(
            error.to_string(),
            "the configuration file named by $CEASED_CONFIG does not exist (/nowhere/a.toml); \
             name an existing file, or leave it out"
        );
        let error = env.locate(Some(Path::new("b.toml"))).expect_err("missing");
        assert!(error.to_string().starts_with("the configuration file named by --config"));
    }

    #[test]
    fn default_paths_follow_the_environment() {
        let mut env = environment(Path::new("/d"));
        assert_eq!(env.state_dir(), Path::new("/d/home/.local/state/ceased"));
        assert_eq!(env.socket(), Path::new("/run/ceased/ceased.sock"));
        env.state_home = Some("/s".into());
        env.sockets.own = vec!["/run/user/7/ceased/ceased.sock".into()];
        assert_eq!(env.state_dir(), Path::new("/s/ceased"));
        assert_eq!(env.socket(), Path::new("/run/user/7/ceased/ceased.sock"));
        env.state_directory = Some("/var/lib/x".into());
        assert_eq!(env.state_dir(), Path::new("/var/lib/x"));
        env = Environment { home: None, state_home: None, state_directory: None, ..env };
        assert_eq!(env.state_dir(), Path::new("/var/lib/ceased"));
        assert_eq!(absolute(Some("relative".into())), None);
        assert_eq!(absolute(Some("/a".into())), Some("/a".into()));
    }
}
