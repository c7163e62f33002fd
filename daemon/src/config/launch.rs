//! The start of the processes of a server or an agent.

use std::ffi::OsString;
use std::path::PathBuf;

use ceased_process::{Bounds, Inherit, Isolation};

use super::variables::Variables;
use super::{EnvFile, RunAs};
#[cfg(feature = "config")]
use super::{
    bounds::{bounds, describe_bounds},
    check::Checker,
    entry::Entry,
    env_file::variable_flaw,
    forms::ISOLATION,
    identities,
    json::Ordered,
    kinds::{FilePath, Flag},
    raw,
    values::Text,
};

/// The start of the processes of a server or an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// Working directory; that of the daemon if `None`.
    pub cwd: Option<PathBuf>,
    /// Variables that are set.
    pub env: Variables,
    /// Variables inherited from the daemon.
    pub inherit: Inherit,
    /// File of further variables.
    pub env_file: Option<EnvFile>,
    /// User of its processes.
    pub run_as: Option<RunAs>,
    /// Isolation of its processes from others.
    pub isolation: Isolation,
    /// Bounds of the resources of one process tree.
    pub bounds: Bounds,
}

impl Launch {
    /// The variables beside inherited ones, later ones first in effect.
    ///
    /// # Errors
    /// If its `env_file` has not been read.
    pub(crate) fn variables(&self) -> Result<Vec<(OsString, OsString)>, String> {
        self.env.after(self.env_file.as_ref())
    }
}

#[cfg(feature = "config")]
impl Launch {
    /// Checks the keys; `usual` is the isolation without the key.
    pub(super) fn of(
        environment: &raw::Environment,
        confinement: &raw::Confinement,
        usual: Isolation,
        check: &mut Checker<'_>,
    ) -> Self {
        Self {
            cwd: environment.cwd.read(&FilePath, check),
            env: env(&environment.env, check),
            inherit: inherited(environment, check),
            env_file: environment.env_file.read(&FilePath, check).map(EnvFile::at),
            run_as: identities::run_as(&confinement.run_as, check),
            isolation: confinement.isolation.or(usual, &ISOLATION, check),
            bounds: bounds(confinement, check),
        }
    }

    /// Describes it, as far as it is configured. Values of variables may be secrets and are not shown.
    pub(super) fn describe(&self, more: &mut impl FnMut(String)) {
        if let Some(cwd) = &self.cwd {
            more(format!("cwd {}", cwd.display()));
        }
        describe_user(self.run_as, self.isolation, more);
        describe_bounds(&self.bounds, more);
        describe_inherited(&self.inherit, more);
        if let Some(file) = &self.env_file {
            more(format!("env_file {}", file.path.display()));
        }
        let names: Vec<&str> = self.env.names().collect();
        if !names.is_empty() {
            more(format!("env {}", names.join(" ")));
        }
    }
}

/// Describes user and isolation of processes, as far as they are configured.
#[cfg(feature = "config")]
pub(super) fn describe_user(
    run_as: Option<RunAs>,
    isolation: Isolation,
    more: &mut impl FnMut(String),
) {
    match run_as {
        None => {}
        Some(RunAs::Daemon) => more("run_as daemon".into()),
        Some(RunAs::Peer) => more("run_as peer".into()),
        Some(RunAs::User(uid)) => more(format!("run_as uid {uid}")),
    }
    if isolation == Isolation::Pid {
        more("isolation pid".into());
    }
}

/// Describes the variables that are inherited beside the usual ones.
#[cfg(feature = "config")]
pub(super) fn describe_inherited(inherit: &Inherit, more: &mut impl FnMut(String)) {
    if inherit.everything {
        more("inherit_env true".into());
    }
    if !inherit.also.is_empty() {
        more(format!("pass_env {}", inherit.also.join(" ")));
    }
}

/// Variables that are set, by their names.
#[cfg(feature = "config")]
fn env(raw: &Entry<Ordered<Text>>, check: &mut Checker<'_>) -> Variables {
    let table = raw.key().table;
    let mut variables = Vec::new();
    for (name, value) in raw.pairs() {
        let at = name.span().start;
        let (name, value) = (name.get_ref(), value.get_ref());
        if let Some(hint) = variable_flaw(name) {
            check.problem(at, format!("`env` in {table} sets {name:?}"), hint);
        } else if value.contains('\0') {
            // The value may be a secret.
            let what = format!("`env` in {table} sets {name:?} to a text with a NUL byte");
            check.problem(at, what, "must not contain a NUL byte");
        } else {
            variables.push((name.clone(), value.clone()));
        }
    }
    Variables(variables)
}

/// Variables that a command inherits from the daemon's environment.
#[cfg(feature = "config")]
pub(super) fn inherited(raw: &raw::Environment, check: &mut Checker<'_>) -> Inherit {
    let table = raw.pass_env.key().table;
    let everything = raw.inherit_env.or(false, &Flag, check);
    let mut also = Vec::new();
    for written in raw.pass_env.elements() {
        let (name, at) = (written.get_ref(), written.span().start);
        let stem = name.strip_suffix('*').unwrap_or(name);
        let hint = if name == "*" {
            Some("to pass all variables of the daemon set inherit_env = true")
        } else if stem.contains('*') {
            Some("`*` is allowed only at the end of a name")
        } else {
            variable_flaw(stem)
        };
        match hint {
            None => also.push(name.clone()),
            Some(hint) => check.problem(at, format!("`pass_env` in {table} names {name:?}"), hint),
        }
    }
    if let (true, Some(at)) = (everything, raw.pass_env.at()) {
        let what = format!("this {table} has both `pass_env` and inherit_env = true");
        check.problem(at, what, "all variables are passed then; leave one of them out");
    }
    Inherit { everything, also }
}
