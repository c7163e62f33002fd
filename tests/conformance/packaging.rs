//! Files beside the binary: units, snippets, manual pages, completions, the package. A test reports
//! a missing program and ends.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ceased_tests::binary::ceased;
use ceased_tests::daemon::wait_until;
use ceased_tests::output_schema::OutputSchema;
use ceased_tests::workspace;

/// Every public command.
const COMMANDS: &[&str] = &[
    "ps",
    "top",
    "serve",
    "stdio",
    "connect",
    "call",
    "run",
    "tools",
    "tasks",
    "get",
    "result",
    "cancel",
    "reload",
    "drain",
    "fleet",
    "stop",
    "view",
    "watch",
    "logs",
    "status",
    "check",
    "init",
    "adopt",
    "import",
    "servers",
    "restart",
    "approve",
    "login",
    "logout",
    "wrap",
    "probe",
    "trust",
    "store",
    "completions",
];

fn packaging() -> PathBuf {
    workspace::root().join("daemon/packaging")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Whether the machine has a program; prints a line if not.
fn has(program: &str, test: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: {test} needs {program}, which is not on this machine");
    }
    found
}

/// The list above equals the commands of `ceased --help`.
#[test]
fn list_of_commands_is_complete() {
    let help = run(Command::new(ceased()).arg("--help")).stdout;
    let help = String::from_utf8(help).unwrap();
    let commands = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let listed: Vec<&str> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    for name in &listed {
        assert!(COMMANDS.contains(name), "add {name} to this test");
    }
    assert!(COMMANDS.iter().all(|name| listed.contains(name)), "{listed:?}");
}

/// Commands that print no data: they relay messages, serve, draw a screen, or print a script.
const NO_DATA: &[&str] = &["top", "serve", "stdio", "connect", "wrap", "completions"];

/// Every command that prints data prints JSON, too, and the schema has its output. The option of
/// `call` has another name: its `--json` takes the arguments.
#[test]
fn every_command_that_prints_data_has_json() {
    let defined = OutputSchema::read().commands();
    let page = workspace::root().join("docs/src/reference/json.md");
    let page = fs::read_to_string(page).unwrap();
    let mut printing = std::collections::BTreeSet::new();
    for command in COMMANDS.iter().filter(|command| !NO_DATA.contains(command)) {
        let words: &[&str] = if *command == "store" { &["store", "check"] } else { &[command] };
        let help = run(Command::new(ceased()).args(words).arg("--help")).stdout;
        let help = String::from_utf8(help).unwrap();
        let option = if *command == "call" { "--json-result" } else { "--json" };
        let has = help.split_whitespace().any(|word| word == option);
        assert!(has, "`ceased {}` prints data and has no {option}", words.join(" "));
        let name = words.join("-");
        assert!(defined.contains(&name), "the schema has no definition {name}");
        assert!(page.contains(&format!("`{name}`")), "docs/src/reference/json.md lacks {name}");
        printing.insert(name);
    }
    assert_eq!(defined, printing, "the schema has definitions of no command");
}

/// The script of each shell asks the program, which knows every command.
#[test]
fn completions_ask_the_program() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(Command::new(ceased()).args(["completions", shell]));
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(
            script.contains("CEASED_COMPLETE") && script.contains("ceased"),
            "{shell}: {script}"
        );
    }
    let mut command = Command::new(ceased());
    command.args(["--", "ceased", ""]).env("CEASED_COMPLETE", "fish");
    let offered = String::from_utf8(run(&mut command).stdout).unwrap();
    for command in COMMANDS {
        assert!(offered.lines().any(|line| line.split('\t').next() == Some(command)), "{command}");
    }
}

#[test]
fn manual_pages_of_every_command() {
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(ceased()).arg("man").arg(dir.path().join("new")));
    let page = |name: &str| fs::read_to_string(dir.path().join("new").join(name));
    let top = page("ceased.1").unwrap();
    let version = String::from_utf8(run(Command::new(ceased()).arg("--version")).stdout).unwrap();
    for command in COMMANDS.iter().chain(&["store-check"]) {
        assert!(top.contains(command) || *command == "store-check", "{command}");
        let own = page(&format!("ceased-{command}.1")).unwrap_or_else(|_| panic!("{command}"));
        assert!(own.contains(".SH EXAMPLES"), "{command}");
        assert!(own.contains(".SH NAME") && own.contains(".SH OPTIONS"), "{command}");
        assert!(own.contains(".SH FILES") && own.contains(".SH ENVIRONMENT"), "{command}");
        let title = own.lines().find(|line| line.starts_with(".TH ")).unwrap_or_default();
        assert!(title.contains(&format!("\"{}\"", version.trim())), "{title}");
    }
    assert!(top.contains(".SH EXAMPLES"));
    assert!(page("ceased-man.1").is_err(), "a hidden command has no page");
}

