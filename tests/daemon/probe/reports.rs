//! The report of a probe in CI: baselines, checks that are left out, exit codes, levels, and the
//! text of each check.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use ceased_tests::binary::ceased;
use ceased_tests::output_schema::OutputSchema;
use ceased_tests::workspace;

use super::{Probe, document, output_of};

fn said(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(ceased()).arg("probe").args(args).output().unwrap();
    texts(output)
}

fn texts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The levels of all rules in the ledger.
fn ledger() -> BTreeMap<String, String> {
    let text = fs::read_to_string(workspace::root().join("tests/rules.toml")).unwrap();
    let mut levels = BTreeMap::new();
    let mut id = String::new();
    for line in text.lines() {
        let value = |key: &str| {
            let rest = line.strip_prefix(key)?.strip_prefix(" = \"")?;
            rest.strip_suffix('"').map(str::to_owned)
        };
        if let Some(found) = value("id") {
            id = found;
        } else if let Some(level) = value("level") {
            levels.insert(id.clone(), level);
        }
    }
    levels
}

/// Each section of the three pages is the text that the program prints, with the levels of the
/// ledger.
#[test]
fn each_check_is_explained_as_in_the_documentation() {
    let levels = ledger();
    for page in ["probe", "probe-agents", "probe-clients"] {
        let text =
            fs::read_to_string(workspace::root().join(format!("docs/src/{page}.md"))).unwrap();
        let sections = text.split("\n### ").skip(1);
        let sections: Vec<String> = sections.map(|it| format!("{}\n", it.trim_end())).collect();
        let ids = sections.iter().map(|it| it.lines().next().unwrap()).collect::<Vec<_>>();
        let (code, explained, _) = said(&["--explain", &ids.join(",")]);
        assert_eq!((code, &explained), (Some(0), &sections.join("\n")), "{page}");
        for section in sections {
            let (_, rules) = section.lines().nth(2).unwrap().rsplit_once('(').unwrap();
            for rule in rules.trim_end_matches(").").split(", ") {
                let (id, level) = rule.split_once(' ').unwrap();
                assert_eq!(levels[id], level, "{section}");
            }
        }
    }
}

