//! Installation of the official clients: pinned versions, below the target folder, kept between
//! runs.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::processes;

/// Longest duration of an installation, generous because the network may be slow.
const INSTALL_WITHIN: Duration = Duration::from_secs(600);

/// An installed client.
#[derive(Debug)]
pub(crate) struct Client {
    /// The interpreter.
    pub(crate) program: PathBuf,
    /// The client's script; its argument is the path of a setup file.
    pub(crate) script: PathBuf,
}

/// The TypeScript client; `None` with a printed line if there is no Node.js.
pub(crate) fn typescript() -> Option<Client> {
    node(&["kit.mjs", "client.mjs"], "client.mjs")
}

/// The TypeScript client of 2026-07-28; `None` with a printed line if there is no Node.js.
pub(crate) fn modern() -> Option<Client> {
    node(&["kit.mjs", "modern.mjs"], "modern.mjs")
}

/// The TypeScript clients of both eras, over HTTP; `None` with a printed line if there is no
/// Node.js.
pub(crate) fn typescript_over_http() -> Option<Client> {
    node(&["kit.mjs", "cutter.mjs", "http.mjs"], "http.mjs")
}

/// The Python client over HTTP; `None` with a printed line if there is no Python.
pub(crate) fn python_over_http() -> Option<Client> {
    python().map(|client| Client { script: source_path("http_client.py"), ..client })
}

/// The Python client of 2026-07-28 over HTTP; `None` with a printed line if there is no Python.
pub(crate) fn modern_python_over_http() -> Option<Client> {
    modern_python().map(|client| Client { script: source_path("http_modern_client.py"), ..client })
}

/// The TypeScript client that authorizes; `None` with a printed line if there is no Node.js.
pub(crate) fn typescript_oauth() -> Option<Client> {
    node(&["oauth.mjs"], "oauth.mjs")
}

/// The Python client that authorizes; `None` with a printed line if there is no Python.
pub(crate) fn python_oauth() -> Option<Client> {
    python().map(|client| Client { script: source_path("oauth_client.py"), ..client })
}

/// The checker of resource servers; `None` with a printed line if there is no Python.
pub(crate) fn authlab() -> Option<Client> {
    python_with("venv-authlab", "requirements-authlab.txt", "authlab.py")
}

/// The TypeScript client of ACP; `None` with a printed line if there is no Node.js.
pub(crate) fn acp() -> Option<Client> {
    node(&["acp.mjs", "acp_agent.mjs", "acp_v2.mjs", "acp_v2_agent.mjs"], "acp.mjs")
}

/// The TypeScript client of version 2 of ACP; `None` with a printed line if there is no Node.js.
pub(crate) fn acp_version_2() -> Option<Client> {
    acp().map(|client| Client { script: client.script.with_file_name("acp_v2.mjs"), ..client })
}

/// The official conformance suite and the MCP Inspector, with the Node.js that they need.
#[derive(Debug)]
pub(crate) struct Suite {
    /// Node.js.
    pub(crate) node: PathBuf,
    /// Program of the suite.
    pub(crate) program: PathBuf,
    /// Program of the MCP Inspector.
    pub(crate) inspector: PathBuf,
}

/// The conformance suite; `None` with a printed line if there is no npm.
pub(crate) fn suite() -> Option<Suite> {
    if version("npm").is_none_or(|(major, _)| major < 9) {
        return missing("OFFICIAL SUITE'S", "npm 9 or newer");
    }
    let folder = home("suite");
    let _lock = lock(&folder);
    install_packages(&folder, "suite/");
    let modules = folder.join("node_modules");
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let node = modules.join(format!("node-linux-{machine}/bin/node"));
    if !node.is_file() {
        return missing("OFFICIAL SUITE'S", "Node.js 22 from npm for this processor");
    }
    let packages = modules.join("@modelcontextprotocol");
    Some(Suite {
        node,
        program: packages.join("conformance/dist/index.js"),
        inspector: packages.join("inspector/clients/launcher/build/index.js"),
    })
}

/// Installs the packages that a folder of pins names, unless they are installed.
fn install_packages(folder: &Path, pins_in: &str) {
    let pins = source(&format!("{pins_in}package-lock.json"));
    if is_stamped(folder, &pins) {
        return;
    }
    afresh(folder);
    for name in ["package.json", "package-lock.json"] {
        place_as(&format!("{pins_in}{name}"), name, folder);
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder);
    install(&mut npm, folder);
    stamp(folder, &pins);
}

