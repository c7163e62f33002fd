//! The environment of a command: a clean one, plus configured variables.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use crate::account::Account;
use crate::launch::command::Launch;

/// Default search path when the environment has no `PATH`.
pub(crate) const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// The variable that, together with its name, marks a process as a guard.
pub(crate) const GUARD_MARK: &str = "CEASED_GUARD";
/// Variable with the number of the job that a process belongs to.
pub(crate) const JOB: &str = "CEASED_JOB";
/// Variables of this process that every command inherits.
const CLEAN: [&str; 7] = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER"];
/// Prefixes of further inherited variables.
const CLEAN_PREFIXES: [&str; 2] = ["LC_", "XDG_"];
/// Variables of this process's user session, meaningless for another user.
const OF_THE_USER: [&str; 5] =
    ["DBUS_SESSION_BUS_ADDRESS", "MAIL", "SSH_AUTH_SOCK", "TMPDIR", "XAUTHORITY"];
/// Prefix of further variables of the user session.
const OF_THE_USER_PREFIX: &str = "XDG_";

/// Variables of this process that commands may inherit: all but the private ones.
pub(crate) fn inherited() -> BTreeMap<OsString, OsString> {
    std::env::vars_os().filter(|(name, _)| !is_private(name)).collect()
}

/// Whether a variable is private to this process, so that no command may inherit it.
#[must_use]
pub fn is_private(name: &OsStr) -> bool {
    let own = [GUARD_MARK, JOB, "CEASED_TASK", "CEASED_PROGRESS", "CEASED_TOKEN"];
    own.iter().any(|private| name == *private) || is_of_the_service_manager(name)
}

/// Whether a variable is between the service manager and this process alone. A child that believed
/// it would tell the manager lies, or take descriptors for sockets.
fn is_of_the_service_manager(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name == b"NOTIFY_SOCKET" || name.starts_with(b"WATCHDOG_") || name.starts_with(b"LISTEN_")
}

/// The names of the variables of this process that are between the service manager and it alone.
pub fn variables_of_the_service_manager() -> impl Iterator<Item = OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| is_of_the_service_manager(name))
}

fn starts_with(name: &OsStr, prefix: &str) -> bool {
    name.as_bytes().starts_with(prefix.as_bytes())
}

fn is_clean(name: &OsStr) -> bool {
    CLEAN.iter().any(|clean| name == *clean)
        || CLEAN_PREFIXES.iter().any(|prefix| starts_with(name, prefix))
}

fn is_of_the_user(name: &OsStr) -> bool {
    OF_THE_USER.iter().any(|ours| name == *ours) || starts_with(name, OF_THE_USER_PREFIX)
}

/// The environment of a command. Later sources override earlier ones: inherited variables, the
/// account of another user, the launch, and the supervisor.
pub(crate) fn environment(
    launch: &Launch,
    inherited: &BTreeMap<OsString, OsString>,
    account: Option<&Account>,
) -> BTreeMap<OsString, OsString> {
    let inherit = &launch.inherit;
    let is_kept = |name: &OsStr| {
        (inherit.everything || is_clean(name)) && (account.is_none() || !is_of_the_user(name))
    };
    let pair = |(name, value): (&OsString, &OsString)| (name.clone(), value.clone());
    let mut env: BTreeMap<OsString, OsString> =
        inherited.iter().filter(|(name, _)| is_kept(name)).map(pair).collect();
    env.entry("PATH".into()).or_insert_with(|| PATH_DEFAULT.into());
    if let Some(account) = account {
        env.insert("HOME".into(), account.home.clone().into());
        env.insert("SHELL".into(), account.shell.clone().into());
        env.insert("USER".into(), account.name.clone().into());
        env.insert("LOGNAME".into(), account.name.clone().into());
        if let Some(dir) = &account.runtime_dir {
            env.insert("XDG_RUNTIME_DIR".into(), dir.clone().into());
        }
    }
    env.extend(inherited.iter().filter(|(name, _)| inherit.names(name)).map(pair));
    env.extend(launch.env.iter().cloned());
    env.insert(JOB.into(), launch.job.to_string().into());
    if launch.pipes.is_none() {
        env.insert("CEASED_PROGRESS".into(), "3".into());
    }
    env
}

#[cfg(test)]
mod tests {
    use crate::ids::JobId;

    use super::*;
    use crate::launch::inherit::Inherit;

