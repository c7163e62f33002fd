//! `ceased probe` over TLS and over HTTP on a Unix socket, with certificates made here.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use ceased_tests::binary::ceased;
use serde_json::Value;
use tempfile::TempDir;

use super::network::{HTTP, SESSION, STATELESS};
use super::{Probe, document, output_of, with};

/// Certificates of servers, signed by an authority of their own.
pub(crate) struct Certificates {
    dir: TempDir,
}

/// Configuration of the authority.
const AUTHORITY: &str = "
[ca]
default_ca = this
[this]
new_certs_dir = .
database = index.txt
serial = serial
default_md = sha256
policy = names
private_key = ca.key
certificate = ca.pem
unique_subject = no
[names]
commonName = supplied
[leaf]
basicConstraints = CA:FALSE
subjectAltName = $ENV::NAMES
";

impl Certificates {
    /// An authority without certificates; `None` without openssl.
    pub(crate) fn new() -> Option<Self> {
        if Command::new("openssl").arg("version").output().is_err() {
            println!("skipped: no openssl");
            return None;
        }
        let made = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(made.path("ca.cnf"), AUTHORITY).unwrap();
        fs::write(made.path("index.txt"), "").unwrap();
        fs::write(made.path("serial"), "01\n").unwrap();
        made.authority("ca");
        Some(made)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn openssl(&self, names: &str, line: &str) {
        let mut command = Command::new("openssl");
        command.args(line.split_whitespace()).current_dir(self.dir.path());
        let output = command.env("NAMES", names).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "openssl {line}: {stderr}");
    }

    fn key(&self, name: &str) {
        self.openssl("", &format!("ecparam -name prime256v1 -genkey -noout -out {name}.key"));
    }

    /// An authority that vouches for itself, with its key in the same file.
    pub(crate) fn authority(&self, name: &str) -> PathBuf {
        self.key(name);
        let subject = "-subj /CN=authority -addext subjectAltName=IP:127.0.0.1 -days 2";
        self.openssl("", &format!("req -x509 -new -key {name}.key {subject} -out {name}.pem"));
        self.joined(name)
    }