/// Installs a Node.js client from these files of this folder.
fn node(files: &[&str], script: &str) -> Option<Client> {
    for (program, least) in [("node", 20), ("npm", 9)] {
        if version(program).is_none_or(|(major, _)| major < least) {
            return missing("TypeScript", &format!("{program} {least} or newer"));
        }
    }
    let folder = home("node");
    let _lock = lock(&folder);
    install_packages(&folder, "");
    // Node.js resolves modules relative to the importing script.
    for file in files {
        place(file, &folder);
    }
    Some(Client { program: "node".into(), script: folder.join(script) })
}

/// The Python client; `None` with a printed line if there is no Python.
pub(crate) fn python() -> Option<Client> {
    python_with("venv", "requirements.txt", "client.py")
}

/// The Python client of 2026-07-28; `None` with a printed line if there is no Python.
pub(crate) fn modern_python() -> Option<Client> {
    python_with("venv-modern", "requirements-modern.txt", "modern_client.py")
}

/// Installs a Python client into a folder of this name.
fn python_with(name: &str, requirements: &str, script: &str) -> Option<Client> {
    let Some(found) = version("python3").filter(|version| *version >= (3, 11)) else {
        return missing("Python", "python3 3.11 or newer, with venv");
    };
    let folder = home(name);
    let _lock = lock(&folder);
    let pins = format!("# python {found:?}\n{}", source(requirements));
    let program = folder.join("bin/python");
    if !is_stamped(&folder, &pins) {
        afresh(&folder);
        install(Command::new("python3").args(["-m", "venv"]).arg(&folder), &folder);
        let mut pip = Command::new(&program);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        install(pip.arg("--requirement").arg(source_path(requirements)), &folder);
        stamp(&folder, &pins);
    }
    Some(Client { program, script: source_path(script) })
}

/// Major and minor version printed by `program --version`.
fn version(program: &str) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    let digits = said.trim().trim_start_matches(|c: char| !c.is_ascii_digit());
    let mut parts = digits.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// Reports a skipped client directly to the terminal, because the test harness captures output.
fn missing<T>(client: &str, what: &str) -> Option<T> {
    let text = format!("THE {client} CLIENT IS NOT TESTED: this machine has no {what}");
    assert!(env::var_os("CI").is_none(), "{text}; with $CI set that is a failure");
    let line = "=".repeat(text.len());
    let _ = writeln!(io::stderr(), "{line}\n{text}\n{line}");
    None
}

/// The client's folder.
fn home(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target");
    target.join("sdk").join(name)
}

/// Holds a lock on a client's folder against other tests and processes.
fn lock(folder: &Path) -> File {
    let path = folder.with_extension("lock");
    let parent = path.parent().expect("a client's home is in a folder");
    fs::create_dir_all(parent).unwrap_or_else(|why| panic!("{}: {why}", parent.display()));
    let file = File::create(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    file.lock().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    file
}

fn source_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/sdk").join(name)
}

fn source(name: &str) -> String {
    let path = source_path(name);
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Writes a file into a client's folder atomically, because another test may be reading it.
fn place(name: &str, folder: &Path) {
    place_as(name, name, folder);
}

fn place_as(from: &str, name: &str, folder: &Path) {
    let (new, path) = (folder.join(format!("{name}.new")), folder.join(name));
    fs::write(&new, source(from))
        .and_then(|()| fs::rename(&new, &path))
        .unwrap_or_else(|why| panic!("{}: {why}", path.display()));
}

/// Whether exactly these pins are installed.
fn is_stamped(folder: &Path, pins: &str) -> bool {
    fs::read_to_string(folder.join("installed")).is_ok_and(|found| found == pins)
}

fn stamp(folder: &Path, pins: &str) {
    fs::write(folder.join("installed"), pins).expect("a client's home can be written to");
}

fn afresh(folder: &Path) {
    // The folder may be missing.
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
}

fn install(command: &mut Command, folder: &Path) {
    let log = folder.with_extension("log");
    let _ = fs::remove_file(&log);
    let ended = processes::run(command, &log, INSTALL_WITHIN);
    if !ended.as_ref().is_ok_and(std::process::ExitStatus::success) {
        let said = fs::read_to_string(&log).unwrap_or_default();
        panic!("{command:?} failed ({ended:?}); is a package registry in reach?\n{said}");
    }
}
