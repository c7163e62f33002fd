//! A launch in the form the kernel takes it: program paths, arguments, environment.

use crate::account::Account;
use crate::launch::command::Launch;
use crate::launch::environment::{JOB, PATH_DEFAULT, environment};
use crate::launch::explain::shown;
use crate::launch::limits;
use crate::sys::{Credentials, Exec, Image, Limit};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// A launch in the form of the kernel, which can be sent to a guard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prepared(Image);

impl Prepared {
    /// Prepares a launch with an inherited environment, and with the account of its user if
    /// configured; the error text is for a user.
    pub(crate) fn new(
        launch: &Launch,
        account: Option<&Account>,
        inherited: &BTreeMap<OsString, OsString>,
    ) -> Result<Self, String> {
        let program = launch
            .argv
            .first()
            .filter(|program| !program.is_empty())
            .ok_or("cannot run an empty command: name a program as its first element")?;
        let env = environment(launch, inherited, account);
        let argv = (1..)
            .zip(&launch.argv)
            .map(|(n, arg)| {
                c_string(arg).ok_or_else(|| nul(&format!("element {n} of the command")))
            })
            .collect::<Result<_, _>>()?;
        let programs = candidates(program, env.get(OsStr::new("PATH")))
            .iter()
            .map(|path| c_string(path).ok_or_else(|| nul("the PATH")))
            .collect::<Result<_, _>>()?;
        let (cwds, below) = directories(launch, account)?;
        let env = env
            .iter()
            .map(|(name, value)| {
                let pair = [name.as_bytes(), b"=", value.as_bytes()].concat();
                let named = || nul(&format!("the environment variable {}", shown(name)));
                CString::new(pair).map_err(|_| named())
            })
            .collect::<Result<_, _>>()?;
        let credentials = account
            .map(|account| Credentials {
                uid: account.uid,
                gid: account.gid,
                groups: account.groups.clone(),
            })
            // A daemon that already runs as this user need not, and may not, change credentials.
            .filter(|wanted| wanted.uid != rustix::process::geteuid().as_raw());
        let limits = limits::of_command(credentials.is_some());
        let nice = launch.bounds.nice.unwrap_or_default();
        Ok(Self(Image { programs, argv, env, cwds, below, credentials, limits, nice }))
    }

    /// The job's number from the environment.
    pub(crate) fn job(&self) -> Option<&CStr> {
        let pair = self.0.env.iter().find(|pair| pair.as_bytes().starts_with(JOB.as_bytes()))?;
        pair.as_bytes_with_nul()
            .get(JOB.len() + 1..)
            .and_then(|rest| CStr::from_bytes_with_nul(rest).ok())
    }

    /// Required owner of the command's pipes, so that it can open them by name.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.0.credentials.as_ref().map(|credentials| credentials.uid)
    }

    /// A launch of this program that ends at once, for a trial.
    pub(crate) fn trial(program: &Path, argv: &[&CStr], env: &[&CStr]) -> Option<Self> {
        let owned = |list: &[&CStr]| list.iter().map(|text| CString::from(*text)).collect();
        let programs = vec![c_string(program.as_os_str())?];
        let (argv, env) = (owned(argv), owned(env));
        Some(Self(Image {
            programs,
            argv,
            env,
            cwds: Vec::new(),
            below: None,
            credentials: None,
            limits: Vec::new(),
            nice: 0,
        }))
    }

    /// The exec arguments of the launch.
    pub(crate) fn exec<'a>(
        self,
        descriptors: [BorrowedFd<'a>; 4],
        cgroup: Option<BorrowedFd<'a>>,
        dies_with_caller: bool,
    ) -> Exec<'a> {
        Exec { image: self.0, descriptors, cgroup, dies_with_caller, announced: None }
    }

    /// Encodes the launch for a guard: five lists, each a count and length-prefixed strings; then a
    /// count and that many numbers, user and groups; then a count of limits, three numbers each;
    /// then the niceness.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Image { programs, argv, env, cwds, below, credentials, limits, nice } = &self.0;
        let mut bytes = Vec::new();
        let number = |bytes: &mut Vec<u8>, n: usize| bytes.extend((n as u64).to_le_bytes());
        let below: Vec<_> = below.iter().cloned().collect();
        for list in [programs, argv, env, cwds, &below] {
            number(&mut bytes, list.len());
            for string in list {
                number(&mut bytes, string.count_bytes());
                bytes.extend_from_slice(string.as_bytes());
            }
        }
        let ids = credentials.iter().flat_map(|Credentials { uid, gid, groups }| {
            [uid, gid].into_iter().chain(groups).copied()
        });
        let ids: Vec<u32> = ids.collect();
        number(&mut bytes, ids.len());
        bytes.extend(ids.into_iter().flat_map(u32::to_le_bytes));
        number(&mut bytes, limits.len());
        for Limit { resource, soft, hard } in limits {
            bytes.extend(
                [u64::from(*resource), *soft, *hard].into_iter().flat_map(u64::to_le_bytes),
            );
        }
        bytes.push(*nice);
        bytes
    }

    /// Decodes the output of [`Prepared::encode`].
    pub(crate) fn decode(mut bytes: &[u8]) -> io::Result<Self> {
        let bytes = &mut bytes;
        let (programs, argv, env) = (list(bytes)?, list(bytes)?, list(bytes)?);
        let (cwds, below) = (list(bytes)?, list(bytes)?.pop());
        let (credentials, limits) = (credentials(bytes)?, limits_of(bytes)?);
        let nice = *bytes.first().ok_or_else(cut)?;
        Ok(Self(Image { programs, argv, env, cwds, below, credentials, limits, nice }))
    }
}