/// A copy of the units that points to the binary just built.
fn units(of: &str, dir: &Path) -> Vec<PathBuf> {
    let from = packaging().join(of);
    let mut copies = Vec::new();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_file() {
            let text = fs::read_to_string(&path).unwrap();
            let binary = ceased().to_string_lossy();
            let copy = dir.join(name);
            fs::write(&copy, text.replace("/usr/bin/ceased", &binary)).unwrap();
            copies.push(copy);
        } else if name == "ceased.service.d" {
            let copy = dir.join(name);
            fs::create_dir(&copy).unwrap();
            for drop_in in fs::read_dir(path).unwrap().flatten() {
                fs::copy(drop_in.path(), copy.join(drop_in.file_name())).unwrap();
            }
        }
    }
    copies
}

#[test]
fn systemd_accepts_the_units() {
    if !has("systemd-analyze", "systemd_accepts_the_units") {
        return;
    }
    for (of, manager) in
        [("systemd", "--system"), ("systemd/peer", "--system"), ("systemd/user", "--user")]
    {
        let dir = tempfile::tempdir().unwrap();
        let units = units(of, dir.path());
        assert_eq!(units.len(), 2, "{units:?}");
        let mut verify = Command::new("systemd-analyze");
        verify.args([manager, "verify", "--man=no"]).args(&units);
        let output = run(verify.env("XDG_RUNTIME_DIR", dir.path()));
        // systemd only warns about directives that it does not know.
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("ceased"), "{said}");
    }
}

/// The units stay as tight as they are: the exposure of systemd, in tenths. The peer unit cannot hide
/// the files of users from their tools.
#[test]
fn units_are_not_exposed_more_than_needed() {
    if !has("systemd-analyze", "units_are_not_exposed_more_than_needed") {
        return;
    }
    for (unit, most) in [("ceased.service", "20"), ("peer/ceased-peer.service", "70")] {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", &format!("--threshold={most}")]);
        run(analyze.arg(packaging().join("systemd").join(unit)));
    }
}

/// The alerts for Prometheus are valid and fire when they should.
#[test]
fn alerts_fire_when_they_should() {
    if !has("promtool", "alerts_fire_when_they_should") {
        assert!(std::env::var_os("CI").is_none(), "with $CI set that is a failure");
        return;
    }
    let rules = packaging().join("monitoring/ceased.rules.yml");
    run(Command::new("promtool").args(["check", "rules"]).arg(rules));
    let cases = packaging().join("monitoring/ceased.rules.test.yml");
    run(Command::new("promtool").args(["test", "rules"]).arg(cases));
}

/// Each right of the root unit has its reason, and each reason its right.
#[test]
fn rights_of_the_peer_unit_have_reasons() {
    let unit = packaging().join("systemd/peer/ceased-peer.service");
    let unit = fs::read_to_string(unit).unwrap();
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let reasons: Vec<&str> = unit.lines().filter(|line| line.starts_with("# CAP_")).collect();
    for right in rights.split(' ') {
        let is_told = |reason: &&str| {
            let (named, why) = reason.split_once(": ").unwrap_or_default();
            named.trim_start_matches("# ").split(", ").any(|name| name == right) && why.len() > 20
        };
        assert!(reasons.iter().any(is_told), "{right} has no reason");
    }
    let named = reasons.iter().flat_map(|reason| {
        let (named, _) = reason.trim_start_matches("# ").split_once(':').unwrap_or_default();
        named.split(", ").collect::<Vec<_>>()
    });
    assert!(
        named.clone().all(|name| rights.contains(name)),
        "{named:?}",
        named = named.collect::<Vec<_>>()
    );
}

/// Settings of the units match the daemon's needs.
#[test]
fn units_and_configuration_agree() {
    let read = |name: &str| fs::read_to_string(packaging().join(name)).unwrap();
    let service = read("systemd/ceased.service");
    for line in ["Type=notify", "Delegate=yes", "KillMode=mixed", "WatchdogSec=20s"] {
        assert!(service.lines().any(|it| it == line), "{line}");
    }
    let set = |name: &str| {
        let start = format!("{name}=");
        service.lines().find(|line| line.starts_with(&start)).map(str::to_owned)
    };
    // With these directives the daemon would have no control groups, or could not identify its
    // peers.
    assert_eq!(set("ProtectControlGroups"), None);
    assert_eq!(set("PrivateUsers"), None);
    // The socket unit matches the section of the configuration.
    let socket = read("systemd/ceased.socket");
    let path = socket.lines().find_map(|line| line.strip_prefix("ListenStream=")).unwrap();
    assert!(read("config.toml").contains(&format!("path = {path:?}")), "{path}");
    let dir = Path::new(path).parent().unwrap().to_string_lossy().into_owned();
    assert!(read("tmpfiles.d/ceased.conf").contains(&format!("d {dir} ")), "{dir}");
    let config = packaging().join("config.toml");
    run(Command::new(ceased()).args(["check", "--config"]).arg(config));
}

