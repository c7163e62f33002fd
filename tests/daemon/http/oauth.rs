//! Signed tokens: metadata, challenges, hostile tokens, scopes, keys over time (AUTH-01, AUTH-02,
//! AUTH-03). The issuer of the tests is a script of Node.js; without it they print that they are
//! skipped.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ceased_tests::daemon::http::{Http, Reply};
use ceased_tests::daemon::{Config, Daemon, Home, wait_until};
use serde_json::{Value, json};

use super::kit::{Session, call, headers, initialize, modern};
use super::tls::certificate;

/// Address by which clients know the daemon, behind a proxy.
const RESOURCE: &str = "https://build.example/mcp";

/// An authorization server.
pub(crate) struct Issuer {
    child: Child,
    pub(crate) url: String,
    /// Where it takes orders of tests.
    orders: String,
}

impl Issuer {
    /// Starts it; `None` without Node.js.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(None)
    }

    /// As [`Issuer::start`], with `cert.pem` and `key.pem` of a directory over TLS; its own orders come
    /// to a plain port beside it.
    fn start_with(tls: Option<&Path>) -> Option<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/daemon/http/issuer.mjs");
        let started = Command::new("node").arg(script).args(tls).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = started else {
            assert!(std::env::var_os("CI").is_none(), "node is not there");
            println!("skipped: no node");
            return None;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (url, orders) = line.trim().split_once(' ').unwrap_or((line.trim(), line.trim()));
        Some(Self { child, url: url.to_owned(), orders: orders.to_owned() })
    }

    fn ask(&self, path: &str, body: &Value) -> Value {
        let host = self.orders.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let body = body.to_string();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let start = text.find('{').unwrap();
        serde_json::from_str(&text[start..=text.rfind('}').unwrap()]).unwrap()
    }

    /// A token for the daemon, with these changes.
    pub(crate) fn token(&self, mut changes: Value) -> String {
        if changes["claims"]["aud"].is_null() {
            changes["claims"]["aud"] = json!(RESOURCE);
        }
        self.ask("/mint", &changes)["token"].as_str().unwrap().to_owned()
    }

    fn change(&self, changes: &Value) -> Value {
        self.ask("/change", changes)
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn daemon_with(issuer: &Issuer, more: &str, tools: &str) -> Daemon {
    let home = Home::new();
    let listen = format!(
        "[[listen]]\ntransport = \"http\"\naddress = \"127.0.0.1:0\"\nresource = \"{RESOURCE}\"\n\
         issuer = [{:?}]\n{more}\n",
        issuer.url
    );
    let audit = home.path().join("audit.jsonl");
    let log = format!("[log]\naudit = {audit:?}\n");
    home.configure(&Config { tools: &format!("{listen}{tools}{log}"), ..Config::default() });
    Daemon::start_in(home)
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

fn begin(daemon: &Daemon, token: &str) -> Reply {
    let bearer = bearer(token);
    let headers = [("authorization", bearer.as_str()), ("host", "build.example")];
    Http::tcp(daemon.http_address()).exchange(&headers, &initialize("2025-11-25"))
}

/// AUTH-01: the metadata are for everyone, at both places, also for pages of other origins.
#[test]
fn metadata_are_found_without_a_token() {
    let Some(issuer) = Issuer::start() else { return };
    let tool = "[[tool]]\nname = \"push\"\nbuiltin = \"echo\"\nallow = [\"scope:push\"]\n";
    let daemon = daemon_with(&issuer, "scopes = [\"mcp:use\"]", tool);
    let page = ("origin", "https://inspector.example");
    for path in ["", "/mcp", "/mcp/review"] {
        let line = format!("/.well-known/oauth-protected-resource{path}");
        let mut http = Http::tcp(daemon.http_address());
        http.request(&format!("GET {line}"), &[page, ("host", "build.example")], "");
        let reply = http.reply();
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("access-control-allow-origin"), Some("*"));
        let found = reply.json();
        assert_eq!(found["resource"], RESOURCE);
        assert_eq!(found["authorization_servers"], json!([issuer.url]));
        assert_eq!(found["scopes_supported"], json!(["mcp:use", "push"]));
        assert_eq!(found["bearer_methods_supported"], json!(["header"]));
        http.request(&format!("OPTIONS {line}"), &[page], "");
        assert_eq!(http.reply().status, 204);
    }
    let mut http = Http::tcp(daemon.http_address());
    http.request("GET /.well-known/oauth-protected-resource/other", &[], "");
    assert_eq!(http.reply().status, 404);
}

/// AUTH-01: a request without a token is told where to get one, and with which scopes; a token that
/// lacks them is told so with 403.
#[test]
fn challenges_name_the_metadata_and_scopes() {
    let Some(issuer) = Issuer::start() else { return };
    let tools = "[[tool]]\nname = \"push\"\nbuiltin = \"echo\"\nallow = [\"scope:push\"]\n\
                 [[server]]\nname = \"git\"\nprefix = \"git_\"\ncommand = [\"false\"]\nallow = [\"scope:git\"]\n";
    let daemon = daemon_with(&issuer, "scopes = [\"mcp:use\"]", tools);
    // Of a call the scopes of its tool as well, as far as the headers name it.
    for (method, tool, token, scopes) in [
        ("tools/call", "push", "", "mcp:use push"),
        ("tools/call", "push", "Bearer a.b.c", "mcp:use push"),
        ("tools/call", "git_status", "", "mcp:use git"),
        ("tools/call", "no_such_tool", "", "mcp:use"),
        ("prompts/get", "push", "", "mcp:use"),
    ] {
        let mut sent = headers(method, tool);
        sent.extend([("host", "build.example"), ("authorization", token)]);
        sent.retain(|(_, value)| !value.is_empty());
        let reply = Http::tcp(daemon.http_address()).exchange(&sent, &modern(1, method, ""));
        let challenge = reply.header("www-authenticate").unwrap_or_default();
        assert_eq!(reply.status, 401, "{reply:?}");
        assert!(challenge.contains(&format!("scope=\"{scopes}\"")), "{tool}: {challenge}");
    }
    let place =
        "resource_metadata=\"https://build.example/.well-known/oauth-protected-resource/mcp\"";
    let mut http = Http::tcp(daemon.http_address());
    let reply = http.exchange(&[("host", "build.example")], &initialize("2025-11-25"));
    let challenge = reply.header("www-authenticate").unwrap_or_default();
    assert!(reply.status == 401 && challenge.contains(place), "{reply:?}");
    assert!(challenge.contains("scope=\"mcp:use\"") && !challenge.contains("error"), "{reply:?}");
    let reply = begin(&daemon, "nonsense");
    let challenge = reply.header("www-authenticate").unwrap_or_default();
    assert!(reply.status == 401 && challenge.contains("error=\"invalid_token\""), "{reply:?}");
    let reply = begin(&daemon, &issuer.token(json!({})));
    let challenge = reply.header("www-authenticate").unwrap_or_default();
    assert!(reply.status == 403 && challenge.contains("error=\"insufficient_scope\""), "{reply:?}");
    assert!(challenge.contains("scope=\"mcp:use\"") && challenge.contains(place), "{reply:?}");
    let with_scope = issuer.token(json!({"claims": {"scope": "other mcp:use"}}));
    assert_eq!(begin(&daemon, &with_scope).status, 200);
    let mut http = Http::tcp(daemon.http_address());
    let query = format!("POST /mcp?access_token={with_scope}");
    http.request(&query, &[("host", "build.example"), ("content-type", "application/json")], "{}");
    assert_eq!(http.reply().status, 401, "a token in the query is none");
}

/// AUTH-02: the whole table of tokens, each with one flaw.
#[test]
fn hostile_tokens_are_refused() {
    let Some(issuer) = Issuer::start() else { return };
    let daemon =
        daemon_with(&issuer, "audience = [\"api://ceased\", \"https://build.example/mcp\"]", "");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    for (name, changes) in [
        ("plain", json!({})),
        ("RSA", json!({"key": "RS256"})),
        ("RSA-PSS", json!({"key": "PS256"})),
        ("P-384", json!({"key": "ES384"})),
        ("Ed25519", json!({"key": "EdDSA"})),
        ("type JWT", json!({"header": {"typ": "JWT"}})),
        ("no type", json!({"drop": ["typ"]})),
        ("one of several audiences", json!({"claims": {"aud": ["x", "api://ceased"]}})),
        ("issued within the leeway", json!({"claims": {"iat": now + 20, "nbf": now + 20}})),
        ("expired within the leeway", json!({"claims": {"exp": now - 20}})),
    ] {
        let reply = begin(&daemon, &issuer.token(changes));
        assert_eq!(reply.status, 200, "{name}: {reply:?}");
    }
    for (name, changes) in [
        ("no signature", json!({"header": {"alg": "none"}, "signature": "none"})),
        ("no signature, alg of the key", json!({"signature": "none"})),
        (
            "the public key as a secret",
            json!({"key": "RS256", "header": {"alg": "HS256"}, "signature": "hmac"}),
        ),
        ("broken signature", json!({"signature": "broken"})),
        ("alg that the key is not for", json!({"key": "RS256", "header": {"alg": "PS256"}})),
        ("key of nobody", json!({"key": "stranger"})),
        ("key of nobody under a known id", json!({"key": "stranger", "header": {"kid": "ES256"}})),
        ("no key id", json!({"drop": ["kid"]})),
        ("other audience", json!({"claims": {"aud": "https://other.example/mcp"}})),
        ("no audience", json!({"drop": ["aud"]})),
        ("empty audience", json!({"claims": {"aud": []}})),
        ("other issuer", json!({"claims": {"iss": "https://other.example"}})),
        ("list of issuers", json!({"claims": {"iss": [issuer.url, "https://other.example"]}})),
        ("issuer with a slash more", json!({"claims": {"iss": format!("{}/", issuer.url)}})),
        ("no issuer", json!({"drop": ["iss"]})),
        ("no subject", json!({"drop": ["sub"]})),
        ("empty subject", json!({"claims": {"sub": ""}})),
        ("number as subject", json!({"claims": {"sub": 7}})),
        ("subject with a line end", json!({"claims": {"sub": "ann\nuid:0"}})),
        ("expired", json!({"claims": {"exp": now - 40}})),
        ("no end", json!({"drop": ["exp"]})),
        ("end as text", json!({"claims": {"exp": "tomorrow"}})),
        ("not yet", json!({"claims": {"nbf": now + 3600}})),
        ("from the future", json!({"claims": {"iat": now + 3600}})),
        ("other type", json!({"header": {"typ": "logout+jwt"}})),
        ("critical extension", json!({"header": {"crit": ["x"], "x": 1}})),
        ("key by URL", json!({"header": {"jku": "https://evil.example/keys"}})),
        ("certificate by URL", json!({"header": {"x5u": "https://evil.example/cert"}})),
        ("too long", json!({"claims": {"more": "x".repeat(9000)}})),
        ("long header", json!({"header": {"x": "x".repeat(3000)}})),
    ] {
        let reply = begin(&daemon, &issuer.token(changes));
        assert_eq!(reply.status, 401, "{name}: {reply:?}");
        assert!(reply.header("www-authenticate").is_some_and(|it| it.contains("invalid_token")));
    }
}

/// AUTH-02: a new key is read when a token names it, a flood of unknown ids reads no more, and an
/// issuer that is away is survived.
#[test]
fn keys_change_and_survive_an_outage() {
    let Some(issuer) = Issuer::start() else { return };
    let daemon = daemon_with(&issuer, "", "");
    let known = issuer.token(json!({}));
    assert_eq!(begin(&daemon, &known).status, 200);
    let before = issuer.change(&json!({"down": true}))["reads"].as_u64().unwrap();
    for number in 0..20 {
        let unknown = issuer.token(json!({"header": {"kid": format!("random {number}")}}));
        assert_eq!(begin(&daemon, &unknown).status, 401);
        assert_eq!(begin(&daemon, &known).status, 200, "the last good keys stay in use");
    }
    let after = issuer.change(&json!({}))["reads"].as_u64().unwrap();
    assert!(after <= before + 1, "{before} {after}");
    // A daemon that starts meanwhile has the last good keys on disk.
    let home = daemon.home.clone();
    drop(daemon);
    let daemon = Daemon::start_in(home);
    assert_eq!(begin(&daemon, &known).status, 200, "the keys on disk");
    let unknown = issuer.token(json!({"header": {"kid": "random"}}));
    assert_eq!(begin(&daemon, &unknown).status, 401);
}

/// AUTH-02: an issuer behind an authority of its own is trusted by `issuer_ca_file` alone.
#[test]
fn issuer_may_have_an_authority_of_its_own() {
    let home = Home::new();
    if !certificate(&home, "7") {
        return;
    }
    let Some(issuer) = Issuer::start_with(Some(home.path())) else { return };
    assert!(issuer.url.starts_with("https://localhost:"), "{}", issuer.url);
    let authority = home.path().join("cert.pem");
    let trusted = daemon_with(&issuer, &format!("issuer_ca_file = {authority:?}"), "");
    let token = issuer.token(json!({}));
    assert_eq!(begin(&trusted, &token).status, 200);
    let other = daemon_with(&issuer, "", "");
    assert_eq!(begin(&other, &token).status, 503, "an authority that the system does not know");
}

/// AUTH-03: the scopes of a token decide on lists and calls, from request to request of a
/// session, and a call that lacks one is told so before its stream begins.
#[test]
fn scopes_decide_from_request_to_request() {
    let Some(issuer) = Issuer::start() else { return };
    let tools = "[[tool]]\nname = \"push\"\nbuiltin = \"echo\"\nallow = [\"scope:push\"]\n\
                 [[tool]]\nname = \"group_tool\"\nbuiltin = \"echo\"\nallow = [\"group:dev\"]\n";
    let daemon = daemon_with(&issuer, "", tools);
    let small = bearer(&issuer.token(json!({"claims": {"scope": "read"}})));
    let large = bearer(&issuer.token(json!({"claims": {"scp": ["push"], "groups": ["dev"]}})));
    let names = |reply: &Reply| -> Vec<String> {
        let tools = reply.json()["result"]["tools"].as_array().cloned().unwrap_or_default();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let session = Session::begin_on(
        &mut Http::tcp(daemon.http_address()),
        &[("authorization", &small)],
        "2025-11-25",
    );
    let ask = |token: &str, body: &str| {
        let headers =
            [&session.headers()[..], &[("authorization", token), ("accept", "application/json")]];
        Http::tcp(daemon.http_address()).exchange(&headers.concat(), body)
    };
    let list = r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#;
    for (token, sees) in [(&small, false), (&large, true), (&small, false)] {
        let listed = names(&ask(token, list));
        for name in ["push", "group_tool"] {
            assert_eq!(listed.iter().any(|it| it == name), sees, "{name}: {listed:?}");
        }
        let reply = ask(token, &call(8, "push", r#"{"text":"x"}"#));
        let challenge = reply.header("www-authenticate").unwrap_or_default();
        match sees {
            true => assert_eq!(reply.json()["result"]["content"][0]["text"], "x", "{reply:?}"),
            false => {
                assert_eq!(reply.status, 403, "{reply:?}");
                assert!(challenge.contains("scope=\"read push\""), "{challenge}");
            }
        }
        let headers = [&headers("tools/call", "push")[..], &[("authorization", token.as_str())]];
        let params = r#""name":"push","arguments":{"text":"y"}"#;
        let mut http = Http::tcp(daemon.http_address());
        let reply = http.exchange(&headers.concat(), &modern(9, "tools/call", params));
        assert_eq!(reply.status, if sees { 200 } else { 403 }, "{reply:?}");
    }
    let reply = ask(&small, &call(9, "group_tool", r#"{"text":"x"}"#));
    assert!(reply.json()["error"].is_object(), "no scope helps: {reply:?}");
    let other = bearer(&issuer.token(json!({"claims": {"sub": "bob"}})));
    assert_eq!(ask(&other, list).status, 404, "a session belongs to its subject");
}

/// AUTH-03: a stream ends when its token expires, with the reason, and its work with it; the audit
/// log names the subject, and no token.
#[test]
fn stream_ends_with_its_token() {
    let Some(issuer) = Issuer::start() else { return };
    let daemon = daemon_with(&issuer, "", "");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    // It ends two seconds from now, with the leeway.
    let token = issuer.token(json!({"claims": {"exp": now - 28, "jti": "the token id"}}));
    let bearer = bearer(&token);
    let headers = [&headers("tools/call", "sleep")[..], &[("authorization", bearer.as_str())]];
    let params = r#""name":"sleep","arguments":{"ms":60000}"#;
    let mut http = Http::tcp(daemon.http_address());
    http.post(&headers.concat(), &modern(1, "tools/call", params));
    http.head();
    let mut last = Value::Null;
    while let Some(event) = http.event() {
        last = event.json();
    }
    let text = last.to_string();
    assert!(text.contains("has expired"), "{text}");
    wait_until("the call has ended", || {
        daemon.status()["jobs"].as_array().is_none_or(Vec::is_empty)
    });
    let audit = std::fs::read_to_string(daemon.home.path().join("audit.jsonl")).unwrap();
    let connect = audit.lines().find(|line| line.contains("\"tokenId\"")).unwrap_or_default();
    let connect: Value = serde_json::from_str(connect).unwrap_or_default();
    let identity = format!("sub:{}#ann", issuer.url);
    assert_eq!(connect["identity"], identity, "{audit}");
    assert_eq!((&connect["subject"], &connect["issuer"]), (&json!("ann"), &json!(issuer.url)));
    assert_eq!(
        (&connect["client"], &connect["tokenId"]),
        (&json!("tests"), &json!("the token id"))
    );
    assert!(!audit.contains(&token[..60]), "no token is recorded");
}
