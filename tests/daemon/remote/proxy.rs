//! Servers by URL behind a proxy of the environment, and certificates of this side (REM-05).

use std::io::{Read as _, Write as _, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use ceased_tests::daemon::{Daemon, Home};

use super::kit::{self, Remote};
use crate::probe::tls::Certificates;
use crate::servers::kit::{error, say};

/// A proxy that has one server behind it, whatever host is asked for.
struct Proxy {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// A proxy in front of a port of this machine; one that refuses if that is 0.
    fn before(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heads);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                thread::spawn(move || pass(stream, to, &kept));
            }
        });
        Self { port, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// A daemon that reaches `far` by this URL through the proxy.
    fn daemon(&self, url: &str, more: &str) -> Daemon {
        let home = Home::new();
        kit::configure(&home, url, more);
        let mut command = home.command(&["serve"]);
        let proxy = format!("http://me:pass%3A@127.0.0.1:{}", self.port);
        command.env("HTTPS_PROXY", &proxy).env("HTTP_PROXY", &proxy);
        for name in ["http_proxy", "https_proxy", "NO_PROXY", "no_proxy"] {
            command.env_remove(name);
        }
        Daemon::start_with(home, command)
    }
}

fn pass(mut client: TcpStream, to: u16, kept: &Mutex<Vec<String>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    let text = String::from_utf8(head).unwrap();
    kept.lock().unwrap().push(text.clone());
    if to == 0 {
        let _ = client.write_all(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n");
        return;
    }
    let mut server = TcpStream::connect(("127.0.0.1", to)).unwrap();
    match text.starts_with("CONNECT ") {
        // Byte by byte, so that the client reads a head in pieces.
        true => b"HTTP/1.1 200 Go\r\nvia: test\r\n\r\n".iter().for_each(|byte| {
            client.write_all(&[*byte]).unwrap();
        }),
        false => {
            let (line, rest) = text.split_once("\r\n").unwrap();
            let line = line.replace("http://far.test:81", "");
            server.write_all(format!("{line}\r\n{rest}").as_bytes()).unwrap();
        }
    }
    let (mut from, mut back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = copy(&mut from, &mut back);
        let _ = back.shutdown(Shutdown::Write);
    });
    let _ = copy(&mut server, &mut client);
    let _ = client.shutdown(Shutdown::Both);
}

const BASIC: &str = "proxy-authorization: Basic bWU6cGFzczo=\r\n";

/// A proxy of the environment is given whole requests without TLS, and looks up the host.
#[test]
fn plain_server_behind_a_proxy_is_called() {
    let remote = Remote::start("session", &[]);
    let proxy = Proxy::before(u16::try_from(remote.port).unwrap());
    let daemon = proxy.daemon("http://far.test:81/mcp", "");
    assert_eq!(say(&mut daemon.peer(), "echo", r#"{"text":"x"}"#), "x");
    let heads = proxy.heads();
    for head in &heads {
        assert!(head.contains(" http://far.test:81/mcp HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(BASIC) && head.contains("host: far.test:81\r\n"), "{head}");
    }
    assert!(!heads.is_empty());
    let daemon = Proxy::before(0).daemon("https://far.test/mcp", "");
    let told = error(&mut daemon.peer(), "echo", "{}");
    assert!(told.contains("wants a user and a password for far.test:443 (HTTP 407)"), "{told}");
}

/// A server with TLS is reached through a tunnel of the proxy, and is shown the certificate of this
/// side where it asks for one.
#[test]
fn server_over_tls_is_reached_through_a_tunnel_with_a_certificate() {
    let Some(made) = Certificates::new() else { return };
    let ca = made.path("ca.pem");
    let server = made.signed("far", "DNS:far.test", 2049);
    made.signed("own", "DNS:own.test", 2049);
    let options = [format!("tls:{}", server.display()), format!("clients:{}", ca.display())];
    let remote = Remote::start("modern", &[&options[0], &options[1]]);
    let proxy = Proxy::before(u16::try_from(remote.port).unwrap());
    kit::write_secret(
        &made.path("own.key"),
        &std::fs::read_to_string(made.path("own.key")).unwrap(),
    );
    let own = format!(
        "client_cert = {:?}\nclient_key = {:?}",
        made.path("own.pem"),
        made.path("own.key")
    );
    let more = format!("ca_file = {ca:?}\n{own}");
    let daemon = proxy.daemon("https://far.test/mcp", &more);
    assert_eq!(say(&mut daemon.peer(), "echo", r#"{"text":"x"}"#), "x");
    for head in proxy.heads() {
        assert!(
            head.starts_with("CONNECT far.test:443 HTTP/1.1\r\n") && head.contains(BASIC),
            "{head}"
        );
    }
    let daemon = proxy.daemon("https://far.test/mcp", &format!("ca_file = {ca:?}"));
    let told = error(&mut daemon.peer(), "echo", "{}");
    assert!(told.contains("far.test") && told.to_lowercase().contains("certificate"), "{told}");
}