/// The package has the right files and can be installed, removed and purged: with its maintainer
/// scripts on an overlay of this system, or without them below a directory.
#[test]
fn package_installs_and_purges() {
    if !Path::new("/usr/bin/dh_builddeb").exists() || !has("dpkg", "the_package") {
        eprintln!("skipped: package_installs_and_purges needs debhelper");
        assert!(std::env::var_os("CI").is_none(), "with $CI set that is a failure");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let deb = dir.path().join("ceased.deb");
    let mut build = Command::new(packaging().join("build-deb"));
    build.env("CEASED_BINARY", stripped(dir.path())).arg("--output").arg(&deb);
    build.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    run(build.current_dir(workspace::root()));
    let listing = run(Command::new("dpkg-deb").arg("--contents").arg(&deb)).stdout;
    let listing = String::from_utf8(listing).unwrap();
    for file in [
        "./usr/bin/ceased",
        "./etc/ceased/config.toml",
        "./usr/lib/systemd/system/ceased.service",
        "./usr/lib/systemd/system/ceased.socket",
        "./usr/lib/systemd/system/ceased.service.d/50-tools.conf",
        "./usr/lib/systemd/user/ceased.service",
        "./usr/lib/sysusers.d/ceased.conf",
        "./usr/lib/tmpfiles.d/ceased.conf",
        "./usr/share/man/man1/ceased.1",
        "./usr/share/man/man1/ceased-connect.1",
        "./usr/share/bash-completion/completions/ceased",
        "./usr/share/zsh/vendor-completions/_ceased",
        "./usr/share/fish/vendor_completions.d/ceased.fish",
        "./usr/lib/systemd/system/ceased-peer.service",
        "./usr/lib/systemd/system/ceased-peer.socket",
        "./etc/logrotate.d/ceased",
        "./usr/share/man/man5/ceased.toml.5",
        "./usr/share/ceased/output.schema.json",
        "./usr/share/doc/ceased/docs/hosts.md",
        "./usr/share/doc/ceased/docs/operations/service.md",
        "./usr/share/doc/ceased/copyright",
    ] {
        assert!(listing.contains(file), "{file} is not in the package:\n{listing}");
    }
    let control = dir.path().join("control");
    run(Command::new("dpkg-deb").arg("--control").arg(&deb).arg(&control));
    let conffiles = fs::read_to_string(control.join("conffiles")).unwrap();
    let mut conffiles: Vec<&str> = conffiles.lines().collect();
    conffiles.sort_unstable();
    assert_eq!(conffiles, ["/etc/ceased/config.toml", "/etc/logrotate.d/ceased"]);
    for script in ["postinst", "prerm", "postrm"] {
        run(Command::new("sh").arg("-n").arg(control.join(script)));
        let text = fs::read_to_string(control.join(script)).unwrap();
        assert!(!text.contains("#DEBHELPER#") && text.contains("ceased"), "{script}: {text}");
    }
    if !installed_over_a_copy(&deb) {
        eprintln!("skipped: the maintainer scripts; they need root and an overlay of this system");
        installed_below(&deb, &dir.path().join("root"));
    }
}

/// Unpacks and removes the package below `root` with dpkg; a changed conffile survives removal.
fn installed_below(deb: &Path, root: &Path) {
    let admin = root.join("var/lib/dpkg");
    for place in ["info", "updates", "triggers"] {
        fs::create_dir_all(admin.join(place)).unwrap();
    }
    for file in ["status", "available"] {
        fs::write(admin.join(file), "").unwrap();
    }
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root").arg(root).args(["--force-not-root", "--force-depends"]);
        dpkg.arg("--force-script-chrootless");
        dpkg
    };
    run(dpkg().arg("--unpack").arg(deb));
    let version = run(Command::new(root.join("usr/bin/ceased")).arg("--version")).stdout;
    assert!(String::from_utf8_lossy(&version).starts_with("ceased "));
    // The maintainer scripts act on the real system, so they cannot run below a directory.
    for script in ["prerm", "postrm"] {
        fs::write(admin.join(format!("info/ceased.{script}")), "#!/bin/sh\n").unwrap();
    }
    run(dpkg().args(["--remove", "ceased"]));
    assert!(!root.join("usr/bin/ceased").exists());
    run(dpkg().args(["--purge", "ceased"]));
    assert!(!root.join("etc/ceased/config.toml").exists());
}

