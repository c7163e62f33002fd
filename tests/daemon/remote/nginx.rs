//! Servers by URL behind nginx with TLS, which buffers streams, passes them on, or cuts them.

use std::net::{TcpListener, TcpStream};

use ceased_tests::daemon::{Home, wait_until};

use super::kit::{Remote, proof};
use crate::durable::fleet::balancer;
use crate::probe::tls::Certificates;
use crate::servers::kit::{error, say};

/// REM-01, REM-02, REM-03, REM-04: calls, streams and cancels pass a proxy, with and without its buffers;
/// a call whose stream it cuts has an unknown outcome.
#[test]
fn servers_behind_nginx_are_called_and_cancelled() {
    let Some(made) = Certificates::new() else { return };
    let pem = made.signed("front", "IP:127.0.0.1", 2049);
    let pem = pem.display();
    for era in ["session", "modern"] {
        let remote = Remote::start(era, &[]);
        let front = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let place = |name: &str, more: &str| {
            let pass = format!("proxy_pass http://127.0.0.1:{}/;", remote.port);
            format!("location /{name}/ {{ {pass} proxy_http_version 1.1; {more} }}\n")
        };
        let places = [
            place("on", "proxy_buffering on;"),
            place("off", "proxy_buffering off;"),
            place("cut", "proxy_buffering off; proxy_read_timeout 200ms;"),
        ];
        let text = format!(
            "server {{ listen {front} ssl; ssl_certificate {pem}; ssl_certificate_key {pem};\n{} }}",
            places.concat()
        );
        let home = Home::new();
        let Some(_nginx) = balancer(&home, "nginx", &text) else { return };
        wait_until("nginx listens", || TcpStream::connect(front).is_ok());
        let ca = format!("ca_file = {:?}", made.path("ca.pem"));
        for place in ["on", "off"] {
            let begun = remote.posts("tools/call").len();
            let daemon = remote.daemon_at(&format!("https://{front}/{place}/mcp"), &ca);
            let mut peer = daemon.peer();
            assert_eq!(say(&mut peer, "echo", r#"{"text":"x"}"#), "x", "{era} {place}");
            assert_eq!(say(&mut peer, "stream", "{}"), "streamed", "{era} {place}");
            let call = peer.call("hold", "{}");
            let posted = remote.wait_for("tools/call", begun + 3).remove(begun + 2);
            peer.cancel(call);
            let expected = if era == "modern" { "stream_closed" } else { "told" };
            assert_eq!(proof(&daemon), expected, "{era} {place}");
            remote.wait_closed(&posted["body"]["id"]);
            assert_eq!(say(&mut peer, "echo", r#"{"text":"y"}"#), "y", "{era} {place}");
        }
        let daemon = remote.daemon_at(&format!("https://{front}/cut/mcp"), &ca);
        let mut peer = daemon.peer();
        let told = error(&mut peer, "hold", "{}");
        assert!(told.contains("the outcome of the call is unknown"), "{era}: {told}");
        assert_eq!(say(&mut peer, "echo", r#"{"text":"z"}"#), "z", "{era}: it goes on");
    }
}
