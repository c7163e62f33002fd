//! The example host that embedders copy: the engine alone on standard input and output, with any
//! input.

use std::io::Write as _;
use std::process::{Command, Stdio};

use ceased_tests::binary;
use serde_json::{Value, json};

/// The example's answers to this input, line by line.
fn answers(input: &[u8]) -> Vec<Value> {
    let mut child = Command::new(binary::hello())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(input).expect("it reads");
    let output = child.wait_with_output().expect("hello ends at the end of its input");
    assert!(output.status.success(), "{}", output.status);
    let said = String::from_utf8(output.stdout).expect("text");
    said.lines().map(|line| serde_json::from_str(line).expect("one message a line")).collect()
}

fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// Answers to a handshake in this revision followed by these lines.
fn session(revision: &str, lines: &[&[u8]]) -> Vec<Value> {
    let hello = json!({"protocolVersion": revision, "capabilities": {},
        "clientInfo": {"name": "kit", "version": "0"}});
    let input = [&[request(0, "initialize", &hello).as_bytes()], lines].concat().join(&b'\n');
    let mut said = answers(&input);
    assert_eq!(said.remove(0)["result"]["protocolVersion"], revision);
    said
}

fn greet(id: u64) -> String {
    let name = format!("number {id}");
    request(id, "tools/call", &json!({"name": "greet", "arguments": {"name": name}}))
}

/// RPC-03: a batch with more calls than may run at once gets every answer, in order.
#[test]
fn every_call_of_a_large_batch_is_answered() {
    let calls: Vec<String> = (1..=100).map(greet).collect();
    let batch = format!("[{}]\n", calls.join(","));
    let said = session("2025-03-26", &[batch.as_bytes()]);
    let answered = said[0].as_array().expect("the answer to a batch");
    assert_eq!((said.len(), answered.len()), (1, 100));
    for (answer, id) in answered.iter().zip(1..) {
        assert_eq!(answer["id"], id);
        let text = format!("hello, number {id}");
        assert_eq!(answer["result"]["content"][0]["text"], text);
    }
}

/// RPC-03: no input ends the host, and no earlier answer is lost.
#[test]
fn no_input_ends_the_host() {
    let odd = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet","arguments":{"name":1e999}}}"#;
    let status = request(4, "ceased/status", &json!({}));
    // The last line has no line end.
    let lines = [
        greet(1).as_bytes(),
        odd.as_bytes(),
        b"{\"\xff\":1}",
        status.as_bytes(),
        greet(5).as_bytes(),
    ]
    .map(<[u8]>::to_vec);
    let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
    let said = session("2025-11-25", &lines);
    let of = |id: u64| said.iter().find(|answer| answer["id"] == id).expect("an answer");
    assert_eq!(of(1)["result"]["isError"], false);
    assert_eq!(of(2)["error"]["code"], -32602);
    assert!(of(4)["result"].is_object(), "{}", of(4));
    assert_eq!(of(5)["result"]["content"][0]["text"], "hello, number 5");
    assert!(
        said.iter().any(|answer| answer["error"]["code"] == -32700),
        "the third line is no text"
    );
}

/// A peer that does not speak the protocol gets an error, and the host ends.
#[test]
fn peer_without_the_protocol_is_refused() {
    let said = answers(&[b"hello?\n", greet(1).as_bytes(), b"\n"].concat());
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&Value::Null, &json!(-32700)));
}