/// An overlay of the root file system; its changes stay in memory and vanish with it.
const OVER_A_COPY: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/copy"
mount -t overlay none -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/copy"
cp "$2" "$1/copy/srv/ceased.deb"
echo possible
exec chroot "$1/copy" sh -ec '
dpkg --force-depends --install /srv/ceased.deb
ceased check --config /etc/ceased/config.toml
getent passwd ceased
dpkg --force-depends --remove ceased
test ! -e /usr/bin/ceased
test -e /etc/ceased/config.toml
dpkg --force-depends --purge ceased
test ! -e /etc/ceased
echo gone
'"#;

/// Installs, tries, removes and purges the package with its maintainer scripts; returns false if
/// the machine has no such overlay.
fn installed_over_a_copy(deb: &Path) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", OVER_A_COPY, "sh"]).arg(dir.path()).arg(deb);
    let Ok(output) = unshare.output() else { return false };
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let is_possible = out.contains("possible\n");
    assert!(!is_possible || out.ends_with("gone\n"), "{out}{err}");
    is_possible
}

/// The npm packages run the program itself where npm runs install scripts, and through Node.js where not.
#[test]
fn npm_packages_run_the_program() {
    if !has("python3", "the npm packages") || !has("npm", "the npm packages") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = stripped(dir.path());
    let cpu = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let mut build = Command::new(packaging().join("build-npm"));
    build.arg(format!("{cpu}={}", program.display())).arg("--out").arg(dir.path());
    let built = String::from_utf8(run(&mut build).stdout).unwrap();
    let version = |program: &Path| run(Command::new(program).arg("--version")).stdout;
    let expected = version(ceased());
    for scripts in ["--ignore-scripts=false", "--ignore-scripts"] {
        let project = dir.path().join(scripts);
        fs::create_dir(&project).unwrap();
        fs::write(project.join("package.json"), "{}").unwrap();
        let mut install = Command::new("npm");
        install.args(["install", "--offline", "--no-audit", "--no-fund", scripts]);
        run(install.args(built.lines()).current_dir(&project));
        let installed = project.join("node_modules/.bin/ceased");
        assert_eq!(version(&installed), expected, "{scripts}");
        // ELF: the program, with no Node.js between it and a host.
        let is_program = fs::read(&installed).unwrap().starts_with(b"\x7fELF");
        assert_eq!(is_program, scripts == "--ignore-scripts=false", "{scripts}");
    }
    // Node.js passes on how the program ended, and a signal.
    let script = dir.path().join("--ignore-scripts/node_modules/.bin/ceased");
    let mut wrong = Command::new(&script);
    assert_eq!(wrong.arg("--no-such-option").output().unwrap().status.code(), Some(2));
    let mut serving = Command::new(&script);
    serving.args(["wrap", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut serving = serving.stderr(Stdio::null()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", serving.id());
    let mut program = None;
    wait_until("the script starts the program", || {
        let child = fs::read_to_string(&children).unwrap_or_default();
        program = child.split_whitespace().next().map(|pid| PathBuf::from("/proc").join(pid));
        let name = program.as_ref().and_then(|at| fs::read_to_string(at.join("comm")).ok());
        name.is_some_and(|name| name.trim() == "ceased")
    });
    run(Command::new("kill").args(["-TERM", &serving.id().to_string()]));
    serving.wait().unwrap();
    let program = program.unwrap();
    wait_until("the program ends with the script", || !program.exists());
}

/// The program without debug information, which would take half a minute to compress. Some linkers
/// come without `strip`.
fn stripped(dir: &Path) -> PathBuf {
    let stripped = dir.join("ceased");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(ceased()).status();
    let is_stripped = strip.is_ok_and(|status| status.success());
    if is_stripped { stripped } else { ceased().to_path_buf() }
}

/// The manual page of the configuration has every line of the documented one.
#[test]
fn manual_page_of_the_configuration_is_whole() {
    let page =
        String::from_utf8(run(&mut Command::new(packaging().join("build-config-page"))).stdout);
    let page = page.unwrap().replace("\\-", "-").replace("\\(aq", "'").replace("\\&", "");
    let config = fs::read_to_string(workspace::root().join("config.toml")).unwrap();
    for line in config.lines().filter(|line| !line.contains('\\')) {
        assert!(page.contains(line), "{line}");
    }
}
