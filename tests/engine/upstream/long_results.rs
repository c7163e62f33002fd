//! UPS-01, UPS-10: a long result that comes in pieces reaches the client byte for byte.

use ceased_core::limits::FrameLimits;
use ceased_core::rpc::frame::{Frame, Inbox};
use ceased_core::upstream::server::UpstreamServer;
use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::kit::{Kit, call, tool};
use super::server;

const INFO: &str = r#""io.modelcontextprotocol/serverInfo":{"name":"up","version":"3"}"#;

/// Sends a line as a stream that is read in pieces.
fn stream(kit: &mut Kit, conn: ConnId, line: &str) {
    let mut inbox = Inbox::new(FrameLimits { frame_bytes_max: 1 << 20 });
    for piece in format!("{line}\r\n").as_bytes().chunks(20_000) {
        inbox.feed(piece, &mut |frame| match frame {
            Frame::Line(frame) => kit.feed(Event::Frame { conn, frame }),
            Frame::TooLong(_) | Frame::NotJsonRpc(_) => panic!("no line: {frame:?}"),
        });
    }
}

/// A server of this era, and a client with a session.
fn ready(is_modern: bool) -> (Kit, ConnId, ConnId) {
    let mut kit = Kit::new(vec![server("s")]);
    let client = kit.open();
    kit.send(client, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    match is_modern {
        true => {
            let identity = json!({"supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}});
            kit.settle(upstream, &identity, &[tool("work")]);
        }
        false => kit.handshake(upstream, &[tool("work")]),
    }
    kit.read(client);
    (kit, client, upstream)
}

fn claimed(id: &Value, tool: &str) -> Value {
    let mut call = call(id, tool);
    call["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}});
    call
}

/// The lines that a client gets for two calls that are answered at once.
fn answers(server: bool, client: bool, id: &Value, result: &str) -> Vec<String> {
    let (mut kit, conn, upstream) = ready(server);
    let ids = [id.clone(), json!("a long id ".repeat(30))];
    for id in &ids {
        let call = if client { claimed(id, "work") } else { call(id, "work") };
        kit.send(conn, &call);
    }
    let requests = kit.read(upstream);
    assert_eq!(requests.len(), 2);
    for request in &requests {
        let line = format!(r#"{{"result":{result},"id":{},"jsonrpc":"2.0"}}"#, request["id"]);
        let usual = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request["id"]);
        let line = if request == &requests[0] { usual } else { line };
        stream(&mut kit, upstream, &line);
    }
    kit.lines(conn)
}

#[test]
fn long_result_in_pieces_is_whole_in_every_revision() {
    let text = "x \\n\\u00e4 \u{e4} _meta ".repeat(3000);
    let content = format!(r#""content":[{{"type":"text", "text":"{text}"}}]"#);
    let results = [
        format!("{{{content}}}"),
        format!("{{ {content} , \"isError\":false }}"),
        format!("{{ {content} ,\r \"isError\":\rfalse }}"),
        format!(r#"{{{content},"isError":false,"resultType":"complete","_meta":{{{INFO}}}}}"#),
        format!(r#"{{"resultType":"complete",{content},"_meta":{{{INFO},"k":[1, 2]}}}}"#),
        format!(r#"{{"_meta":{{{INFO}}} , {content} ,"result\u0054ype":"complete"}}"#),
        format!(r#"{{"_meta":{{"k":1}},{content},"_meta":{{"k":2}}}}"#),
    ];
    for result in &results {
        for (server, client) in [(false, false), (false, true), (true, false), (true, true)] {
            for id in [json!(7), json!("c7d1a3c2-77c5-4c40-8f37-0f7e5f3f9a51")] {
                let lines = answers(server, client, &id, result);
                assert_eq!(lines.len(), 2);
                let answer: Value = serde_json::from_str(&lines[0]).expect("an answer is JSON");
                let sent: Value = serde_json::from_str(result).expect("a result is JSON");
                assert_eq!((&answer["id"], &answer["jsonrpc"]), (&id, &json!("2.0")));
                assert_eq!(answer["result"]["content"], sent["content"]);
                assert!(lines[0].contains(&content), "UPS-10: byte for byte");
                assert!(!lines[0].contains('\r'), "an answer is one line");
                if !server && !client {
                    continue;
                }
                let info = &answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
                assert_eq!(info.is_object(), client, "{info}");
                assert_ne!(info["name"], "up");
                let kind = &answer["result"]["resultType"];
                assert_eq!(kind == "complete", client, "{kind}");
            }
        }
    }
}

/// Line breaks in the identity of a server that shows through are spaces in an answer.
#[test]
fn identity_is_one_line_in_an_answer() {
    let mut kit = Kit::new(vec![UpstreamServer { transparent: true, ..server("s") }]);
    let client = kit.connect();
    kit.send(client, &claimed(&json!(1), "work"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let probe = kit.one(upstream);
    let identity = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},
        "serverInfo":{"name":"up",
        "version":"3"}}"#;
    let line = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{identity}}}"#, probe["id"]);
    let line = line.replace('\n', "\r");
    kit.feed(Event::Frame { conn: upstream, frame: line.as_bytes() });
    kit.lists(upstream, &[tool("work")]);
    let request = kit.early.remove(0);
    let text = "x".repeat(50_000);
    let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"content": [text]}});
    stream(&mut kit, upstream, &answer.to_string());
    let lines = kit.lines(client);
    assert!(lines.len() == 1 && lines[0].contains(&text) && !lines[0].contains('\r'));
    let answer: Value = serde_json::from_str(&lines[0]).expect("an answer is JSON");
    let info = &answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(*info, json!({"name": "up", "version": "3"}));
}

/// An error, or a request, in a long frame is read as in any other.
#[test]
fn other_long_frames_are_read() {
    let (mut kit, client, upstream) = ready(false);
    kit.send(client, &call(&json!(1), "work"));
    let request = kit.one(upstream);
    let text = "x".repeat(50_000);
    let garbage = format!("{{\"jsonrpc\":\"2.0\",\"{text}");
    stream(&mut kit, upstream, &garbage);
    let ping = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":"{text}"}}}}"#);
    stream(&mut kit, upstream, &ping);
    assert_eq!(kit.one(upstream), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    kit.silent(client);
    let error = json!({"code": -7, "message": text});
    let error = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
    stream(&mut kit, upstream, &error.to_string());
    assert_eq!(kit.one(client)["error"]["code"], -7);
    // A client's long frame.
    let ping = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"ping","params":{{"a":"{text}"}}}}"#);
    stream(&mut kit, client, &ping);
    assert_eq!(kit.one(client)["id"], 2);
}
