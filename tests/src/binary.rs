//! The built binaries, for suites that run real programs.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Once, OnceLock};

/// The `ceased` binary of the running test's profile, built again if necessary.
///
/// # Panics
///
/// When the binary is missing and cannot be built.
#[must_use]
pub fn ceased() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| fresh("ceased"))
}

/// The example agent, as [`ceased()`].
///
/// # Panics
///
/// When the binary is missing and cannot be built.
#[must_use]
pub fn acp_agent() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| fresh("examples/acp_agent"))
}

/// The example `hello`, as [`ceased()`].
///
/// # Panics
///
/// When the binary is missing and cannot be built.
#[must_use]
pub fn hello() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| fresh("examples/hello"))
}

/// The example server for the official conformance suite, as [`ceased()`].
///
/// # Panics
///
/// When the binary is missing and cannot be built.
#[must_use]
pub fn conformance() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| fresh("examples/conformance"))
}

/// Writes a program, or a script with an interpreter line, that can be started at once.
///
/// Another process writes it. A descriptor of the test process would be inherited by a child that
/// another test forks at that moment, and no file that is open for writing can be started.
///
/// # Panics
///
/// When the file cannot be written.
pub fn write_program(path: &Path, bytes: &[u8]) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell can be started");
    let mut pipe = writer.stdin.take().expect("the input is a pipe");
    let written = pipe.write_all(bytes);
    drop(pipe);
    let status = writer.wait().expect("a child can be waited for");
    assert!(written.is_ok() && status.success(), "{}: {written:?}, {status}", path.display());
}

/// Targets of the programs that tests start, of the whole workspace: with the examples among them,
/// Cargo selects the same features of dependencies as `cargo test --workspace` and compiles none
/// of them a second time.
const PROGRAMS: [&str; 9] = [
    "--workspace",
    "--bin",
    "ceased",
    "--example",
    "acp_agent",
    "--example",
    "conformance",
    "--example",
    "hello",
];

/// Builds the programs once for each process and returns the path of one, `place` below the
/// directory of the profile.
fn fresh(place: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    // <target>/<profile>/deps/<test>, or <target>/<profile>/<program>
    let test = env::current_exe().expect("a test knows its own path");
    let beside = test.parent().expect("a program is in a directory");
    let profile_dir = if beside.ends_with("deps") { beside.parent() } else { Some(beside) };
    let profile_dir = profile_dir.expect("tests are built below a profile");
    // A test run by cargo rebuilds the program; a test run by hand uses the existing one.
    if let Some(cargo) = env::var_os("CARGO") {
        BUILT.call_once(|| build(Path::new(&cargo), profile_dir));
    }
    let binary = profile_dir.join(place);
    let wanted = PROGRAMS.join(" ");
    assert!(binary.is_file(), "{} is missing: cargo build {wanted}", binary.display());
    binary
}

/// The profile `dev` is the only one with a directory of another name.
fn build(cargo: &Path, profile_dir: &Path) {
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    let target_dir = profile_dir.parent().expect("a profile is below a target directory");
    let mut command = Command::new(cargo);
    // Variables of Cargo about the running test. The script of a dependency that asks for one of them (that of
    // `ring`) would run again for each other value, and everything above it would be compiled again.
    let of_package =
        ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_"];
    for (name, _) in env::vars_os() {
        let is_told = |start: &&str| name.as_encoded_bytes().starts_with(start.as_bytes());
        if of_package.iter().any(is_told) {
            command.env_remove(&name);
        }
    }
    let status = command
        .args(["build", "--quiet", "--profile", profile])
        .args(PROGRAMS)
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "cargo build {} failed", PROGRAMS.join(" "));
}
