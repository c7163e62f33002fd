//! Commands as jobs: started, watched, and stopped with all their processes.
//!
//! A [`Supervisor`] runs every command of a program on one thread. It carries out [`Order`]s and
//! answers with [`Report`]s; deadlines are up to the sender of the orders. It guarantees (STOP-01):
//! when it reports a job as ended, no process started by the job is alive, whatever its session,
//! group or parent.
//!
//! A program that wants no orders and reports starts commands with a [`Runner`], one
//! [`ProcessTree`] each:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ceased_process::{Ending, Launch, Runner, TreeState, guard};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // First: this program may be started again as the guard of a process tree.
//!     guard::init();
//!     let runner = Runner::start()?;
//!     let mut tree = runner.spawn(Launch::new(["cargo", "test"]))?;
//!     match tree.wait(Duration::from_secs(60))? {
//!         TreeState::Ended(Ending::Exited(exit)) => println!("{}", exit.stdout.text()),
//!         // SIGTERM to every process of it, SIGKILL after two seconds: none is left then.
//!         _ => println!("{} processes were signalled", tree.end(Duration::from_secs(2))?.signalled),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The means is the [`Containment`]: control groups if available, else a [`guard`] process per job.
//! It needs Linux 5.14 or newer, and `/proc`.
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
//!
//! An id such as CAN-06 in this documentation names a rule; the page "Rules and their tests",
//! `docs/src/protocol/rules.md` in the repository, has each rule with its source and its tests.

#![deny(unsafe_code)]

mod account;
mod bounds;
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
mod null_device;
mod output;
mod proc;
mod ready;
#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod spawn_ways;
mod supervisor;
mod sys;
mod tree;

pub use bounds::{Bounds, Controller, Reached, Unenforced};
pub use cgroup::Cgroup;
pub use containment::Containment;
pub use ids::JobId;
pub use isolation::Isolation;
pub use launch::{CommandPipes, Inherit, Launch, OwnPipes, WorkingDir, stdio_pipes};
pub use limit_hint::limit_hint;
pub use output::last_line::ReadProgress;
pub use output::plain_text;
pub use output::{Captured, OutputOptions, SharedOutput, Stream, TakeOutput};
pub use proc::processes::Process;
pub use supervisor::report::{
    Births, Ending, Evidence, Exit, Located, Membership, Order, Report, Stopped,
};
pub use supervisor::usage::Usage;
pub use supervisor::{Orphans, Supervisor, SupervisorGone};
pub use tree::{EndError, ProcessTree, Runner, TreeState};

/// Resets inherited signal settings: unblocks all signals and restores the default action of
/// ignored ones, notably `SIGCHLD`, without which the kernel discards the exit codes of commands.
///
/// `SIGPIPE`, which Rust ignores, and the signals of a terminal (`SIGHUP`, `SIGINT`, `SIGQUIT`,
/// `SIGTSTP`, `SIGTTIN`, `SIGTTOU`), which `nohup` and shells ignore on purpose, are left
/// unchanged. Call it first in `main`, before another thread exists.
pub fn reset_signals() {
    sys::reset_inherited_signals();
}
