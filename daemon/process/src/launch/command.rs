//! A command to run as the work of one job.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::ids::JobId;
use crate::isolation::Isolation;
use crate::launch::inherit::Inherit;
use crate::output::OutputOptions;

/// Bytes that are kept of each output stream of a command if its launch does not say.
const OUTPUT_BYTES_DEFAULT: usize = 64 * 1024;

/// A command to run as the work of one job.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The job it is for; a number that no other launch of the same supervisor has.
    pub job: JobId,
    /// The program and its arguments; never seen by a shell. A program with a `/` in it is a path,
    /// relative to `cwd`; another is looked for in the `PATH` the tool will have.
    pub argv: Vec<OsString>,
    /// The working directory; the supervisor's own when `None`.
    pub cwd: Option<WorkingDir>,
    /// Added to the inherited environment, or put in its place.
    pub env: Vec<(OsString, OsString)>,
    /// What it inherits of this process's environment.
    pub inherit: Inherit,
    /// What the tool reads from its standard input; `/dev/null` when `None`.
    pub stdin: Option<Vec<u8>>,
    /// The user it runs as; the one of this process when `None`.
    pub user: Option<u32>,
    /// What separates it from other processes.
    pub isolation: Isolation,
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
            user: None,
            isolation: Isolation::None,
            output: OutputOptions::kept(OUTPUT_BYTES_DEFAULT),
        }
    }
}

/// A working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingDir {
    /// A directory that the one who wrote the command chose; symbolic links are followed. Empty: the
    /// home directory of the user that the command runs as, and `below` is an absolute path in it.
    pub base: PathBuf,
    /// A directory below it that somebody else chose: nothing on the way there, no `..` and no
    /// symbolic link, leads out of `base`, or the command does not start.
    pub below: Option<PathBuf>,
}

impl WorkingDir {
    /// The path as a whole.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.below.as_ref().map_or_else(|| self.base.clone(), |below| self.base.join(below))
    }
}

impl<T: Into<PathBuf>> From<T> for WorkingDir {
    /// A directory without a part that somebody else chose.
    fn from(base: T) -> Self {
        Self { base: base.into(), below: None }
    }
}
