//! UPS-09, UPS-10, UPS-11: deadlines, pages and freshness of lists, lists whose changes are not
//! told, and names that two servers have.

use ceased_core::upstream::interface::UpstreamAction;
use ceased_core::upstream::server::UpstreamServer;
use ceased_core::{ConnId, Event};
use serde_json::{Value, json};

use super::kit::{Kit, initialize, tool};
use super::{server, shared, wrapped};

const TELLS: &str = "listChanged";

fn request(id: u64, method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method})
}

fn modern(id: u64, method: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}}}})
}

/// A session client, and a server of these settings with these capabilities whose handshake is done
/// and whose lists are asked for.
fn begun(of: UpstreamServer, capabilities: &Value) -> (Kit, ConnId, ConnId, Vec<Value>) {
    let mut kit = Kit::new(vec![of]);
    let client = kit.connect();
    kit.send(client, &initialize("2025-11-25"));
    kit.send(client, &request(0, "tools/list"));
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let asked = greet(&mut kit, upstream, capabilities);
    (kit, client, upstream, asked)
}

/// Answers the handshake as a session server. Returns the requests for lists.
fn greet(kit: &mut Kit, upstream: ConnId, capabilities: &Value) -> Vec<Value> {
    let mut first = kit.one(upstream);
    if first["method"] == "server/discover" {
        let error = json!({"code": -32601, "message": "unknown"});
        kit.send(upstream, &json!({"jsonrpc": "2.0", "id": first["id"], "error": error}));
        first = kit.one(upstream);
    }
    let result = json!({"protocolVersion": "2025-06-18", "capabilities": capabilities,
        "serverInfo": {"name": "scripted", "version": "7"}});
    kit.answer(upstream, &first, &result);
    let mut asked = kit.read(upstream);
    assert_eq!(asked.remove(0)["method"], "notifications/initialized");
    asked
}

fn of<'a>(asked: &'a [Value], method: &str) -> &'a Value {
    asked.iter().find(|request| request["method"] == method).expect("the list is asked for")
}