/// Candidate working directories, of which the first existing one is used, and the path below it.
fn directories(
    launch: &Launch,
    account: Option<&Account>,
) -> Result<(Vec<CString>, Option<CString>), String> {
    let cwds = match (&launch.cwd, account) {
        (Some(_), Some(account)) if is_below_home(launch) => vec![account.home.as_path()],
        (Some(_), None) if is_below_home(launch) => {
            return Err("cannot run below the home directory of a user that is not known".into());
        }
        (Some(cwd), _) => vec![cwd.base.as_path()],
        // A user without a home directory starts at the root. The child decides that: the file
        // system may hang.
        (None, Some(account)) => vec![account.home.as_path(), Path::new("/")],
        (None, None) => Vec::new(),
    };
    let path = |path: &Path| c_string(path.as_os_str()).ok_or_else(|| nul("the working directory"));
    let below = launch.cwd.as_ref().and_then(|cwd| cwd.below.as_deref());
    let below = match (below, account, cwds.as_slice()) {
        (Some(below), Some(account), [home]) if *home == account.home && is_below_home(launch) => {
            Some(below_home(below, home)?)
        }
        (below, ..) => below,
    };
    let below = below.map(path).transpose()?;
    Ok((cwds.into_iter().map(path).collect::<Result<_, _>>()?, below))
}

fn is_below_home(launch: &Launch) -> bool {
    launch.cwd.as_ref().is_some_and(|cwd| cwd.base.as_os_str().is_empty())
}

/// The part of an absolute path that is below a home directory.
fn below_home<'p>(dir: &'p Path, home: &Path) -> Result<&'p Path, String> {
    match dir.strip_prefix(home) {
        Ok(below) if below.as_os_str().is_empty() => Ok(Path::new(".")),
        Ok(below) => Ok(below),
        Err(_) => Err(format!(
            "cannot run in {}: it is not below {}, the home directory of the user that the command \
             runs as",
            shown(dir),
            shown(home)
        )),
    }
}

