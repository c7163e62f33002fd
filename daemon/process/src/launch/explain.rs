//! Reasons why a command did not start, in words for a user.

use crate::launch::command::{Launch, WorkingDir};
use crate::limit_hint::limit_hint;
use crate::sys::{Fault, Step};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

/// Maximum length of a name, argument or path in an error message, in characters.
const NAMED_CHARS_MAX: usize = 200;

/// Quotes, escapes and truncates text for an error message.
pub(crate) fn shown(text: impl AsRef<OsStr>) -> String {
    let text = text.as_ref().to_string_lossy();
    let mut short: String = text.chars().take(NAMED_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// Error text for a command that did not start.
pub(crate) fn explain(launch: &Launch, fault: Fault) -> String {
    let error = io::Error::from_raw_os_error(fault.errno);
    let program = launch.argv.first().cloned().unwrap_or_default();
    match fault.step {
        Step::Cgroup => format!("cannot put the command into its control group: {error}"),
        Step::Descriptors => explain_resources("connect the command's descriptors", &error),
        Step::Session => format!("cannot start a session for the command: {error}"),
        Step::Credentials => {
            let uid = launch.user.unwrap_or_default();
            format!(
                "cannot run the command as uid {uid}: {error}; only a daemon running as root can \
                 run commands as another user"
            )
        }
        Step::Limits => format!("cannot set the command's resource limits: {error}"),
        Step::Cwd => explain_directory(launch, &error),
        Step::Exec => format!("cannot run {}: {error}{}", shown(&program), hint(&program, &error)),
        Step::Namespace | Step::Ids | Step::Mounts => unavailable(fault),
        Step::Interpreter => format!(
            "cannot run {}: {error}; the file exists, but its interpreter does not",
            shown(&program)
        ),
    }
}

/// Error text for a command that cannot have a pid namespace, with the remedy.
pub(crate) fn unavailable(fault: Fault) -> String {
    let error = io::Error::from_raw_os_error(fault.errno);
    let what = match fault.step {
        Step::Ids => "cannot map the user into a user namespace",
        Step::Mounts => "cannot mount /proc for a pid namespace",
        Step::Cgroup
        | Step::Descriptors
        | Step::Session
        | Step::Limits
        | Step::Credentials
        | Step::Cwd
        | Step::Exec
        | Step::Interpreter
        | Step::Namespace => "cannot create a pid namespace",
    };
    format!("isolation = \"pid\": {what}: {error}; {NAMESPACE_HINT}, or set isolation = \"none\"")
}

/// How to allow pid namespaces.
const NAMESPACE_HINT: &str = "run the daemon as root, or allow user namespaces to its user (sysctl \
                              user.max_user_namespaces, user.max_pid_namespaces, kernel.unprivileged_userns_clone, \
                              AppArmor, the container's seccomp profile)";

fn explain_directory(launch: &Launch, error: &io::Error) -> String {
    let cwd = match (&launch.cwd, launch.user) {
        (None, Some(uid)) => {
            return format!("cannot enter the home directory of uid {uid}: {error}");
        }
        (None, None) => WorkingDir::from("."),
        (Some(cwd), _) => cwd.clone(),
    };
    let (path, base) = (shown(cwd.path()), shown(&cwd.base));
    match error.raw_os_error() {
        Some(libc::EXDEV) if cwd.below.is_some() => format!(
            "cannot enter the working directory {path}: it must stay below {base}, and a symbolic \
             link on the way leads out of it or is absolute"
        ),
        Some(libc::ELOOP) if cwd.below.is_some() => format!(
            "cannot enter the working directory {path}: it must stay below {base}, and a symbolic \
             link on the way can be followed only on a kernel with openat2"
        ),
        _ => format!("cannot enter the working directory {path}: {error}"),
    }
}

fn hint(program: &OsStr, error: &io::Error) -> &'static str {
    let is_path = program.as_bytes().contains(&b'/');
    match error.raw_os_error() {
        Some(libc::ENOENT) if is_path => "",
        Some(libc::ENOENT) => "; not found in the tool's PATH",
        Some(libc::E2BIG) => "; its arguments or environment are too long, use stdin instead",
        Some(libc::EACCES) if is_path => "; check that it is an executable file",
        Some(libc::EACCES) => {
            "; the program or a directory of the tool's PATH is not accessible to the daemon"
        }
        Some(libc::ENOEXEC) => "; it is neither a program of this machine nor a readable script",
        _ => "",
    }
}

/// Error text for exhausted resources.
pub(crate) fn explain_resources(what: &str, error: &io::Error) -> String {
    match limit_hint(error) {
        Some(remedy) => format!("cannot {what}: {error}; {remedy} or run fewer jobs at once"),
        None => format!("cannot {what}: {error}"),
    }
}
