//! UPS-17, UPS-18: extensions, capabilities and methods that the engine does not know.

use ceased_core::ConnId;
use ceased_core::upstream::server::UpstreamServer;
use ceased_core::upstream::spoken::Revision;
use serde_json::{Value, json};

use super::kit::{Kit, cancel, initialize, tool};
use super::{server, shared, wrapped};

const META: &str = "io.modelcontextprotocol";

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn note(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

fn modern(id: u64, method: &str, capabilities: &Value) -> Value {
    let meta = json!({
        format!("{META}/protocolVersion"): "2026-07-28",
        format!("{META}/clientInfo"): {"name": "host", "version": "3"},
        format!("{META}/clientCapabilities"): capabilities,
    });
    request(id, method, &json!({"_meta": meta}))
}

/// A session client that declares everything, its server of these capabilities, and the answer to
/// `initialize`.
fn begun(of: UpstreamServer, identity: &Value) -> (Kit, ConnId, ConnId, Value, Value) {
    let mut kit = Kit::new(vec![of]);
    let client = kit.connect();
    let mut hello = initialize("2025-11-25");
    hello["params"]["capabilities"] = json!({"sampling": {}, "elicitation": {"url": {}},
        "tasks": {"requests": {"sampling": {"createMessage": {}}}},
        "extensions": {"v/e": {"a": 1}, "io.modelcontextprotocol/tasks": {}}});
    hello["params"]["clientInfo"] = json!({"name": "host", "version": "3", "x": [1]});
    kit.send(client, &hello);
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let told = kit.one(upstream);
    kit.answer(upstream, &told, identity);
    kit.lists(upstream, &[tool("work")]);
    let answer = kit.one(client);
    kit.initialized(client);
    (kit, client, upstream, told, answer)
}

fn identity() -> Value {
    json!({"protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "7"},
        "capabilities": {"tools": {}, "experimental": {"c": {}}, "vendor": true,
            "extensions": {"v/e": {"b": 1}, "io.modelcontextprotocol/tasks": {}}},
        "instructions": "i", "vendorMember": 1.5, "_meta": {"k": 1}})
}

/// UPS-17: both sides see each other as without the engine, but for its tasks.
#[test]
fn handshake_is_whole() {
    let (_, _, _, told, answer) = begun(wrapped(), &identity());
    let params = &told["params"];
    assert_eq!(params["clientInfo"], json!({"name": "host", "version": "3", "x": [1]}));
    assert_eq!(params["capabilities"]["extensions"], json!({"v/e": {"a": 1}}));
    assert!(params["capabilities"]["tasks"]["requests"].is_object());
    let mut expected = identity();
    expected["capabilities"]["extensions"] = json!({"v/e": {"b": 1}});
    expected["capabilities"]["tasks"] = answer["result"]["capabilities"]["tasks"].clone();
    assert!(expected["capabilities"]["tasks"].is_object(), "those of the engine");
    assert_eq!(answer["result"], expected);
}

/// UPS-17: a server that several clients share is told of this engine.
#[test]
fn shared_server_is_told_of_no_client() {
    let mut kit = Kit::new(vec![shared()]);
    let client = kit.open();
    kit.send(client, &super::kit::call(&json!(1), "work"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let first = kit.one(upstream);
    let info = &first["params"]["_meta"][format!("{META}/clientInfo")];
    assert_eq!(info["name"], *ceased_core::Settings::default().server.name);
}

/// UPS-17: a request of an unknown method is relayed with id, progress and cancel, and recorded.
#[test]
fn unknown_request_is_relayed() {
    let (mut kit, client, upstream, ..) = begun(wrapped(), &identity());
    let params = json!({"name": "n", "task": {"mine": 1}, "_meta": {"progressToken": "t", "k": 1}});
    kit.send(client, &request(7, "vendor/do", &params));
    let asked = kit.one(upstream);
    assert_eq!(
        (&asked["method"], &asked["params"]["task"]),
        (&json!("vendor/do"), &json!({"mine": 1}))
    );
    let token = &asked["params"]["_meta"]["progressToken"];
    kit.send(
        upstream,
        &note("notifications/progress", &json!({"progressToken": token, "progress": 1})),
    );
    assert_eq!(kit.one(client)["params"]["progressToken"], "t");
    kit.answer(upstream, &asked, &json!({"odd": [1.5]}));
    assert_eq!(kit.one(client), json!({"jsonrpc": "2.0", "id": 7, "result": {"odd": [1.5]}}));
    kit.send(client, &request(8, "vendor/do", &json!({})));
    let asked = kit.one(upstream);
    kit.send(client, &cancel(&json!(8)));
    let told = kit.pong(upstream);
    assert_eq!(told[0]["params"]["requestId"], asked["id"]);
    kit.answer(upstream, &asked, &json!({}));
    kit.silent(client);
    assert_eq!(kit.proof(), Some("answered"));
    // An error is the server's own, and tasks are those of the engine.
    kit.send(client, &request(9, "vendor/none", &json!({})));
    let asked = kit.one(upstream);
    let error = json!({"code": -32601, "message": "Method not found"});
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
    assert_eq!(kit.one(client)["error"], error);
    kit.send(client, &request(10, "tasks/get", &json!({"taskId": "x"})));
    kit.silent(upstream);
}

/// UPS-17: notifications of unknown methods pass both ways, behind the requests before them.
#[test]
fn unknown_notifications_pass_both_ways() {
    let (mut kit, client, upstream, ..) = begun(wrapped(), &identity());
    let odd = note("notifications/vendor", &json!({"a": [1.5], "_meta": {"k": 1}}));
    kit.send(client, &odd);
    assert_eq!(kit.one(upstream), odd);
    kit.send(upstream, &odd);
    assert_eq!(kit.one(client), odd);
    kit.line(upstream, r#"{"jsonrpc":"2.0","method":"notifications/bare"}"#);
    assert_eq!(kit.lines(client), [r#"{"jsonrpc":"2.0","method":"notifications/bare"}"#]);
    // A status of a task is also for the server, which may have asked for a task.
    let status = note("notifications/tasks/status", &json!({"taskId": "c", "status": "working"}));
    kit.send(client, &status);
    assert_eq!(kit.one(upstream), status);
    let (mut kit, client, upstream, _) = super::ready(server("s"));
    kit.send(client, &odd);
    kit.silent(upstream);
    kit.send(upstream, &odd);
    kit.silent(client);
}

/// UPS-17: a notification waits for the session of its client.
#[test]
fn unknown_notification_waits_for_initialized() {
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    kit.send(client, &initialize("2025-11-25"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let first = kit.one(upstream);
    kit.answer(upstream, &first, &identity());
    kit.send(upstream, &note("notifications/vendor", &json!({})));
    assert_eq!(kit.one(client)["id"], "init");
    kit.initialized(client);
    assert_eq!(kit.one(client)["method"], "notifications/vendor");
}

/// UPS-17: a server asks in methods of its own, with progress and its cancel.
#[test]
fn unknown_request_of_a_server_is_passed() {
    let (mut kit, client, upstream, ..) = begun(wrapped(), &identity());
    let params = json!({"task": {"x": 1}, "_meta": {"progressToken": 5}});
    kit.send(upstream, &request(3, "vendor/ask", &params));
    let asked = kit.one(client);
    assert_eq!(
        (&asked["method"], &asked["params"]["task"]),
        (&json!("vendor/ask"), &json!({"x": 1}))
    );
    let token = &asked["params"]["_meta"]["progressToken"];
    assert_ne!(token, 5);
    kit.send(
        client,
        &note("notifications/progress", &json!({"progressToken": token, "progress": 1})),
    );
    assert_eq!(kit.one(upstream)["params"], json!({"progressToken": 5, "progress": 1}));
    kit.answer(client, &asked, &json!({"yes": true}));
    assert_eq!(kit.one(upstream), json!({"jsonrpc": "2.0", "id": 3, "result": {"yes": true}}));
    kit.send(
        client,
        &note("notifications/progress", &json!({"progressToken": token, "progress": 2})),
    );
    kit.silent(upstream);
    kit.send(upstream, &request(4, "vendor/ask", &json!({})));
    let asked = kit.one(client);
    kit.send(upstream, &cancel(&json!(4)));
    assert_eq!(kit.one(client)["params"]["requestId"], asked["id"]);
    let (mut kit, client, upstream, _) = super::ready(server("s"));
    kit.send(upstream, &request(5, "vendor/ask", &json!({})));
    assert_eq!(kit.one(upstream)["error"]["code"], -32601);
    kit.silent(client);
}

/// Progress with a server's request is that of the client that was asked, and of no other.
#[test]
fn progress_of_another_client_is_not_passed() {
    let (mut kit, client, upstream, ..) = begun(wrapped(), &identity());
    let other = kit.open();
    kit.send(upstream, &request(3, "vendor/ask", &json!({"_meta": {"progressToken": 5}})));
    let token = kit.one(client)["params"]["_meta"]["progressToken"].clone();
    let progress = note("notifications/progress", &json!({"progressToken": token, "progress": 1}));
    kit.send(other, &progress);
    kit.silent(upstream);
    kit.send(client, &progress);
    assert_eq!(kit.one(upstream)["params"]["progressToken"], 5);
}

/// Notifications and progress for a server that does not read take no more than its send buffer.
#[test]
fn messages_for_a_server_that_does_not_read_are_bounded() {
    let (mut kit, client, upstream, ..) = begun(wrapped(), &identity());
    kit.send(upstream, &request(3, "vendor/ask", &json!({"_meta": {"progressToken": 5}})));
    let token = kit.one(client)["params"]["_meta"]["progressToken"].clone();
    let room = ceased_core::Limits::default().write_buffer_bytes;
    let pad = "x".repeat(room / 8);
    let notes = [
        note("notifications/vendor", &json!({"pad": pad})),
        note("notifications/progress", &json!({"progressToken": token, "pad": pad})),
    ];
    for note in notes {
        for _ in 0..20 {
            kit.send(client, &note);
        }
        let sent: usize = kit.read(upstream).iter().map(|it| it.to_string().len()).sum();
        assert!(sent > room && sent < room + room / 4, "{sent} of {room}");
    }
}

/// Elicitations that a server never ends push out only its own, oldest first.
#[test]
fn elicitations_of_a_server_are_bounded() {
    let of = |name| UpstreamServer {
        revision: Revision::Session,
        share: shared().share,
        ..server(name)
    };
    let mut kit = Kit::new(vec![of("a"), of("b")]);
    let (ann, bob) = (kit.open(), kit.open());
    kit.send(ann, &json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"}));
    let upstreams: Vec<ConnId> = kit.starts().into_iter().map(|id| kit.started(id)).collect();
    for (upstream, name) in upstreams.iter().zip(["of_a", "of_b"]) {
        kit.handshake(*upstream, &[tool(name)]);
    }
    kit.read(ann);
    for (upstream, name, count) in [(upstreams[0], "of_a", 1), (upstreams[1], "of_b", 5000)] {
        kit.send(ann, &super::kit::call(&json!(name), name));
        let asked = kit.one(upstream);
        let names: Vec<Value> = (0..count)
            .map(|n| json!({"mode": "url", "elicitationId": format!("{n:04}")}))
            .collect();
        let error = json!({"code": -32042, "message": "visit", "data": {"elicitations": names}});
        kit.send(upstream, &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
        kit.read(ann);
    }
    let over = |id: &str| note("notifications/elicitation/complete", &json!({"elicitationId": id}));
    for (upstream, id, is_told) in [
        (0, "0000", true),
        (1, "0000", false),
        (1, "4743", false),
        (1, "4744", true),
        (1, "4999", true),
    ] {
        kit.send(upstreams[upstream], &over(id));
        let told = kit.read(ann);
        assert_eq!(told, if is_told { vec![over(id)] } else { Vec::new() }, "{upstream} {id}");
    }
    kit.silent(bob);
}

/// UPS-17: a server may ask its client for a task of the client's own, and follow it.
#[test]
fn task_of_the_client_is_between_it_and_the_server() {
    let (mut kit, client, upstream, ..) = begun(wrapped(), &identity());
    kit.send(upstream, &request(3, "sampling/createMessage", &json!({"task": {"ttl": 9}})));
    let asked = kit.one(client);
    assert_eq!(asked["params"], json!({"task": {"ttl": 9}}));
    let created = json!({"task": {"taskId": "c", "status": "working"}});
    kit.answer(client, &asked, &created);
    assert_eq!(kit.one(upstream)["result"], created);
    for (id, method) in [(4, "tasks/get"), (5, "tasks/result"), (6, "tasks/cancel")] {
        kit.send(upstream, &request(id, method, &json!({"taskId": "c"})));
        let asked = kit.one(client);
        assert_eq!((&asked["method"], &asked["params"]["taskId"]), (&json!(method), &json!("c")));
        kit.answer(client, &asked, &json!({"status": "completed"}));
        assert_eq!(kit.one(upstream)["id"], id);
    }
}

/// UPS-17: the end of an elicitation by URL is told to the client that was asked, of several.
#[test]
fn end_of_an_elicitation_reaches_the_client_that_was_asked() {
    let over = |id: &str| note("notifications/elicitation/complete", &json!({"elicitationId": id}));
    let of = UpstreamServer { revision: Revision::Session, ..shared() };
    let mut kit = Kit::new(vec![of]);
    let (ann, bob) = (kit.open(), kit.open());
    kit.send(ann, &super::kit::call(&json!(1), "work"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    kit.handshake(upstream, &[tool("work")]);
    let asked = kit.early.remove(0);
    let data = json!({"elicitations": [{"mode": "url", "elicitationId": "e1"}]});
    let error = json!({"code": -32042, "message": "visit", "data": data});
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
    kit.read(ann);
    kit.send(upstream, &over("e1"));
    assert_eq!(kit.one(ann), over("e1"));
    kit.send(upstream, &over("e1"));
    kit.send(upstream, &over("e2"));
    kit.silent(ann);
    kit.silent(bob);
    // The only client of an instance is asked by nothing else.
    let (mut kit, client, upstream, _) = super::ready(server("s"));
    kit.send(upstream, &over("e3"));
    assert_eq!(kit.one(client), over("e3"));
}

/// UPS-17: the server that shows through judges a call that names no tool; with several servers there
/// is none that could.
#[test]
fn call_without_a_name_is_the_servers_to_judge() {
    let (mut kit, client, upstream, ..) = begun(wrapped(), &identity());
    kit.send(client, &request(5, "tools/call", &json!({"arguments": {"a": 1}})));
    let asked = kit.one(upstream);
    assert_eq!(
        (&asked["method"], &asked["params"]["arguments"]),
        (&json!("tools/call"), &json!({"a": 1}))
    );
    let error = json!({"code": -32603, "message": "its own words"});
    kit.send(upstream, &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
    assert_eq!(kit.one(client), json!({"jsonrpc": "2.0", "id": 5, "error": error}));
    kit.line(client, r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"arguments":{},"arguments":{}}}"#);
    assert_eq!(kit.one(client)["error"]["code"], -32602);
    kit.silent(upstream);
    let (mut kit, client, ..) = two();
    kit.send(client, &modern(5, "tools/call", &json!({})));
    assert_eq!(kit.one(client)["error"]["message"], "params.name is required");
}

/// UPS-17: a list is the server's own, page by page, with its cursors, members and errors.
#[test]
fn list_is_the_servers_own_page() {
    let (mut kit, client, upstream, ..) = begun(wrapped(), &identity());
    kit.send(client, &request(1, "tools/list", &json!({})));
    let asked = kit.one(upstream);
    let page =
        json!({"tools": [tool("a"), {"odd": 1}], "nextCursor": "c", "_meta": {"k": 1}, "m": 1});
    kit.answer(upstream, &asked, &page);
    assert_eq!(kit.one(client)["result"], page);
    kit.send(client, &request(2, "tools/list", &json!({"cursor": "c"})));
    let asked = kit.one(upstream);
    assert_eq!(asked["params"], json!({"cursor": "c"}));
    kit.answer(upstream, &asked, &json!({"tools": []}));
    kit.one(client);
    // Methods of capabilities that the server does not have are its own to refuse.
    for (id, method) in [
        (3, "prompts/list"),
        (4, "prompts/get"),
        (5, "resources/read"),
        (6, "resources/unsubscribe"),
        (7, "resources/subscribe"),
        (8, "logging/setLevel"),
        (9, "completion/complete"),
    ] {
        kit.send(
            client,
            &request(id, method, &json!({"uri": "x://a", "name": "n", "level": "info"})),
        );
        let asked = kit.one(upstream);
        assert_eq!(asked["method"], method);
        let error = json!({"code": -32601, "message": "Method not found"});
        kit.send(upstream, &json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
        assert_eq!(kit.one(client)["error"], error, "{method}");
    }
}

/// UPS-17: options of `ceased wrap` change the page alone where they have to.
#[test]
fn page_has_the_filter_and_the_task_support_of_the_settings() {
    let of = UpstreamServer {
        task_support: Some(ceased_core::tool::TaskSupport::Optional),
        filter: ceased_core::upstream::server::NameFilter {
            only: Vec::new(),
            hide: vec!["b".into()],
        },
        ..wrapped()
    };
    let (mut kit, client, upstream, ..) = begun(of, &identity());
    kit.send(client, &request(1, "tools/list", &json!({})));
    let asked = kit.one(upstream);
    kit.answer(upstream, &asked, &json!({"tools": [{"name": "a"}, {"name": "b"}], "m": 1}));
    let result = kit.one(client)["result"].clone();
    assert_eq!(
        result,
        json!({"tools": [{"name": "a", "execution": {"taskSupport": "optional"}}], "m": 1})
    );
}

/// UPS-17: in the revision without sessions a server sees the name and the capabilities of the
/// client on each request, those of the engine included, and the client its whole identity.
#[test]
fn server_without_sessions_sees_its_client() {
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    let declared = json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["a"]}}});
    kit.send(client, &modern(1, "server/discover", &declared));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let first = kit.one(upstream);
    let sees = |request: &Value| {
        let meta = &request["params"]["_meta"];
        assert_eq!(meta[format!("{META}/clientInfo")]["name"], "host", "{request}");
        assert_eq!(meta[format!("{META}/clientCapabilities")], declared, "{request}");
    };
    sees(&first);
    let identity = json!({"supportedVersions": ["2026-07-28"], "resultType": "complete",
        "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/ui": {}}},
        "ttlMs": 5, "cacheScope": "public", "vendor": 1, "_meta": {"k": 1}});
    kit.answer(upstream, &first, &identity);
    kit.read(upstream).iter().filter(|it| it["method"] == "tools/list").for_each(|list| {
        sees(list);
        kit.answer(upstream, list, &json!({"tools": []}));
    });
    let result = kit.one(client)["result"].clone();
    assert_eq!(result["capabilities"], identity["capabilities"]);
    assert_eq!((&result["vendor"], &result["_meta"]["k"]), (&json!(1), &json!(1)));
    kit.send(client, &modern(2, "skills/list", &declared));
    let asked = kit.one(upstream);
    sees(&asked);
    kit.answer(upstream, &asked, &json!({"skills": [], "resultType": "complete"}));
    assert_eq!(kit.one(client)["result"]["skills"], json!([]));
}

/// MOD-07: a method that sessions alone have reaches no server without one.
#[test]
fn methods_of_sessions_are_unknown_without_one() {
    for of in [wrapped(), server("s")] {
        let mut kit = Kit::new(vec![of]);
        let client = kit.connect();
        for (id, method) in
            [(1, "ping"), (2, "logging/setLevel"), (3, "resources/unsubscribe"), (4, "initialize")]
        {
            kit.send(client, &modern(id, method, &json!({})));
            assert_eq!(kit.one(client)["error"]["code"], -32601, "{method}");
        }
    }
}

/// Two servers with one skill and one user interface each, under equal URIs, and a client that has
/// both extensions.
fn two() -> (Kit, ConnId, Vec<ConnId>, Value) {
    let of = |name: &str| UpstreamServer { prefix: format!("{name}_").into(), ..server(name) };
    let mut kit = Kit::new(vec![of("a"), of("b")]);
    let client = kit.connect();
    let declared = json!({"extensions": {"io.modelcontextprotocol/skills": {},
        "io.modelcontextprotocol/ui": {}}});
    kit.send(client, &modern(1, "tools/list", &declared));
    let upstreams: Vec<ConnId> = kit.starts().into_iter().map(|id| kit.started(id)).collect();
    let app =
        |name: &str| json!({"name": name, "_meta": {"ui": {"resourceUri": "ui://app", "k": 1}}});
    for upstream in &upstreams {
        let first = kit.one(*upstream);
        let extensions = json!({"io.modelcontextprotocol/skills": {"directoryRead": true},
            "io.modelcontextprotocol/ui": {}, "v/not-of-the-client": {}});
        let capabilities = json!({"tools": {}, "resources": {}, "extensions": extensions});
        let identity = json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities});
        kit.answer(*upstream, &first, &identity);
        for list in kit.read(*upstream) {
            let result = match list["method"].as_str() {
                Some("tools/list") => json!({"tools": [app("show")]}),
                Some("resources/list") => {
                    json!({"resources": [{"uri": "ui://app", "name": "app"}]})
                }
                Some("skills/list") => json!({"skills": [{"uri": "skill://x/SKILL.md",
                    "resources": [{"uri": "skill://x/SKILL.md"}, {"uri": "skill://x/more.md"}]}]}),
                _ => json!({"resourceTemplates": []}),
            };
            kit.answer(*upstream, &list, &result);
        }
    }
    let tools = kit.one(client)["result"]["tools"].clone();
    (kit, client, upstreams, tools)
}

/// UPS-18: the extensions that client and servers have are declared, and no other.
#[test]
fn extensions_of_several_servers_are_declared() {
    let (mut kit, client, ..) = two();
    let declared = json!({"extensions": {"io.modelcontextprotocol/skills": {}}});
    kit.send(client, &modern(2, "server/discover", &declared));
    let extensions = kit.one(client)["result"]["capabilities"]["extensions"].clone();
    assert_eq!(
        extensions,
        json!({"io.modelcontextprotocol/skills": {"directoryRead": true},
            "io.modelcontextprotocol/tasks": {}})
    );
    let session = kit.open();
    let mut hello = initialize("2025-11-25");
    hello["params"]["capabilities"] = json!({"extensions": {"io.modelcontextprotocol/ui": {}}});
    let other = kit.connect();
    kit.send(other, &hello);
    let offered = kit.one(other)["result"]["capabilities"]["extensions"].clone();
    assert_eq!(offered, json!({"io.modelcontextprotocol/ui": {}}));
    kit.silent(session);
}

/// UPS-18: skills and user interfaces of two servers are listed together, keep their schemes, and
/// each is read of its own server.
#[test]
fn skills_and_apps_of_several_servers_are_routed() {
    let (mut kit, client, upstreams, tools) = two();
    let declared = json!({"extensions": {"io.modelcontextprotocol/skills": {}}});
    let ui = |at: usize| tools[at]["_meta"]["ui"].clone();
    assert_eq!(ui(0), json!({"resourceUri": "ui://app", "k": 1}));
    assert_eq!(ui(1), json!({"resourceUri": "ui://b/app", "k": 1}));
    let mut ask = |id: u64, method: &str, uri: &str| {
        let mut request = modern(id, method, &declared);
        request["params"]["uri"] = json!(uri);
        kit.send(client, &request);
        let asked: Vec<Vec<Value>> = upstreams.iter().map(|conn| kit.read(*conn)).collect();
        let at = asked.iter().position(|of| of.len() == 1).expect("one server is asked");
        let request = asked[at][0].clone();
        let own = request["params"]["uri"].clone();
        kit.answer(upstreams[at], &request, &json!({"contents": [{"uri": own, "text": ""}]}));
        (at, own, kit.one(client)["result"]["contents"][0]["uri"].clone())
    };
    for (method, shown, at, own) in [
        ("resources/read", "ui://app", 0, "ui://app"),
        ("resources/read", "ui://b/app", 1, "ui://app"),
        ("skills/get", "skill://x/SKILL.md", 0, "skill://x/SKILL.md"),
        ("skills/get", "skill://b/x/SKILL.md", 1, "skill://x/SKILL.md"),
        ("resources/read", "skill://b/x/more.md", 1, "skill://x/more.md"),
        ("resources/directory/read", "skill://b/x/sub", 1, "skill://x/sub"),
        ("resources/directory/read", "skill://x/sub", 0, "skill://x/sub"),
        ("vendor/of-a-resource", "skill://b/x/more.md", 1, "skill://x/more.md"),
    ] {
        let told = if method == "resources/read" { shown } else { own };
        assert_eq!(ask(5, method, shown), (at, json!(own), json!(told)), "{method} {shown}");
    }
    kit.send(client, &modern(6, "vendor/of-nothing", &declared));
    assert_eq!(kit.one(client)["error"]["code"], -32601);
    kit.send(client, &modern(7, "skills/list", &declared));
    for upstream in &upstreams {
        for list in kit.read(*upstream) {
            let skills = json!({"skills": [{"uri": "skill://x/SKILL.md",
                "resources": [{"uri": "skill://x/SKILL.md"}, {"uri": "skill://x/more.md"}]}]});
            kit.answer(*upstream, &list, &skills);
        }
    }
    let skills = kit.one(client)["result"]["skills"].clone();
    assert_eq!(skills[0]["uri"], "skill://x/SKILL.md");
    assert_eq!(
        skills[1],
        json!({"uri": "skill://b/x/SKILL.md", "resources": [
            {"uri": "skill://b/x/SKILL.md"}, {"uri": "skill://b/x/more.md"}]})
    );
}

/// UPS-17: a daemon that offers one server alone declares its extensions and unknown capabilities to
/// each client, with or without them; beside tools of the host only those that the client has.
#[test]
fn only_server_declares_its_extensions_to_each_client() {
    let declared = json!({"tools": {}, "experimental": {"x": [1]}, "vendor": {},
        "extensions": {"v/e": {"b": 1}, "io.modelcontextprotocol/tasks": {}}});
    for (servers, whole) in [(vec![server("s")], true), (vec![server("s"), server("t")], false)] {
        let mut kit = Kit::new(servers);
        let client = kit.open();
        kit.send(client, &json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}));
        let upstreams: Vec<ConnId> = kit.starts().into_iter().map(|id| kit.started(id)).collect();
        let first = kit.one(upstreams[0]);
        let identity = json!({"protocolVersion": "2025-06-18", "capabilities": declared,
            "serverInfo": {"name": "scripted", "version": "7"}});
        kit.answer(upstreams[0], &first, &identity);
        let later = kit.connect();
        kit.send(later, &initialize("2025-11-25"));
        let offered = kit.one(later)["result"]["capabilities"].clone();
        let of = |key: &str| offered.get(key).cloned();
        let seen = (of("experimental"), of("vendor"), of("extensions"));
        let expected = match whole {
            true => (Some(json!({"x": [1]})), Some(json!({})), Some(json!({"v/e": {"b": 1}}))),
            false => (None, None, None),
        };
        assert_eq!(seen, expected, "{offered}");
        assert!(of("tools").is_some_and(|it| it["listChanged"] == true), "{offered}");
    }
}