    /// A certificate for these names with its key, until the end of this year.
    pub(crate) fn signed(&self, name: &str, names: &str, until: u16) -> PathBuf {
        self.key(name);
        self.openssl("", &format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr"));
        let dates = format!("-startdate 20200101000000Z -enddate {until}1231235959Z");
        let config = "-batch -notext -config ca.cnf -extensions leaf";
        self.openssl(names, &format!("ca {config} {dates} -in {name}.csr -out {name}.pem"));
        self.joined(name)
    }

    fn joined(&self, name: &str) -> PathBuf {
        let text = |end: &str| fs::read_to_string(self.path(&format!("{name}.{end}"))).unwrap();
        let path = self.path(&format!("{name}.both"));
        fs::write(&path, text("pem") + &text("key")).unwrap();
        path
    }
}

impl Probe {
    /// Runs the scripted server over TLS with this certificate, another instance for each check.
    fn run_over_tls(&self, certificate: Option<&Path>, url: &str, options: &[&str]) -> Output {
        let state = self.dir.path().join("state");
        fs::create_dir_all(&state).unwrap();
        let script = self.dir.path().join("http_server.py");
        fs::write(&script, HTTP).unwrap();
        let mut command = Command::new(ceased());
        command.args(["probe", "--json", "-", "--window", "700ms", "--url", url]).args(options);
        command.args(["--", "python3", "-S"]).arg(script);
        let address = match url.starts_with("unix:") {
            true => self.dir.path().join("{port}.sock").to_string_lossy().into_owned(),
            false => "{port}".to_owned(),
        };
        command.arg(address).arg(state);
        if let Some(certificate) = certificate {
            command.env("SERVER_CERTIFICATE", certificate);
        }
        output_of(&mut command)
    }
}

const URL: &str = "https://127.0.0.1:{port}/mcp";

/// Checks that hold, of a probe without deviations.
fn held(output: &Output) -> (Value, BTreeSet<String>) {
    let found = document(output);
    assert_eq!(with(&found, "deviates"), BTreeSet::new(), "{found:#}");
    assert_eq!(output.status.code(), Some(0), "{found:#}");
    let held = with(&found, "holds");
    (found, held)
}

/// Certificates are verified against a file of authorities.
#[test]
fn server_over_tls_is_probed_in_both_eras() {
    let Some(made) = Certificates::new() else { return };
    let certificate = made.signed("good", "IP:127.0.0.1,DNS:localhost", 2099);
    let ca = made.path("ca.pem").to_string_lossy().into_owned();
    for (revision, url, of_era) in [
        (SESSION, URL, ["cancel-no-answer", "http-session-delete"]),
        (STATELESS, "https://LOCALHOST:{port}/mcp", ["http-posted-cancel", "http-headers"]),
    ] {
        let options = ["--ca-file", &ca, "--revision", revision, "--only"];
        let options = [&options[..], &["handshake,cancel-no-answer,http"]];
        let output = Probe::new().run_over_tls(Some(&certificate), url, &options.concat());
        let (found, held) = held(&output);
        assert_eq!(found["revision"], revision);
        assert!(held.contains("http-answer-end"), "{found:#}");
        assert!(of_era.iter().all(|id| held.contains(*id)), "{found:#}");
    }
}

/// An expired and a self-signed certificate, another name, an unknown authority.
#[test]
fn certificates_that_do_not_fit_are_named_with_a_remedy() {
    let Some(made) = Certificates::new() else { return };
    let good = made.signed("good", "IP:127.0.0.1", 2099);
    let expired = made.signed("expired", "IP:127.0.0.1", 2021);
    let other = made.signed("other", "DNS:other.example,DNS:more.example", 2099);
    let itself = made.authority("itself");
    let (ca, foreign) = (made.path("ca.pem"), made.path("itself.pem"));
    for (certificate, ca, wanted) in [
        (Some(&expired), Some(&ca), "the certificate of 127.0.0.1 has expired"),
        (Some(&other), Some(&ca), "is for other.example, more.example; use that name in the URL"),
        (Some(&good), Some(&foreign), "no authority that is trusted has signed"),
        (Some(&good), None, "trusted by a file (ca_file, --ca-file)"),
        (Some(&itself), Some(&foreign), "is that of an authority (self-signed, CA:TRUE)"),
    ] {
        let ca = ca.map(|ca| ca.to_string_lossy().into_owned());
        let ca = ca.as_deref().map_or(vec![], |ca| vec!["--ca-file", ca]);
        let options = [&ca[..], &["--only", "handshake"]].concat();
        let output = Probe::new().run_over_tls(certificate.map(PathBuf::as_path), URL, &options);
        let stderr = String::from_utf8_lossy(&output.stderr);
        // A machine without certificates of authorities says so instead.
        let is_without_roots = ca.is_empty() && stderr.contains("ca-certificates");
        assert!(stderr.contains(wanted) || is_without_roots, "{wanted}: {stderr}");
        assert_eq!(output.status.code(), Some(if is_without_roots { 2 } else { 3 }), "{stderr}");
    }
}

/// The text of a probe of a server that gives everyone this answer.
fn answered_by(answer: &'static [u8], scheme: &str) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // As often as the probe connects, up to the end of the test.
    thread::spawn(move || {
        for mut peer in listener.incoming().map_while(Result::ok) {
            let _ = peer.read(&mut [0; 4096]);
            let _ = peer.write_all(answer);
        }
    });
    let mut command = Command::new(ceased());
    command.args(["probe", "--only", "handshake", "--timeout", "3s", "--url"]);
    let output = output_of(command.arg(format!("{scheme}://127.0.0.1:{port}/")));
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8(said).unwrap()
}

/// TLS to a server that speaks plain HTTP, and plain HTTP to a server that speaks TLS, which answers
/// by an alert.
#[test]
fn wrong_scheme_of_an_address_is_named() {
    let said = answered_by(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", "https");
    let is_without_roots = said.contains("ca-certificates");
    assert!(said.contains("does not speak TLS there") || is_without_roots, "{said}");
    let said = answered_by(&[21, 3, 1, 0, 2, 2, 70], "http");
    assert!(said.contains("it speaks TLS: use https://"), "{said}");
}

#[test]
fn server_over_http_on_a_unix_socket_is_probed() {
    let probe = Probe::new();
    let url = format!("unix:{}/{{port}}.sock", probe.dir.path().display());
    let output = probe.run_over_tls(None, &url, &["--only", "handshake,cancel-no-answer,http"]);
    let (found, held) = held(&output);
    assert!(held.contains("http-cancel-end") && held.contains("cancel-no-answer"), "{found:#}");
}

#[test]
fn files_of_authorities_that_cannot_be_used_are_wrong_use() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.pem");
    fs::write(&empty, "no certificate").unwrap();
    let missing = dir.path().join("missing.pem");
    let said = |url: &str, file: &Path| {
        let mut command = Command::new(ceased());
        let output = command.args(["probe", "--url", url, "--ca-file"]).arg(file).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{url}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said("https://localhost/mcp", &empty).contains("has no certificate"));
    assert!(said("https://localhost/mcp", &missing).contains("missing.pem"));
    assert!(said("http://localhost/mcp", &empty).contains("https://"));
}
