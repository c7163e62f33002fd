//! The hook by which a program becomes its own guard.

use std::env;
use std::process::exit;
use std::sync::atomic::Ordering;

use crate::guard::main;
use crate::guard::program::{HOOKED, NAME, TRIAL};
use crate::launch::environment::GUARD_MARK;
use crate::launch::limits;

/// Enables this program to act as its own guard. Call it first in `main`.
///
/// In an ordinary process it returns at once. In a process that was started as a guard it never
/// returns: it guards, and exits. A program that does not call it can still contain its tools with
/// control groups, or name another guard program (`Program::named`).
///
/// ```no_run
/// // The first statement of `main`:
/// ceased_process::guard::init();
/// ```
pub fn init() {
    limits::note_original();
    let is_named = env::args_os().next().is_some_and(|name| name == NAME);
    if is_named && env::var_os(GUARD_MARK).is_some() {
        if env::args_os().nth(1).is_some_and(|label| label == TRIAL) {
            exit(0);
        }
        exit(main::main());
    }
    HOOKED.store(true, Ordering::Relaxed);
}