#[test]
fn wrong_checks_are_wrong_use() {
    for option in ["--only", "--skip", "--explain"] {
        let (code, _, error) = said(&[option, "cancel-unknwon", "--", "true"]);
        assert_eq!(code, Some(2), "{option}");
        assert!(error.contains("did you mean \"cancel-unknown\"?"), "{error}");
    }
    let (code, _, error) = said(&["--only", "storm", "--skip", "storm", "--", "true"]);
    assert!(code == Some(2) && error.contains("no check is left"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "storm # known\n\nstrom\n").unwrap();
    let path = file.path().to_string_lossy();
    let (code, _, error) = said(&["--baseline", &path, "--", "true"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("line 3") && error.contains("did you mean \"storm\"?"), "{error}");
    let (code, _, error) = said(&["--baseline", "/nonexistent/file", "--", "true"]);
    assert!(code == Some(2) && error.contains("/nonexistent/file"), "{error}");
}

/// A tool that the server does not have is no deviation of the server.
#[test]
fn wrong_tool_is_wrong_use() {
    let probe = Probe::new();
    for options in [&["--tool", "nope"][..], &["--tool", "sleep", "--stubborn-tool", "nope"]] {
        let mut command = Command::new(ceased());
        command.arg("probe").args(options).args(["--", "python3", "-S"]).arg(&probe.script);
        let (code, out, error) = texts(output_of(command.arg(probe.dir.path())));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
        assert!(error.contains("no tool \"nope\"") && error.contains("sleep"), "{error}");
    }
}

/// Subjects of each kind and transport that do not start or are not reached.
#[test]
fn probe_that_could_not_be_done_has_its_own_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (absent, junit) = (path("absent"), path("junit.xml"));
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/mcp");
    for args in [
        &["--", &absent][..],
        &["--", "sh", "-c", "echo broken >&2; exit 7"],
        &["--acp", "--", &absent],
        &["--acp", "--", "false"],
        &["--client", "--", &absent],
        &["--client", "--", "false"],
        &["--socket", &absent],
        &["--socket", &absent, "--", "false"],
        &["--url", &url],
        &["--url", "http://127.0.0.1:{port}/mcp", "--", "false"],
    ] {
        let args = [&["--timeout", "1s", "--junit", &junit], args].concat();
        let (code, out, error) = said(&args);
        assert_eq!((code, out.as_str()), (Some(3), ""), "{args:?}: {error}");
        assert!(error.contains("cannot probe the"), "{args:?}: {error}");
        let report = fs::read_to_string(&junit).unwrap();
        assert!(report.contains("failures=\"0\" errors=\"1\""), "{args:?}: {report}");
    }
    let (_, _, error) = said(&["--", "sh", "-c", "echo broken >&2; exit 7"]);
    assert!(error.contains("exited with code 7") && error.contains("broken"), "{error}");
}

/// A baseline is written, makes the next run green, and its entries that hold now are named.
#[test]
fn known_deviations_are_no_failure() {
    let probe = Probe::new();
    let file = |name: &str| probe.dir.path().join(name).to_string_lossy().into_owned();
    let (known, junit, markdown) = (file("known.txt"), file("junit.xml"), file("probe.md"));
    let only = ["--only", "cancel-unknown,cancel-answered,eof-exit,cancel-malformed"];
    let run = |options: &[&str], faults: &[&str]| {
        texts(probe.run(&[&only[..], options].concat(), faults))
    };
    let faults = ["cancel-unknown", "cancel-answered"];
    let (code, out, error) = run(&["--write-baseline", &known], &faults);
    assert_eq!(code, Some(0), "{out}{error}");
    let text = fs::read_to_string(&known).unwrap();
    let ids = text.lines().filter_map(|line| line.split('#').next().map(str::trim));
    assert_eq!(ids.filter(|id| !id.is_empty()).collect::<Vec<_>>(), faults, "{text}");
    let baseline = ["--baseline", &known, "--junit", &junit, "--markdown", &markdown];
    let (code, out, error) = run(&baseline, &faults[..1]);
    assert_eq!(code, Some(0), "{out}{error}");
    assert!(out.contains("cancel-answered is in the baseline, and holds now"), "{out}");
    assert!(out.contains("3 hold, 1 deviate (1 known), 0 unknown"), "{out}");
    let report = fs::read_to_string(&junit).unwrap();
    assert!(report.contains("failures=\"0\" errors=\"0\" skipped=\"1\""), "{report}");
    assert!(report.contains("message=\"known deviation: "), "{report}");
    let page = fs::read_to_string(&markdown).unwrap();
    assert!(page.contains("| known | cancel-unknown | MAY | CAN-09 |"), "{page}");
    // A deviation beyond it.
    let news = ["cancel-unknown", "cancel-malformed"];
    let (code, out, _) = run(&["--baseline", &known, "--json", &junit], &news);
    assert_eq!(code, Some(1), "{out}");
    let found = serde_json::from_str(&fs::read_to_string(&junit).unwrap()).unwrap();
    OutputSchema::read().check("probe", &found).unwrap();
    assert_eq!(found["baseline"]["known"], serde_json::json!(["cancel-unknown"]));
    // Left out, it is not judged.
    let skip = ["--baseline", &known, "--skip", "cancel-malformed"];
    let (code, out, _) = run(&skip, &news);
    assert!(code == Some(0) && out.contains("1 skipped"), "{out}");
}

/// A whole id names one check, although others begin so.
#[test]
fn whole_id_names_one_check() {
    let probe = Probe::new();
    let found =
        document(&probe.run(&["--json", "-", "--only", "task", "--skip", "task-cancel"], &[]));
    assert_eq!(found["skipped"], serde_json::json!(["task-cancel"]));
    let ids = found["checks"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap());
    let ids: Vec<&str> = ids.collect();
    assert!(ids.contains(&"task-cancel-result") && !ids.contains(&"task-cancel"), "{ids:?}");
}

/// Tools, none of which waits.
const QUICK: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "quick", "version": "1"}},
        "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
    }
    if "id" in message:
        result = results.get(message["method"], {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// Unknown checks with one reason have one line, and a green run says that it saw no cancel.
#[test]
fn unseen_cancels_are_stated() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (script, junit) = (path("quick.py"), path("junit.xml"));
    fs::write(&script, QUICK).unwrap();
    let wanted = "handshake,cancel,work,task,extension";
    let mut command = Command::new(ceased());
    command.args(["probe", "--junit", &junit, "--only", wanted, "--", "python3", "-S", &script]);
    let (code, out, error) = texts(output_of(&mut command));
    assert_eq!(code, Some(0), "{out}{error}");
    let lines = |text: &str| out.lines().filter(|line| line.contains(text)).count();
    assert_eq!(lines("13 checks"), 1, "{out}");
    assert_eq!(lines("the server declares no tasks for this tool: task-*"), 1, "{out}");
    assert_eq!(lines("the server does not declare the tasks extension: extension-*"), 1, "{out}");
    assert_eq!(lines("nothing about cancels of running work was seen: no tool seems"), 1, "{out}");
    let row = ["holds", "MAY", "cancel-unknown"];
    assert!(out.lines().any(|line| line.split_whitespace().take(3).eq(row)), "{out}");
    let note = out.lines().find(|line| line.starts_with("note: without effect"));
    assert!(note.is_none_or(|note| note.len() < 100), "{out}");
    let report = fs::read_to_string(Path::new(&junit)).unwrap();
    for part in [
        "classname=\"probe.server.tasks\" name=\"task-ttl\" time=\"0.000\"",
        "<property name=\"server\" value=\"quick 1\"/>",
        "<property name=\"revision\" value=\"2025-11-25\"/>",
        "<property name=\"level\" value=\"SHOULD\"/>",
        "<property name=\"rules\" value=\"CAN-08 SHOULD\"/>",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
}