fn names(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().expect("a list");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

fn warnings(kit: &Kit) -> Vec<String> {
    let told = kit.wanted.iter().filter_map(|action| match action {
        UpstreamAction::Warn { what, .. } => Some(what.to_string()),
        UpstreamAction::Start { .. }
        | UpstreamAction::Examine { .. }
        | UpstreamAction::EndStrays { .. }
        | UpstreamAction::Forget { .. }
        | UpstreamAction::End { .. }
        | UpstreamAction::SaveManifest { .. }
        | UpstreamAction::SaveApproval { .. }
        | UpstreamAction::ToolsDiffer { .. } => None,
    });
    told.collect()
}

/// A list that hangs delays no other list. After its deadline it is empty; when it comes all the
/// same, clients are told.
#[test]
fn hanging_list_delays_no_other_and_is_taken_when_it_comes() {
    let capabilities = json!({"tools": {TELLS: true}, "prompts": {TELLS: true}});
    let (mut kit, client, upstream, asked) = begun(server("s"), &capabilities);
    kit.one(client);
    kit.send(client, &request(1, "prompts/list"));
    kit.answer(upstream, of(&asked, "tools/list"), &json!({"tools": [tool("work")]}));
    assert_eq!(names(&kit.one(client)), ["work"]);
    kit.pass(4_999);
    kit.silent(client);
    kit.pass(1);
    assert_eq!(kit.one(client)["result"]["prompts"], json!([]));
    assert!(warnings(&kit)[0].contains("prompts/list: it was not answered in time"));
    kit.answer(upstream, of(&asked, "prompts/list"), &json!({"prompts": [{"name": "late"}]}));
    assert_eq!(kit.one(client)["method"], "notifications/prompts/list_changed");
    kit.send(client, &request(2, "prompts/list"));
    assert_eq!(kit.one(client)["result"]["prompts"][0]["name"], "late");
}

/// UPS-10: requests for a list that is never answered are forgotten when it is asked for anew; the
/// engine checks that none is kept.
#[test]
fn list_that_is_never_answered_costs_the_same_after_many_changes() {
    let capabilities = json!({"tools": {TELLS: true}, "prompts": {TELLS: true}});
    let (mut kit, client, upstream, asked) = begun(wrapped(), &capabilities);
    kit.one(client);
    kit.answer(upstream, of(&asked, "tools/list"), &json!({"tools": [tool("work")]}));
    kit.pass(60_000);
    let mut ids = vec![of(&asked, "prompts/list")["id"].clone()];
    for _ in 0..6 {
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"});
        kit.send(upstream, &changed);
        let again = kit.read(upstream);
        ids.push(of(&again, "prompts/list")["id"].clone());
        kit.pass(60_000);
    }
    ids.dedup();
    assert_eq!(ids.len(), 7, "each change has it asked for anew");
    kit.read(client);
    kit.answer(upstream, &json!({"id": ids[0]}), &json!({"prompts": [{"name": "stale"}]}));
    kit.silent(client);
}

/// UPS-14: a list whose answer is too long is empty, beside one that comes.
#[test]
fn skipped_list_is_empty_alone() {
    let capabilities = json!({"tools": {TELLS: true}, "prompts": {TELLS: true}});
    let (mut kit, client, upstream, asked) = begun(server("s"), &capabilities);
    kit.one(client);
    kit.send(client, &request(1, "prompts/list"));
    let id = &of(&asked, "prompts/list")["id"];
    let skeleton = &format!(r#"{{"result":{{}},"jsonrpc":"2.0","id":{id}}}"#);
    kit.feed(Event::TooLong { conn: upstream, skeleton });
    let prompts = kit.one(client);
    assert_eq!((&prompts["id"], &prompts["result"]["prompts"]), (&json!(1), &json!([])));
    assert!(warnings(&kit)[0].contains("message_bytes"), "{:?}", warnings(&kit));
    kit.answer(upstream, of(&asked, "tools/list"), &json!({"tools": [tool("work")]}));
    assert_eq!(names(&kit.one(client)), ["work"]);
}

/// One server with a list that hangs holds up the lists of others for five seconds, once.
#[test]
fn hanging_list_of_one_server_delays_others_only_to_its_deadline() {
    let named = |name: &str| UpstreamServer { prefix: format!("{name}_").into(), ..server(name) };
    let mut kit = Kit::new(vec![named("a"), named("b")]);
    let client = kit.open();
    kit.send(client, &request(0, "tools/list"));
    let capabilities = json!({"tools": {TELLS: true}});
    let starts = kit.starts();
    let upstreams: Vec<ConnId> = starts.into_iter().map(|id| kit.started(id)).collect();
    greet(&mut kit, upstreams[0], &capabilities);
    let asked = greet(&mut kit, upstreams[1], &capabilities);
    kit.answer(upstreams[1], &asked[0], &json!({"tools": [tool("work")]}));
    kit.pass(4_999);
    kit.silent(client);
    kit.pass(1);
    assert_eq!(names(&kit.one(client)), ["b_work"]);
    kit.send(client, &request(1, "tools/list"));
    assert_eq!(names(&kit.one(client)), ["b_work"], "it is known by now");
}

/// An answer without a readable id ends the list that it is of, found by asking one list after the
/// other.
#[test]
fn unreadable_list_counts_as_its_end() {
    let capabilities = json!({"tools": {}, "prompts": {}});
    let (mut kit, client, upstream, asked) = begun(server("s"), &capabilities);
    kit.read(client);
    assert_eq!(asked.len(), 2);
    let deep = format!("{}{}", "[".repeat(400), "]".repeat(400));
    let line = format!(r#"{{"jsonrpc":"2.0","id":[],"result":{{"tools":{deep}}}}}"#);
    kit.line(upstream, &line);
    // It could be of either: they are asked for again, one after the other.
    let again = kit.one(upstream);
    assert_eq!(again["method"], "tools/list");
    kit.answer(upstream, of(&asked, "prompts/list"), &json!({"prompts": [{"name": "stale"}]}));
    kit.line(upstream, &line);
    assert_eq!(names(&kit.one(client)), [""; 0]);
    assert!(warnings(&kit)[0].contains("tools/list: limit reached: json_depth"), "it is told");
    let prompts = kit.one(upstream);
    assert_eq!(prompts["method"], "prompts/list");
    kit.answer(upstream, &prompts, &json!({"prompts": [{"name": "ask"}]}));
}

/// A list whose changes the server does not tell is asked for again when a client asks; answers of
/// several clients come of one request.
#[test]
fn list_without_notice_of_changes_is_asked_for_again() {
    let (mut kit, client, upstream, asked) = begun(shared(), &json!({"tools": {}}));
    kit.answer(upstream, &asked[0], &json!({"tools": [tool("t0")]}));
    let told = kit.read(client);
    assert_eq!(names(&told[1]), ["t0"]);
    let other = kit.open();
    for (id, conn) in [(1, client), (2, other)] {
        kit.send(conn, &request(id, "tools/list"));
        kit.silent(conn);
    }
    let again = kit.one(upstream);
    kit.answer(upstream, &again, &json!({"tools": [tool("t0"), tool("t1")]}));
    for conn in [client, other] {
        let all = kit.read(conn);
        let answer = all.iter().find(|message| message.get("result").is_some());
        assert_eq!(names(answer.expect("it is answered")), ["t0", "t1"]);
    }
    // The list that is known answers where the server does not.
    kit.send(client, &request(3, "tools/list"));
    kit.pass(2_000);
    assert_eq!(names(&kit.one(client)), ["t0", "t1"]);
    kit.send(client, &request(4, "tools/list"));
    assert_eq!(names(&kit.one(client)), ["t0", "t1"], "nor is it waited for again");
}

/// A server that tells of changes is not asked again.
#[test]
fn list_with_notice_of_changes_is_asked_for_once() {
    let (mut kit, client, upstream, asked) = begun(shared(), &json!({"tools": {TELLS: true}}));
    kit.answer(upstream, &asked[0], &json!({"tools": [tool("t0")]}));
    kit.read(client);
    kit.send(client, &request(1, "tools/list"));
    assert_eq!(names(&kit.one(client)), ["t0"]);
    kit.silent(upstream);
}

/// A server that repeats its cursor has told its list.
#[test]
fn standing_cursor_ends_a_list() {
    let (mut kit, client, upstream, asked) = begun(server("s"), &json!({"tools": {}}));
    kit.read(client);
    let page = json!({"tools": [tool("work")], "nextCursor": "x"});
    kit.answer(upstream, &asked[0], &page);
    let second = kit.one(upstream);
    assert_eq!(second["params"]["cursor"], "x");
    kit.answer(upstream, &second, &page);
    kit.silent(upstream);
    assert_eq!(names(&kit.one(client)), ["work"]);
    assert!(warnings(&kit)[0].contains("repeats a cursor"));
}

/// Five thousand resources in pages of a hundred are whole.
#[test]
fn long_list_is_whole() {
    let capabilities = json!({"resources": {TELLS: true}});
    let (mut kit, client, upstream, asked) = begun(server("s"), &capabilities);
    kit.answer(upstream, of(&asked, "tools/list"), &json!({"tools": []}));
    kit.answer(upstream, of(&asked, "resources/templates/list"), &json!({}));
    kit.read(client);
    kit.send(client, &request(1, "resources/list"));
    let mut page = of(&asked, "resources/list").clone();
    for number in 0..50 {
        let uri = |at| json!({"uri": format!("x://{}", number * 100 + at), "name": "n"});
        let mut result = json!({"resources": (0..100).map(uri).collect::<Vec<_>>()});
        if number < 49 {
            result["nextCursor"] = json!(number.to_string());
        }
        kit.answer(upstream, &page, &result);
        if number < 49 {
            page = kit.one(upstream);
        }
    }
    let list = kit.one(client);
    assert_eq!(list["result"]["resources"].as_array().expect("a list").len(), 5000);
}

/// UPS-11: a name of an earlier server is listed once, reaches that one, and is told.
#[test]
fn shadowed_name_is_listed_once_and_told() {
    let named = |name: &str, prefix: &str| UpstreamServer { prefix: prefix.into(), ..server(name) };
    // `a_` and `b_work` make the name that `a_b_` and `work` make.
    let mut kit = Kit::new(vec![named("a", "a_"), named("ab", "a_b_")]);
    let client = kit.open();
    kit.send(client, &request(0, "tools/list"));
    let capabilities = json!({"tools": {TELLS: true}});
    let starts = kit.starts();
    let upstreams: Vec<ConnId> = starts.into_iter().map(|id| kit.started(id)).collect();
    for (upstream, name) in upstreams.iter().zip(["b_work", "work"]) {
        let asked = greet(&mut kit, *upstream, &capabilities);
        kit.answer(*upstream, &asked[0], &json!({"tools": [tool(name)]}));
    }
    assert_eq!(names(&kit.one(client)), ["a_b_work"]);
    let all = warnings(&kit);
    assert_eq!(all.len(), 1);
    assert!(all[0].contains("a_b_work"), "{all:?}");
    kit.send(client, &super::kit::call(&json!(1), "a_b_work"));
    assert_eq!(kit.one(upstreams[0])["params"]["name"], "b_work");
    kit.silent(upstreams[1]);
}

/// A server that is not known yet takes no name that another one lists.
#[test]
fn unknown_server_takes_no_name_of_another() {
    let named = |name: &str, prefix: &str| UpstreamServer { prefix: prefix.into(), ..server(name) };
    let mut kit = Kit::new(vec![named("a", "a_"), named("ab", "a_b_")]);
    let client = kit.open();
    kit.send(client, &request(0, "tools/list"));
    let starts = kit.starts();
    let upstreams: Vec<ConnId> = starts.into_iter().map(|id| kit.started(id)).collect();
    let asked = greet(&mut kit, upstreams[1], &json!({"tools": {}}));
    kit.answer(upstreams[1], &asked[0], &json!({"tools": [tool("work")]}));
    kit.send(client, &super::kit::call(&json!(1), "a_b_work"));
    assert_eq!(kit.one(upstreams[1])["params"]["name"], "work");
}

/// MOD-02: a client of 2026-07-28 caches a list as long as the server says, and no longer.
#[test]
fn freshness_is_the_servers() {
    let capabilities = json!({"tools": {TELLS: true}, "prompts": {TELLS: true}});
    let mut kit = Kit::new(vec![wrapped()]);
    let client = kit.connect();
    for (id, method) in [(1, "server/discover"), (2, "tools/list"), (3, "prompts/list")] {
        kit.send(client, &modern(id, method));
    }
    let instance = kit.starts().remove(0);
    let upstream = kit.started(instance);
    let discover = kit.one(upstream);
    let identity = json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "ttlMs": 0, "cacheScope": "private"});
    kit.answer(upstream, &discover, &identity);
    let asked = kit.read(upstream);
    // The engine reads the lists for itself, and each page is the server's own.
    for request in &asked {
        match request["method"].as_str() {
            Some("tools/list") => {
                let fresh = json!({"tools": [], "ttlMs": 5, "cacheScope": "public"});
                kit.answer(upstream, request, &fresh);
            }
            _ => kit.answer(upstream, request, &json!({"prompts": []})),
        }
    }
    let cached = |of: &Value| (of["result"]["ttlMs"].clone(), of["result"]["cacheScope"].clone());
    let told: Vec<(Value, Value)> = kit.read(client).iter().map(cached).collect();
    assert_eq!(
        told,
        [
            (json!(0), json!("private")),
            (json!(5), json!("public")),
            (json!(60_000), json!("private"))
        ]
    );
}
