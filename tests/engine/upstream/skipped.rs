//! UPS-14: messages of a server that are too long or nest too deep.

use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::kit::{Kit, call};
use super::{ready, shared};

/// A message of which the first level is left, or which nests too deep.
fn skip(kit: &mut Kit, upstream: ConnId, members: &str, is_deep: bool) {
    if is_deep {
        let deep = "[".repeat(200) + &"]".repeat(200);
        return kit.line(upstream, &members.replace("{}", &deep));
    }
    kit.feed(Event::TooLong { conn: upstream, skeleton: members });
}

/// Of several calls, the one fails whose answer is skipped, in the usual orders of members; the
/// instance serves the others.
#[test]
fn skipped_answer_fails_its_call_alone() {
    for is_deep in [false, true] {
        for form in [
            r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#,
            r#"{"result":{},"jsonrpc":"2.0","id":"ID"}"#,
            r#"{"jsonrpc":"2.0","error":{},"id":ID.0}"#,
        ] {
            let (mut kit, client, upstream, _) = ready(shared());
            let asked: Vec<Value> = (1..=3)
                .map(|id| {
                    kit.send(client, &call(&json!(id), "work"));
                    kit.one(upstream)
                })
                .collect();
            let members = form.replace("ID", &asked[1]["id"].to_string());
            skip(&mut kit, upstream, &members, is_deep);
            let failed = kit.one(client);
            assert_eq!((&failed["id"], &failed["error"]["code"]), (&json!(2), &json!(-31003)));
            let limit = if is_deep { "json_depth = " } else { "message_bytes = " };
            assert!(failed["error"]["message"].as_str().unwrap().contains(limit), "{failed}");
            for (id, request) in [(1, &asked[0]), (3, &asked[2])] {
                kit.answer(upstream, request, &json!({"content": []}));
                assert_eq!(kit.one(client)["id"], id);
            }
            kit.send(client, &call(&json!(4), "work"));
            kit.one(upstream);
            assert!(kit.wanted.is_empty(), "the instance is not replaced");
        }
    }
}

/// A notification or a question that is skipped fails no call; the question is refused.
#[test]
fn skipped_message_that_is_no_answer_fails_no_call() {
    for is_deep in [false, true] {
        let (mut kit, client, upstream, _) = ready(shared());
        kit.send(client, &call(&json!(1), "work"));
        let asked = kit.one(upstream);
        let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
        skip(&mut kit, upstream, note, is_deep);
        kit.silent(upstream);
        let question =
            r#"{"method":"sampling/createMessage","params":{},"jsonrpc":"2.0","id":"q"}"#;
        skip(&mut kit, upstream, question, is_deep);
        let refused = kit.one(upstream);
        assert_eq!(refused["id"], "q");
        assert_eq!(refused["error"]["code"], if is_deep { -32700 } else { -32600 });
        kit.silent(client);
        kit.answer(upstream, &asked, &json!({"content": []}));
        assert_eq!(kit.one(client)["id"], 1);
        assert!(kit.wanted.is_empty());
    }
}
