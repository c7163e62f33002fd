//! The start of the processes of a server or an agent.

use std::ffi::OsString;
use std::path::PathBuf;

use ceased_process::{Bounds, Inherit, Isolation};

use super::variables::Variables;
use super::{EnvFile, RunAs};
#[cfg(feature = "config")]
use super::{
    bounds::{bounds, describe_bounds},
    check::{Checker, Key},
    forms::isolation,
    identities, raw,
    server_table::env,
    tool::inherited,
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
    /// Checks the keys; `table` is the heading of theirs, `usual` the isolation without the key.
    pub(super) fn of(
        table: &'static str,
        environment: &raw::Environment,
        confinement: &raw::Confinement,
        usual: Isolation,
        check: &mut Checker<'_>,
    ) -> Self {
        let key = |name| Key { table, name };
        let cwd = environment.cwd.as_ref().and_then(|it| check.path(key("cwd"), it));
        let env_file = environment.env_file.as_ref().and_then(|it| check.path(key("env_file"), it));
        Self {
            cwd,
            env: env(table, environment.env.as_ref(), check),
            inherit: inherited(table, environment, check),
            env_file: env_file.map(EnvFile::at),
            run_as: identities::run_as(table, confinement.run_as.as_ref(), check),
            isolation: isolation(key("isolation"), confinement.isolation.as_ref(), usual, check),
            bounds: bounds(table, confinement, check),
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
