//! TLS of a listener: requests over it, plain ones beside it, and a reload of the certificate.

use std::path::Path;
use std::process::Command;

use ceased_tests::daemon::{Config, Daemon, Home, Program};

/// Speaks HTTP over TLS: initialize, then a call with progress in a stream. Prints the answer and the
/// number of the certificate.
const CLIENT: &str = r#"
import http.client, json, ssl, sys
port, authority = int(sys.argv[1]), sys.argv[2]
context = ssl.create_default_context(cafile=authority)
context.set_alpn_protocols(["http/1.1"])
http1 = http.client.HTTPSConnection("localhost", port, context=context, timeout=30)
meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x" * 300000}, "_meta": meta}}
headers = {"content-type": "application/json", "accept": "application/json", "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "echo"}
for _ in range(2):
    http1.request("POST", "/mcp", json.dumps(body), headers)
    answer = json.loads(http1.getresponse().read())
print(len(answer["result"]["content"][0]["text"]), http1.sock.getpeercert()["serialNumber"], http1.sock.selected_alpn_protocol())
"#;

pub(super) fn certificate(home: &Home, serial: &str) -> bool {
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| home.path().join(name));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    openssl.args(["-days", "2", "-subj", "/CN=localhost", "-set_serial", serial]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost", "-addext"]);
    openssl
        .args(["basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert);
    let Ok(made) = openssl.output() else {
        println!("skipped: no openssl");
        return false;
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    true
}

fn ask(daemon: &Daemon, authority: &Path) -> String {
    let mut python = Command::new("python3");
    python.args(["-c", CLIENT, &daemon.http_address().port().to_string()]).arg(authority);
    let ran = python.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

#[test]
fn listener_speaks_tls_and_reloads_its_certificate() {
    let home = Home::new();
    if !certificate(&home, "0x1234") {
        return;
    }
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| home.path().join(name));
    let listen = format!(
        "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\ntls_cert = {cert:?}\ntls_key = {key:?}\n"
    );
    home.configure(&Config { tools: &listen, ..Config::default() });
    let daemon = Daemon::start_in(home);
    assert_eq!(ask(&daemon, &cert), "300000 1234 http/1.1");
    // A client without TLS gets nothing, and holds up no other.
    let mut plain = super::kit::connect(&daemon);
    plain.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(certificate(&daemon.home, "0x5678"));
    let reload = |code| {
        let ran = Program::start(&daemon.home, daemon.home.command(&["reload"])).wait();
        assert_eq!(ran.code, Some(code), "{ran:?}");
    };
    reload(0);
    assert_eq!(ask(&daemon, &cert), "300000 5678 http/1.1");
    std::fs::write(&key, "no key").unwrap();
    reload(2);
    let ran = std::fs::read(&cert).unwrap();
    assert!(!ran.is_empty());
    assert_eq!(ask(&daemon, &cert), "300000 5678 http/1.1", "a wrong key changes nothing");
}
