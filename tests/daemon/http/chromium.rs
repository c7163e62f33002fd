//! A headless Chromium, driven by the DevTools protocol over a pair of pipes.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ceased_tests::daemon::TIME_LIMIT;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Pages of this host come from this machine, and are of another origin.
pub(crate) const FOREIGN_HOST: &str = "evil.example";

/// A page in a browser of its own. Ended when dropped.
pub(crate) struct Page {
    child: Child,
    to: File,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    events: VecDeque<Value>,
    _home: TempDir,
}

impl Page {
    /// Starts a browser with an empty page; `None` with a printed line on a machine without it.
    pub(crate) fn start() -> Option<Self> {
        let program = ["chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"]
            .into_iter()
            .find(|program| {
                let mut command = Command::new(program);
                command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
                command.status().is_ok_and(|status| status.success())
            });
        let Some(program) = program else { return missing() };
        let home = tempfile::Builder::new().prefix("ceased-page-").tempdir().expect("a folder");
        let pipe = |name: &str| {
            let path = home.path().join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
            path
        };
        let (to, from) = (pipe("to"), pipe("from"));
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", r#"exec "$@" 3<"$TO" 4>"$FROM""#, "sh", program]);
        command.args([
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--no-proxy-server",
        ]);
        command.arg(format!("--user-data-dir={}", home.path().join("profile").display()));
        // No name outside of this machine is looked up.
        command.arg(format!(
            "--host-resolver-rules=MAP {FOREIGN_HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        ));
        command.env("TO", &to).env("FROM", &from).env("HOME", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the browser starts");
        let to = OpenOptions::new().write(true).open(to).expect("the browser reads");
        let from = BufReader::new(File::open(from).expect("the browser writes"));
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for message in from.split(0) {
                let Ok(message) = message else { return };
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (session, events) = (None, VecDeque::new());
        let mut page = Self { child, to, from: receiver, next: 0, session, events, _home: home };
        let target = page.order("Target.createTarget", &json!({"url": "about:blank"}));
        let attached = page.order(
            "Target.attachToTarget",
            &json!({"targetId": target["targetId"], "flatten": true}),
        );
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            page.order(domain, &json!({}));
        }
        Some(page)
    }

    /// Sends a command and waits for its result.
    pub(crate) fn order(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut text = message.to_string().into_bytes();
        text.push(0);
        self.to.write_all(&text).expect("the browser reads");
        let until = Instant::now() + TIME_LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let message = self
                .from
                .recv_timeout(left)
                .unwrap_or_else(|why| panic!("the browser does not answer {method}: {why}"));
            if message["id"] == json!(self.next) {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    /// Opens an address and waits for the page.
    pub(crate) fn open(&mut self, address: &str) {
        let opened = self.order("Page.navigate", &json!({"url": address}));
        assert_eq!(opened.get("errorText"), None, "{address}");
        self.wait("the page is loaded", "document.readyState === 'complete'");
    }

    /// Evaluates an expression, and waits for its promise.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        self.evaluate(expression).unwrap_or_else(|why| panic!("{expression}: {why}"))
    }

    fn evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.order("Runtime.evaluate", &params);
        match result.get("exceptionDetails") {
            Some(why) => Err(why.clone()),
            None => Ok(result["result"]["value"].clone()),
        }
    }

    /// Waits until an expression is true. It may fail while a page is being replaced.
    pub(crate) fn wait(&mut self, what: &str, expression: &str) {
        let until = Instant::now() + TIME_LIMIT;
        while self.evaluate(&format!("Boolean({expression})")) != Ok(json!(true)) {
            if Instant::now() > until {
                let text = self.evaluate("document.body.innerText");
                panic!("in vain: {what}; the page shows: {text:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types a text into the element with the focus.
    pub(crate) fn type_text(&mut self, text: &str) {
        self.order("Input.insertText", &json!({"text": text}));
    }

    /// Presses a key and releases it.
    pub(crate) fn press(&mut self, key: &str) {
        let (text, code) = match key {
            "Enter" => ("\r", 13),
            "Escape" => ("", 27),
            "Tab" => ("", 9),
            "ArrowDown" => ("", 40),
            key => (key, i64::from(key.as_bytes()[0].to_ascii_uppercase())),
        };
        let mut params = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code});
        if !text.is_empty() {
            params["text"] = json!(text);
        }
        self.order("Input.dispatchKeyEvent", &params);
        params = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.order("Input.dispatchKeyEvent", &params);
    }

    /// Sets the size of the window, in pixels of style sheets.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        self.order(
            "Emulation.setDeviceMetricsOverride",
            &json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}),
        );
    }

    /// Sets whether the user prefers dark or light pages.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.order("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// A picture of the page in base64.
    pub(crate) fn picture(&mut self) -> String {
        let picture = self.order("Page.captureScreenshot", &json!({"format": "png"}));
        picture["data"].as_str().expect("a picture").to_owned()
    }

    /// Errors of scripts, and violations of the policy, since the last call.
    pub(crate) fn take_errors(&mut self) -> Vec<String> {
        // Events before this answer have arrived with it.
        self.value("1");
        let said = self.events.drain(..).filter(|event| {
            let entry = &event["params"]["entry"];
            event["method"] == "Runtime.exceptionThrown"
                || (event["method"] == "Log.entryAdded"
                    && entry["level"] == "error"
                    && entry["source"] != "network")
        });
        said.map(|event| event["params"].to_string()).collect()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Its other processes are of its group.
        if let Some(group) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Reports a skipped test directly to the terminal, because the test harness captures output.
fn missing() -> Option<Page> {
    let text = "THE LIVE VIEW IS NOT TESTED: this machine has no Chromium";
    assert!(std::env::var_os("CI").is_none(), "{text}; with $CI set that is a failure");
    let line = "=".repeat(text.len());
    let _ = writeln!(io::stderr(), "{line}\n{text}\n{line}");
    None
}
