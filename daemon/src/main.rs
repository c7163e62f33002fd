//! The `ceased` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    ceased::cli::main(&ceased::cli::ClientOnly)
}
