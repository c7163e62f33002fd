//! Standard error of a program behind `ceased wrap` is passed on: hosts show it in their logs.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use ceased_tests::binary::ceased;
use serde_json::{Value, json};

/// Prints lines on standard error, then answers, and says goodbye there.
const PROGRAM: &str = r#"
import json, sys
print("first line", file=sys.stderr, flush=True)
for number in range(int(sys.argv[1])):
    print("x" * 1023, file=sys.stderr)
sys.stderr.flush()
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {},
            "serverInfo": {"name": "s", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif message.get("id") is not None:
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
print("goodbye", file=sys.stderr, flush=True)
"#;

/// Standard error of `ceased wrap`, which is read only after the answer of the program.
fn stderr_of(options: &[&str], lines: u32, version: &Value) -> String {
    let mut command = Command::new(ceased());
    command.arg("wrap").args(options).args(["--", "python3", "-S", "-c", PROGRAM]);
    command.arg(lines.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientCapabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    writeln!(input, "{hello}").unwrap();
    let mut answer = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut answer).unwrap();
    assert!(answer.contains("\"result\""), "{answer}");
    let reader = std::thread::spawn({
        let mut stderr = child.stderr.take().unwrap();
        move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            // Its own log, such as that it ends processes of a daemon that another test has killed.
            let lines = text.split_inclusive('\n');
            lines.skip_while(|line| line.starts_with("{\"timestamp\"")).collect::<String>()
        }
    });
    drop(input);
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn standard_error_is_passed_on() {
    for (options, version) in
        [(&[] as &[&str], json!("2025-11-25")), (&["--acp"] as &[&str], json!(1))]
    {
        let text = stderr_of(options, 3, &version);
        let line = "x".repeat(1023);
        let wanted = format!("first line\n{line}\n{line}\n{line}\n");
        assert!(text.starts_with(&wanted), "{options:?}: {text}");
        assert!(text.contains("\ngoodbye\n"), "{options:?}: {text}");
        assert_eq!(text.matches("first line").count(), 1, "{options:?}: {text}");
        assert!(!text.contains("dropped"), "{options:?}: {text}");
    }
}

/// A host that does not read its child's standard error holds up neither the program nor its
/// answers, and is told of the gap.
#[test]
fn unread_standard_error_holds_nothing_up() {
    for (options, version) in
        [(&[] as &[&str], json!("2025-11-25")), (&["--acp"] as &[&str], json!(1))]
    {
        let text = stderr_of(options, 4096, &version);
        assert!(text.starts_with("first line\n"), "{options:?}: {}", &text[..100]);
        // A gap arises as well before the pipe is full, where the thread that writes gets no turn.
        let gaps = text.split("ceased: dropped ").skip(1);
        let dropped: u64 =
            gaps.map(|rest| rest.split(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        let passed = text.matches('x').count() as u64;
        // Of each line, one byte is its end.
        assert!(dropped > 1024 * 1024 && passed > 64 * 1024, "{options:?}: {dropped}, {passed}");
        assert!(passed + dropped <= 4096 * 1024, "{options:?}: {dropped}, {passed}");
    }
}
