//! Commands as jobs: started, watched and, above all, stopped for real.
//!
//! A [`Supervisor`] runs every command of a program on one thread. It carries out [`Order`]s and
//! answers with [`Report`]s; when to be patient and when not is decided by whoever gives the
//! orders. Its one promise (STOP-01): when it reports a job as ended, no process that the job
//! started is alive, whatever session, group or parent it gave itself.
//!
//! How it keeps that is the [`Containment`]: control groups where the kernel lets us, a [`guard`]
//! process per job where not. It needs Linux 5.14 or newer, and `/proc`.
//!
//! ```text
//!                Order::Launch          Order::Terminate        Order::Kill
//!   engine ───────────┬──────────────────────┬──────────────────────┬────────▶ supervisor
//!                     ▼                      ▼                      ▼
//!                  running ─────────▶ SIGTERM, SIGCONT ───▶ SIGKILL until none is left
//!                     │                      │                      │
//!                     │ leader exits, others live on                │
//!                     ├────▶ Lingering       │                      │
//!                     ▼                      ▼                      ▼
//!                  Ended                   Ended                  Ended
//! ```

#![deny(unsafe_code)]

mod account;
mod cgroup;
mod containment;
#[doc(hidden)]
pub mod daemon_support;
pub mod guard;
mod ids;
mod isolation;
mod launch;
mod limit_hint;
mod nameless_file;
mod output;
mod proc;
mod ready;
mod supervisor;
mod sys;
mod tree;

pub use cgroup::Cgroup;
pub use containment::Containment;
pub use ids::JobId;
pub use isolation::Isolation;
pub use launch::{Inherit, Launch, WorkingDir};
pub use limit_hint::limit_hint;
pub use output::last_line::ReadProgress;
pub use output::plain_text;
pub use output::{Captured, OutputOptions, SharedOutput, Stream};
pub use proc::processes::Process;
pub use supervisor::report::{Ending, Exit, Located, Order, Report, Stopped};
pub use supervisor::{Orphans, Supervisor, SupervisorGone};
pub use tree::{EndError, ProcessTree, Runner, TreeState};

/// Undoes what the parent of this process left behind for its signals: unblocks all of them and
/// restores the default handling of those that are ignored, `SIGCHLD` first of all, without which
/// the kernel throws the exit codes of commands away.
///
/// `SIGPIPE`, which Rust ignores by itself, and the signals of a terminal (`SIGHUP`, `SIGINT`,
/// `SIGQUIT`, `SIGTSTP`, `SIGTTIN`, `SIGTTOU`), which `nohup` and shells ignore on purpose, stay as
/// they are. Call it as the first thing in `main`, before there is another thread.
pub fn reset_signals() {
    sys::reset_inherited_signals();
}
