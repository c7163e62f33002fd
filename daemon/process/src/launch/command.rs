//! A command to run as the work of one job.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::bounds::Bounds;
use crate::ids::JobId;
use crate::isolation::Isolation;
use crate::launch::inherit::Inherit;
use crate::launch::stdio_pipes::CommandPipes;
use crate::output::OutputOptions;

/// Bytes that are kept of each output stream of a command if its launch does not say.
const OUTPUT_BYTES_DEFAULT: usize = 64 * 1024;

/// A command to run for one job.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The job; a number unique among the launches of this supervisor.
    pub job: JobId,
    /// The program and its arguments; no shell is involved. A program with a `/` is a path relative
    /// to `cwd`; other names are searched in the tool's `PATH`.
    pub argv: Vec<OsString>,
    /// The working directory; the supervisor's if `None`.
    pub cwd: Option<WorkingDir>,
    /// Variables that extend or override the inherited environment.
    pub env: Vec<(OsString, OsString)>,
    /// Variables inherited from this process.
    pub inherit: Inherit,
    /// Standard input; `/dev/null` if `None`.
    pub stdin: Option<Vec<u8>>,
    /// The command's ends of [`stdio_pipes`](crate::stdio_pipes): then the caller talks with the
    /// command, `stdin` and the options for standard output have no effect, and the command has no
    /// progress pipe. Standard error is captured as always.
    pub pipes: Option<CommandPipes>,
    /// User id of the command; that of this process if `None`.
    pub user: Option<u32>,
    /// Isolation from other processes.
    pub isolation: Isolation,
    /// Bounds of its resources, as far as the containment enforces them
    /// ([`Containment::enable`](crate::Containment::enable)).
    pub bounds: Bounds,
    /// Treatment of its output.
    pub output: OutputOptions,
}

impl Launch {
    /// A command with nothing but a program and its arguments: in this process's directory, as its
    /// user, in a clean environment, without input. Set the other fields as needed.
    ///
    /// [`Runner::spawn`](crate::Runner::spawn) chooses its number; for a
    /// [`Supervisor`](crate::Supervisor) set [`Launch::job`].
    #[must_use]
    pub fn new<A: Into<OsString>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            job: JobId::new(0),
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: None,
            env: Vec::new(),
            inherit: Inherit::default(),
            stdin: None,
            pipes: None,
            user: None,
            isolation: Isolation::None,
            bounds: Bounds::default(),
            output: OutputOptions::kept(OUTPUT_BYTES_DEFAULT),
        }
    }
}

/// A working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingDir {
    /// Directory chosen by the author of the command; symbolic links are followed. Empty: the home
    /// directory of the command's user, and `below` is an absolute path in it.
    pub base: PathBuf,
    /// Directory below `base` chosen by the caller: if `..` or a symbolic link leads out of `base`,
    /// the command does not start.
    pub below: Option<PathBuf>,
}

impl WorkingDir {
    /// The whole path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.below.as_ref().map_or_else(|| self.base.clone(), |below| self.base.join(below))
    }
}

impl<T: Into<PathBuf>> From<T> for WorkingDir {
    /// A directory without a part chosen by the caller.
    fn from(base: T) -> Self {
        Self { base: base.into(), below: None }
    }
}
