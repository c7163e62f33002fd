//! The `ceased` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    ceased::process::reset_signals();
    ceased::process::guard::init();
    ceased::cli::main(&ceased::LocalBackend)
}
