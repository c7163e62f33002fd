//! Prompts and resources of an embedding program, and its changes of them while it runs.

use ceased::{
    Content, Daemon, DaemonHandle, EmbeddedResource, HandlerOffer, HandlerTool, HostOffer,
    Identity, Job, OfferKind, PromptResult, ResourceRequest, StartError, ToolError, ToolResult,
};
use ceased_tests::daemon::Peer;
use serde_json::{Value, json};

fn prompt(name: &str) -> HandlerOffer {
    HandlerOffer::prompt(name, |job: &Job| {
        let arguments: Value = job.arguments()?;
        Ok(PromptResult::user(Content::text(format!("about {}", arguments["topic"]))))
    })
}

fn pages() -> HostOffer {
    HandlerOffer::template("docs://{page}", "page", |job: &Job| {
        let ResourceRequest { uri, variables } = job.arguments()?;
        if variables["page"] == "none" {
            return Err(ToolError::Failed("there is no such page".into()));
        }
        let text = format!("page {}", variables["page"]);
        Ok(EmbeddedResource::Text { uri, mime_type: None, text }.into())
    })
    .build()
}

fn start() -> (DaemonHandle, Peer) {
    let others = Identity::User(u32::MAX - 7);
    let daemon = Daemon::new()
        .offer(prompt("explain").argument("topic", "A topic", true).build())
        .offer(prompt("secret").allow([others]).build())
        .offer(pages())
        .start()
        .expect("it starts");
    let peer = Peer::of(&daemon);
    (daemon, peer)
}

fn names(list: &Value) -> Vec<&str> {
    let all = list["prompts"].as_array().expect("a list");
    all.iter().filter_map(|prompt| prompt["name"].as_str()).collect()
}

#[test]
fn prompts_and_resources_are_served_by_handlers() {
    let (_daemon, mut peer) = start();
    let got = peer.result("prompts/get", r#"{"name":"explain","arguments":{"topic":"cancel"}}"#);
    assert_eq!(got["messages"][0]["content"]["text"], "about \"cancel\"");
    let read = peer.result("resources/read", r#"{"uri":"docs://start"}"#);
    assert_eq!(read["contents"], json!([{"uri": "docs://start", "text": "page start"}]));
    let failed = peer.request("resources/read", r#"{"uri":"docs://none"}"#);
    assert_eq!(peer.answer(failed)["error"]["message"], "there is no such page");
    let unknown = peer.request("resources/read", r#"{"uri":"other://start"}"#);
    let error = &peer.answer(unknown)["error"];
    assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32002), &json!("other://start")));
}

/// TSK-39: an offer that a peer may not use does not exist for it.
#[test]
fn offer_for_others_does_not_exist() {
    let (_daemon, mut peer) = start();
    assert_eq!(names(&peer.result("prompts/list", "{}")), ["explain"]);
    let id = peer.request("prompts/get", r#"{"name":"secret"}"#);
    assert_eq!(peer.answer(id)["error"]["code"], -32602);
}

#[test]
fn updates_reach_subscribed_sessions_alone() {
    let (daemon, mut peer) = start();
    let mut other = Peer::of(&daemon);
    peer.result("resources/subscribe", r#"{"uri":"docs://start"}"#);
    other.result("resources/subscribe", r#"{"uri":"docs://start"}"#);
    other.result("resources/unsubscribe", r#"{"uri":"docs://start"}"#);
    other.result("resources/subscribe", r#"{"uri":"docs://end"}"#);
    daemon.remote().resource_updated("docs://start");
    daemon.remote().resource_updated("docs://end");
    let updated = "notifications/resources/updated";
    assert_eq!(peer.note(updated)["params"]["uri"], "docs://start");
    assert_eq!(other.note(updated)["params"]["uri"], "docs://end", "it is the first for this one");
}

#[test]
fn offers_change_while_the_daemon_runs() {
    let (daemon, mut peer) = start();
    daemon.remote().add_offer(prompt("more").build());
    peer.note("notifications/prompts/list_changed");
    assert_eq!(names(&peer.result("prompts/list", "{}")), ["explain", "more"]);
    daemon.remote().remove_offer(OfferKind::Prompt, "explain");
    peer.note("notifications/prompts/list_changed");
    assert_eq!(names(&peer.result("prompts/list", "{}")), ["more"]);
    let tool = |text: &'static str| {
        HandlerTool::new("new", move |_: &Job| Ok(ToolResult::text(text))).build().expect("a tool")
    };
    peer.forget_notes();
    daemon.remote().add_tool(tool("one"));
    peer.note("notifications/tools/list_changed");
    let id = peer.call("new", "{}");
    assert_eq!(peer.text(id), "one");
    daemon.remote().add_tool(tool("two"));
    peer.note("notifications/tools/list_changed");
    let id = peer.call("new", "{}");
    assert_eq!(peer.text(id), "two");
    daemon.remote().remove_tool("new");
    peer.note("notifications/tools/list_changed");
    let id = peer.call("new", "{}");
    assert_eq!(peer.answer(id)["error"]["code"], -32602);
}

#[test]
fn two_offers_of_one_name_are_refused_at_the_start() {
    let daemon = Daemon::new().offer(prompt("same").build()).offer(prompt("same").build());
    match daemon.start() {
        Err(StartError::Offer(bad)) => assert_eq!(bad.id, "same"),
        other => panic!("{other:?}"),
    }
}

/// MOD-08: a subscription of 2026-07-28 that names a resource is told of its updates until it ends,
/// and is granted those that there are.
#[test]
fn updates_reach_subscriptions_that_name_the_resource() {
    let (daemon, _) = start();
    let mut peer = Peer::of_socket(daemon.connect().expect("the daemon takes peers").into());
    let listen = |peer: &mut Peer, uris: Value| {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}});
        let params = json!({"_meta": meta, "notifications": {"resourceSubscriptions": uris}});
        let id = peer.request("subscriptions/listen", &params.to_string());
        let granted = peer.note("notifications/subscriptions/acknowledged");
        (id, granted["params"]["notifications"]["resourceSubscriptions"].clone())
    };
    let (first, granted) = listen(&mut peer, json!(["docs://start", "other://start"]));
    assert_eq!(granted, json!(["docs://start"]));
    let updated = "notifications/resources/updated";
    daemon.remote().resource_updated("docs://end");
    daemon.remote().resource_updated("docs://start");
    let told = peer.note(updated)["params"].clone();
    assert_eq!(told["uri"], "docs://start");
    assert_eq!(told["_meta"]["io.modelcontextprotocol/subscriptionId"], first);
    peer.cancel(first);
    let (_, granted) = listen(&mut peer, json!(["docs://end"]));
    assert_eq!(granted, json!(["docs://end"]));
    daemon.remote().resource_updated("docs://start");
    daemon.remote().resource_updated("docs://end");
    assert_eq!(peer.note(updated)["params"]["uri"], "docs://end", "the first has ended");
}
