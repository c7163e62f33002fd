//! Places of HTTP connections: strangers, users with tokens, and operators (TSK-36).

use ceased_tests::daemon::Daemon;
use ceased_tests::daemon::http::{Http, Reply};

use super::kit::{OPEN, TOKEN, connect, daemon_within, headers, initialize, modern};

fn list(http: &mut Http) -> u16 {
    http.exchange(&headers("tools/list", ""), &modern(1, "tools/list", "")).status
}

fn with_token(daemon: &Daemon) -> Reply {
    let bearer = format!("Bearer {TOKEN}");
    connect(daemon).exchange(&[("authorization", &bearer)], &initialize("2025-11-25"))
}

fn stream(daemon: &Daemon) -> (Http, u16) {
    let mut http = connect(daemon);
    http.request("GET /events", &[("accept", "text/event-stream")], "");
    let status = http.head().status;
    (http, status)
}

/// Idle connections and slow heads of a stranger take places from one another alone.
#[test]
fn strangers_do_not_keep_users_with_tokens_out() {
    let listener = format!("{OPEN}token_file = \"{{home}}/http-tokens\"\n");
    let daemon = daemon_within("connections = 40\n", &listener);
    for said in [&b""[..], b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: "] {
        let mut crowd: Vec<Http> = (0..100).map(|_| connect(&daemon)).collect();
        crowd.iter_mut().for_each(|http| _ = http.try_send(said));
        let reply = with_token(&daemon);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(crowd[0].is_closed(), "the oldest gave way");
    }
}

/// A connection that waits between two requests gives way to a new one of its party, and one in use
/// does not.
#[test]
fn waiting_connections_of_an_address_give_way() {
    let listener = format!("{OPEN}connections_per_address = 3\n");
    let daemon = daemon_within("", &listener);
    let mut kept: Vec<Http> = (0..3).map(|_| connect(&daemon)).collect();
    for http in &mut kept {
        assert_eq!(list(http), 200);
    }
    assert_eq!(list(&mut connect(&daemon)), 200);
    assert!(kept[0].is_closed(), "it waited longest");
    assert_eq!(list(&mut kept[2]), 200);
    let streams: Vec<(Http, u16)> = (0..3).map(|_| stream(&daemon)).collect();
    assert!(streams.iter().all(|(_, status)| *status == 200));
    let (mut late, status) = stream(&daemon);
    assert_eq!(status, 429);
    late.read_to_end();
}

/// An operator on a Unix socket of HTTP has places beside the limit of all.
#[test]
fn operator_has_places_when_http_is_full() {
    let unix = "[[listen]]\ntransport = \"http\"\npath = \"{home}/http.sock\"\n";
    let daemon = daemon_within("connections = 4\n", &format!("{OPEN}{unix}"));
    // The view of a stranger holds a connection of the engine as well.
    let streams: Vec<(Http, u16)> = (0..4).map(|_| stream(&daemon)).collect();
    assert!(streams.iter().any(|(_, status)| *status == 200));
    let mut operator = Http::unix(&daemon.home.path().join("http.sock"));
    assert_eq!(list(&mut operator), 200);
}
