//! Bytes held for an identity: one account over all holders, a share, and names of bounded length
//! (TSK-36).

use ceased_core::identity::Identity;
use ceased_core::ids::ConnId;
use ceased_core::limits::{Limits, TaskPolicy};
use ceased_core::reason::CloseReason;
use ceased_simulator::world::{NEWEST, World};
use serde_json::{Value, json};

const ONE: Identity = Identity::User(1);
const OTHER: Identity = Identity::User(2);
const SHARE: usize = 100_000;
/// Longest name.
const NAME: usize = 8192;

fn world(limits: Limits) -> World {
    let limits = Limits { held_bytes_per_identity_max: SHARE, ..limits };
    World::with(limits, TaskPolicy::default())
}

fn call(w: &mut World, conn: ConnId, id: &Value, bytes: usize) {
    let params = json!({"name": "sleep", "arguments": {"x": "x".repeat(bytes)}});
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    w.send(conn, &call.to_string());
}

fn refusal(w: &mut World, conn: ConnId) -> Value {
    w.next(conn)["error"]["data"].take()
}

/// Long arguments of one identity, over many connections, leave the memory of others alone, and an
/// ended call returns its bytes.
#[test]
fn queued_arguments_have_a_share() {
    let mut w = world(Limits { running_max: 1, ..Limits::default() });
    let conns: Vec<ConnId> = (0..4).map(|_| w.open_as(ONE, NEWEST)).collect();
    for (id, conn) in conns.iter().cycle().take(9).enumerate() {
        call(&mut w, *conn, &json!(id), 10_000);
    }
    let held = w.held_bytes(&ONE);
    assert!((90_000..SHARE).contains(&held), "{held}");
    call(&mut w, conns[1], &json!("more"), 10_000);
    let limit = json!({"limit": "held_bytes_per_identity", "max": SHARE});
    assert_eq!(refusal(&mut w, conns[1]), limit);
    // Requests that look or cancel are answered.
    w.result(conns[1], "ping", json!({}));
    w.result(conns[1], "tasks/list", json!({}));
    w.open_as(ONE, NEWEST);
    let other = w.open_as(OTHER, NEWEST);
    call(&mut w, other, &json!(1), 10_000);
    assert!(w.held_bytes(&OTHER) > 10_000);
    w.send(
        conns[1],
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
    );
    assert!(w.held_bytes(&ONE) + 10_000 < held);
    call(&mut w, conns[1], &json!("more"), 9_000);
    for conn in conns {
        w.lose(conn);
    }
    let kept = w.held_bytes(&ONE);
    assert!(kept < 11_000, "the running call alone is held: {kept}");
}

/// The bound of all holds for identities within their shares.
#[test]
fn bytes_of_all_are_bounded() {
    let mut w = world(Limits { running_max: 1, held_bytes_max: 50_000, ..Limits::default() });
    for user in 1..=4 {
        let conn = w.open_as(Identity::User(user), NEWEST);
        call(&mut w, conn, &json!(1), 12_000);
    }
    let late = w.open_as(Identity::User(9), NEWEST);
    call(&mut w, late, &json!(1), 12_000);
    assert_eq!(refusal(&mut w, late), json!({"limit": "held_bytes", "max": 50_000}));
}

/// Ids of open requests are charged, and returned with the request.
#[test]
fn ids_of_open_requests_are_charged() {
    let mut w = world(Limits { inflight_max: 1000, queued_max: 1000, ..Limits::default() });
    let conn = w.open_as(ONE, NEWEST);
    let id = |at: usize| json!(format!("{at:08}{}", "i".repeat(8000)));
    (0..12).for_each(|at| call(&mut w, conn, &id(at), 0));
    assert!(w.held_bytes(&ONE) > 90_000);
    call(&mut w, conn, &id(12), 0);
    let limit = json!({"limit": "held_bytes_per_identity", "max": SHARE});
    assert_eq!(refusal(&mut w, conn), limit);
    w.lose(conn);
    assert!(w.held_bytes(&ONE) < 10_000);
}

/// Names of requests have a length limit, with the error of their kind.
#[test]
fn overlong_names_are_refused() {
    let mut w = world(Limits::default());
    let conn = w.open_as(ONE, NEWEST);
    let long = "n".repeat(NAME + 1);
    let list = |params: Value| json!({"id": 2, "method": "tools/list", "params": params});
    let read = |uri: &str| json!({"id": 2, "method": "resources/read", "params": {"uri": uri}});
    let cases = [
        (json!({"id": long, "method": "tools/list"}), -32600, "the id"),
        (json!({"id": 1, "method": long}), -32600, "method"),
        (list(json!({"_meta": {"progressToken": long}})), -32602, "progressToken"),
        (list(json!({"cursor": long})), -32602, "cursor"),
        (read(&long), -32602, "uri"),
    ];
    for (mut request, code, word) in cases {
        request["jsonrpc"] = json!("2.0");
        w.send(conn, &request.to_string());
        let mut answer = w.next(conn);
        let error = answer["error"].take();
        assert_eq!(error["code"], code, "{error}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(word) && message.contains("8192"), "{message}");
        assert_eq!(answer["id"], request["id"]);
    }
    assert_eq!(w.held_bytes(&ONE), 0);
}

/// Unread output beyond the share costs the identity its connection with most of it.
#[test]
fn unread_output_beyond_the_share_is_cut() {
    let mut w = world(Limits { write_buffer_bytes: 90_000, ..Limits::default() });
    let (full, small) = (w.open_as(ONE, NEWEST), w.open_as(ONE, NEWEST));
    let other = w.open_as(OTHER, NEWEST);
    [full, small, other].into_iter().for_each(|conn| w.stop_reading(conn));
    let odd = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"tools/x"}}"#, "i".repeat(8000));
    for _ in 0..2 {
        w.send(small, &odd);
        w.send(other, &odd);
    }
    for _ in 0..11 {
        w.send(full, &odd);
    }
    assert_eq!(w.closed, vec![(full, CloseReason::Flooded)]);
    assert!(w.held_bytes(&ONE) < 30_000);
    for conn in [small, other] {
        w.start_reading(conn);
    }
    w.send(other, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!(w.rest(other).len(), 3);
}