    fn launch(inherit: Inherit) -> Launch {
        Launch {
            job: JobId::new(7),
            argv: vec!["t".into()],
            cwd: None,
            env: vec![("A".into(), "mine".into()), ("CEASED_JOB".into(), "forged".into())],
            inherit,
            stdin: None,
            pipes: None,
            user: None,
            isolation: crate::isolation::Isolation::None,
            bounds: crate::bounds::Bounds::default(),
            output: crate::output::OutputOptions::default(),
        }
    }

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    const OURS: [(&str, &str); 12] = [
        ("A", "theirs"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("CEASED_TASK", "outer"),
        ("HOME", "/ours"),
        ("LANG", "C"),
        ("LC_ALL", "C"),
        ("LD_LIBRARY_PATH", "/lib"),
        ("PATH", "/bin"),
        ("SSH_AUTH_SOCK", "/s"),
        ("TMPDIR", "/ours/tmp"),
        ("USER", "root"),
        ("XDG_CONFIG_HOME", "/ours/c"),
    ];

    fn account() -> Account {
        Account {
            name: "ann".into(),
            uid: 7,
            gid: 7,
            groups: vec![7],
            home: "/home/ann".into(),
            shell: "/bin/zsh".into(),
            runtime_dir: Some("/run/user/7".into()),
        }
    }

    /// The names and values of an environment, without those that every job has.
    fn made(inherit: Inherit, account: Option<&Account>) -> String {
        let mut env = environment(&launch(inherit), &map(&OURS), account);
        for (name, value) in [("CEASED_JOB", "j7"), ("CEASED_PROGRESS", "3"), ("A", "mine")] {
            assert_eq!(env.remove(OsStr::new(name)), Some(value.into()), "{name}");
        }
        let pair = |(name, value): (OsString, OsString)| format!("{name:?}={value:?}");
        env.into_iter().map(pair).collect::<Vec<_>>().join(" ").replace('"', "")
    }

    /// SEC-01
    #[test]
    fn environment_is_clean_unless_variables_are_added() {
        let clean = "HOME=/ours LANG=C LC_ALL=C PATH=/bin TMPDIR=/ours/tmp USER=root \
                     XDG_CONFIG_HOME=/ours/c";
        assert_eq!(made(Inherit::default(), None), clean);
        let also = vec!["AWS_*".into(), "LD_LIBRARY".into(), "MISSING".into()];
        let more = made(Inherit { everything: false, also }, None);
        assert_eq!(more, format!("AWS_SECRET_ACCESS_KEY=secret {clean}"));
        let all = made(Inherit { everything: true, also: Vec::new() }, None);
        for name in ["AWS_SECRET_ACCESS_KEY=", "LD_LIBRARY_PATH=", "SSH_AUTH_SOCK="] {
            assert!(all.contains(name), "{all}");
        }
    }

    #[test]
    fn environment_of_another_user_has_that_users_paths() {
        let account = account();
        let theirs = "HOME=/home/ann LANG=C LC_ALL=C LOGNAME=ann PATH=/bin SHELL=/bin/zsh USER=ann \
                      XDG_RUNTIME_DIR=/run/user/7";
        assert_eq!(made(Inherit::default(), Some(&account)), theirs);
        let all = made(Inherit { everything: true, also: Vec::new() }, Some(&account));
        assert!(all.contains("AWS_SECRET_ACCESS_KEY=secret"), "{all}");
        for name in ["/ours", "SSH_AUTH_SOCK"] {
            assert!(!all.contains(name), "{all}");
        }
        let named = Inherit { everything: false, also: vec!["TMPDIR".into()] };
        assert!(made(named, Some(&account)).contains("TMPDIR=/ours/tmp"));
    }

    #[test]
    fn path_is_always_set() {
        let env = environment(&launch(Inherit::default()), &BTreeMap::new(), None);
        assert_eq!(env.get(OsStr::new("PATH")), Some(&PATH_DEFAULT.into()));
    }

    #[test]
    fn variables_of_the_service_manager_are_private() {
        for private in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS", GUARD_MARK] {
            assert!(is_private(private.as_ref()), "{private}");
        }
        for name in ["PATH", "NOTIFY", "LISTEN", "LISTENER", "XLISTEN_FDS", "STATE_DIRECTORY"] {
            assert!(!is_private(name.as_ref()), "{name}");
        }
    }
}