fn limits_of(bytes: &mut &[u8]) -> io::Result<Vec<Limit>> {
    let mut limits = Vec::new();
    for _ in 0..number(bytes)? {
        let mut next = || {
            let (number, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
            *bytes = rest;
            Ok::<_, io::Error>(u64::from_le_bytes(*number))
        };
        let resource = u32::try_from(next()?).map_err(|_| cut())?;
        limits.push(Limit { resource, soft: next()?, hard: next()? });
    }
    Ok(limits)
}

fn credentials(bytes: &mut &[u8]) -> io::Result<Option<Credentials>> {
    let mut ids = Vec::new();
    for _ in 0..number(bytes)? {
        let (id, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
        *bytes = rest;
        ids.push(u32::from_le_bytes(*id));
    }
    match ids.as_slice() {
        [] => Ok(None),
        [_] => Err(cut()),
        [uid, gid, groups @ ..] => {
            Ok(Some(Credentials { uid: *uid, gid: *gid, groups: groups.to_vec() }))
        }
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a launch that was cut off")
}

fn number(bytes: &mut &[u8]) -> io::Result<usize> {
    let (n, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    *bytes = rest;
    usize::try_from(u64::from_le_bytes(*n)).map_err(|_| cut())
}

fn list(bytes: &mut &[u8]) -> io::Result<Vec<CString>> {
    let count = number(bytes)?;
    let mut strings = Vec::new();
    for _ in 0..count {
        let length = number(bytes)?;
        let (string, rest) = bytes.split_at_checked(length).ok_or_else(cut)?;
        *bytes = rest;
        strings.push(CString::new(string).map_err(|_| cut())?);
    }
    Ok(strings)
}

/// Candidate paths of a program, in order.
///
/// Empty elements of `PATH` mean the working directory elsewhere; here they are ignored, since a
/// tool's working directory often contains files of other users.
fn candidates(program: &OsStr, path: Option<&OsString>) -> Vec<OsString> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.to_owned()];
    }
    let path = path.map_or(OsStr::new(PATH_DEFAULT), OsString::as_os_str);
    std::env::split_paths(path)
        .filter(|dir| !dir.as_os_str().is_empty())
        .map(|dir| dir.join(program).into_os_string())
        .collect()
}

/// Why a program cannot be run now; `None` if it can, or if that depends on the working directory.
/// `path` is the tool's own `PATH`, if set.
#[must_use]
pub fn unrunnable(program: &OsStr, path: Option<OsString>) -> Option<String> {
    let path = path.or_else(|| std::env::var_os("PATH"));
    let candidates = candidates(program, path.as_ref());
    let mode =
        |path: &OsString| std::fs::metadata(path).ok().map(|found| found.permissions().mode());
    let is_program = |mode: u32| mode & 0o170_000 == 0o100_000 && mode & 0o111 != 0;
    let may_be =
        |path: &OsString| Path::new(path).is_relative() || mode(path).is_some_and(is_program);
    if candidates.iter().any(may_be) {
        return None;
    }
    Some(if program.as_bytes().contains(&b'/') {
        let is_there = candidates.iter().any(|path| mode(path).is_some());
        if is_there { "which is not an executable file" } else { "which does not exist" }.to_owned()
    } else {
        let path = path.as_deref().unwrap_or(OsStr::new(PATH_DEFAULT));
        format!("which was not found in its PATH, {}", shown(path))
    })
}

fn c_string(text: &OsStr) -> Option<CString> {
    CString::new(text.as_bytes()).ok()
}

fn nul(what: &str) -> String {
    format!(
        "cannot run the command: {what} contains a NUL byte, which is not allowed in arguments of a process"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::launch::command::WorkingDir;

    fn launch(argv: &[&str]) -> Launch {
        let mut launch = Launch::new(argv);
        launch.job = JobId::new(7);
        launch
    }

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn launch_survives_the_way_to_a_guard() {
        let mut launch = launch(&["true", "", "two words"]);
        let below = Some(WorkingDir { base: "/tmp".into(), below: Some("a/b".into()) });
        for (cwd, user) in [(None, None), (below, Some(1)), (None, Some(0))] {
            (launch.cwd, launch.user) = (cwd, user);
            launch.bounds.nice = user.map(|_| 7);
            let account = user.map(|uid| Account::of(uid).unwrap());
            let inherited = env(&[("PATH", "/a::/b")]);
            let prepared = Prepared::new(&launch, account.as_ref(), &inherited).unwrap();
            let bytes = prepared.encode();
            assert_eq!(Prepared::decode(&bytes).unwrap(), prepared);
            assert_eq!(prepared.job(), Some(c"j7"));
            for end in 0..bytes.len() {
                assert!(Prepared::decode(&bytes[..end]).is_err(), "{end}");
            }
        }
    }

    #[test]
    fn programs_are_looked_for_in_the_path() {
        let path = |path: &str| Some(OsString::from(path));
        assert_eq!(candidates("t".as_ref(), path("/a::/b").as_ref()), ["/a/t", "/b/t"]);
        assert_eq!(candidates("./t".as_ref(), path("/a").as_ref()), ["./t"]);
        assert_eq!(candidates("t".as_ref(), None).len(), 3);
    }

    #[test]
    fn impossible_commands_say_why() {
        for (argv, want) in [
            (&[] as &[&str], "empty command"),
            (&[""], "empty command"),
            (&["a\0b"], "element 1 of the command contains a NUL byte"),
            (&["a", "b\0"], "element 2 of the command contains a NUL byte"),
        ] {
            let reason = Prepared::new(&launch(argv), None, &BTreeMap::new()).unwrap_err();
            assert!(reason.contains(want), "{reason}");
        }
    }
}
