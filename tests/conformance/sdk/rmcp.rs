//! The client of the Rust SDK, `rmcp`, over HTTP/1.1 on a Unix socket, and the build of its programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ceased_tests::daemon::{Config, Daemon, wait_until};

use super::processes;
use super::server::read;

/// Longest duration of the build.
const BUILT_WITHIN: Duration = Duration::from_secs(600);
/// Longest duration of a run of it.
const RUN_WITHIN: Duration = Duration::from_secs(60);

/// A program of the package `rmcp`, which is built before.
pub(crate) fn built(program: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target");
    let target = target.join("sdk/rmcp");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/sdk/rmcp/Cargo.toml");
    std::fs::create_dir_all(&target).expect("the target folder can be written to");
    let log = target.join(format!("{program}.log"));
    let mut build = Command::new(env!("CARGO"));
    build
        .args(["build", "--locked", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target);
    let ended = processes::run(&mut build, &log, BUILT_WITHIN);
    assert!(ended.is_ok_and(|status| status.success()), "{program} was not built:\n{}", read(&log));
    target.join("debug").join(program)
}

/// A session of the client, whose abandoned call is cancelled and leaves no
/// job.
#[test]
fn rust_client_over_a_unix_socket() {
    let program = built("rmcp-client");
    let folder = tempfile::Builder::new().prefix("ceased-rmcp-").tempdir().expect("a folder");
    let socket = folder.path().join("http.sock");
    let tools = format!(
        "[[listen]]\ntransport = \"http\"\npath = {socket:?}\n\
         [[tool]]\nname = \"long\"\nbuiltin = \"sleep\"\n"
    );
    let daemon = Daemon::start(&Config { tools: &tools, ..Config::default() });
    let log = folder.path().join("client.log");
    let mut client = Command::new(program);
    let ended = processes::run(client.arg(&socket), &log, RUN_WITHIN);
    let said = read(&log);
    assert!(ended.is_ok_and(|status| status.success()), "the client failed:\n{said}");
    for line in ["server true", "abandoned true", "closed"] {
        assert!(said.lines().any(|it| it == line), "no {line:?} in:\n{said}");
    }
    wait_until("the abandoned call has no job", || {
        daemon.status()["jobs"].as_array().is_some_and(Vec::is_empty)
    });
}
