//! A client that sends exact text, valid or not, and reads answers line by line.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Instant;

use ceased::DaemonHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use rustix::net::{Shutdown, shutdown};
use serde_json::Value;

use super::TIME_LIMIT;

/// One end of a connection.
#[derive(Debug)]
pub struct Peer {
    input: OwnedFd,
    /// `None` after [`Peer::finish`], or if `input` is a socket for both directions.
    output: Option<OwnedFd>,
    heard: Vec<u8>,
    /// Received answers that no caller has fetched yet.
    answers: BTreeMap<u64, Value>,
    /// Received notifications in order.
    notes: Vec<Value>,
    next_id: u64,
}

impl Peer {
    /// A peer of a daemon in this process, after the handshake.
    ///
    /// # Panics
    ///
    /// When the daemon takes no peers.
    #[must_use]
    pub fn of(daemon: &DaemonHandle) -> Self {
        let mut peer = Self::of_socket(daemon.connect().expect("the daemon takes peers").into());
        peer.initialize();
        peer
    }

    /// A peer on a connected socket.
    #[must_use]
    pub fn of_socket(socket: OwnedFd) -> Self {
        Self::make(socket, None)
    }

    /// A peer on two pipes, or other readable and writable descriptors.
    #[must_use]
    pub fn of_pipes(input: OwnedFd, output: OwnedFd) -> Self {
        Self::make(input, Some(output))
    }

    fn make(input: OwnedFd, output: Option<OwnedFd>) -> Self {
        let (heard, answers, notes) = Default::default();
        Self { input, output, heard, answers, notes, next_id: 1 }
    }

    fn output(&self) -> BorrowedFd<'_> {
        self.output.as_ref().map_or_else(|| self.input.as_fd(), |output| output.as_fd())
    }

    /// The socket, or the input.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.input.as_fd()
    }

    /// Writes bytes unchanged.
    ///
    /// # Errors
    ///
    /// When the other side has closed the connection.
    pub fn try_send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match write(self.output(), bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Writes one line.
    ///
    /// # Panics
    ///
    /// When the other side has closed the connection.
    pub fn send(&mut self, line: &str) {
        self.try_send(format!("{line}\n").as_bytes()).expect("the daemon reads");
    }

    /// Sends a request and returns its id.
    pub fn request(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next_id();
        self.send(&request(id, method, params));
        id
    }

    /// An id that this peer has not used.
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Calls a tool without a task and returns the request's id, which is also its progress token.
    pub fn call(&mut self, tool: &str, arguments: &str) -> u64 {
        let id = self.next_id();
        self.send(&call(id, tool, arguments, ""));
        id
    }

    /// Text of a call's result.
    ///
    /// # Panics
    ///
    /// When the answer has no text.
    pub fn text(&mut self, id: u64) -> String {
        let answer = self.answer(id);
        let text = answer["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Calls a tool as a task and returns the task's id.
    ///
    /// # Panics
    ///
    /// When no task is created.
    pub fn create_task(&mut self, tool: &str, arguments: &str) -> String {
        let id = self.next_id();
        self.send(&call(id, tool, arguments, r#","task":{}"#));
        let answer = self.answer(id);
        let task = answer["result"]["task"]["taskId"].as_str();
        task.unwrap_or_else(|| panic!("no task: {answer}")).to_owned()
    }

    /// Cancels a request.
    pub fn cancel(&mut self, id: u64) {
        self.send(&cancel(id));
    }

    /// Performs the handshake.
    ///
    /// # Panics
    ///
    /// When the other side does not answer.
    pub fn initialize(&mut self) {
        let params = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"kit","version":"0"}}"#;
        let result = self.result("initialize", params);
        assert_eq!(result["protocolVersion"], "2025-11-25");
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    }

    /// Sends a request and waits for its result.
    ///
    /// # Panics
    ///
    /// When the answer is an error.
    pub fn result(&mut self, method: &str, params: &str) -> Value {
        let id = self.request(method, params);
        let mut answer = self.answer(id);
        assert!(answer["error"].is_null(), "{method} failed: {answer}");
        answer["result"].take()
    }

    /// Waits for the answer to a request; other messages are kept.
    ///
    /// # Panics
    ///
    /// When the connection ends first.
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return answer;
            }
            let message = self
                .message()
                .unwrap_or_else(|| panic!("the connection ended before an answer to {id}"));
            self.keep(message);
        }
    }

    /// Waits for a notification with this method; other messages are kept.
    ///
    /// # Panics
    ///
    /// When the connection ends first.
    pub fn note(&mut self, method: &str) -> Value {
        loop {
            if let Some(at) = self.notes.iter().position(|note| note["method"] == method) {
                return self.notes.remove(at);
            }
            let message =
                self.message().unwrap_or_else(|| panic!("the connection ended before {method}"));
            self.keep(message);
        }
    }

    /// Drops the notifications received so far.
    pub fn forget_notes(&mut self) {
        self.notes.clear();
    }

    /// Waits until each of these calls has reported progress.
    pub fn wait_started(&mut self, calls: &[u64]) {
        let mut waiting: BTreeSet<u64> = calls.iter().copied().collect();
        while !waiting.is_empty() {
            let note = self.note("notifications/progress");
            note["params"]["progressToken"].as_u64().map(|token| waiting.remove(&token));
        }
    }

    /// Whether an answer to `id` was received and not fetched.
    #[must_use]
    pub fn has_answer(&self, id: u64) -> bool {
        self.answers.contains_key(&id)
    }

    fn keep(&mut self, message: Value) {
        match message["id"].as_u64() {
            Some(id) => drop(self.answers.insert(id, message)),
            None => self.notes.push(message),
        }
    }

    /// The next message of any kind; `None` at the end of the stream.
    ///
    /// # Panics
    ///
    /// When the line is no JSON.
    pub fn message(&mut self) -> Option<Value> {
        let line = self.line()?;
        Some(serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line}")))
    }

    /// The next line without its line end; `None` at the end of the stream, however it ends.
    ///
    /// # Panics
    ///
    /// When nothing arrives within the bound.
    pub fn line(&mut self) -> Option<String> {
        let mut scanned = 0;
        loop {
            let new = self.heard.get(scanned..).unwrap_or_default();
            if let Some(at) = new.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=scanned + at).collect();
                let line = String::from_utf8(line).expect("messages are UTF-8");
                return Some(line.trim_end().to_owned());
            }
            scanned = self.heard.len();
            if !self.hear() {
                assert!(self.heard.is_empty(), "the stream ends within a line");
                return None;
            }
        }
    }

    /// All messages up to the end of the stream.
    pub fn rest(&mut self) -> Vec<Value> {
        let kept = std::mem::take(&mut self.answers).into_values();
        let mut messages: Vec<Value> =
            std::mem::take(&mut self.notes).into_iter().chain(kept).collect();
        messages.extend(std::iter::from_fn(|| self.message()));
        messages
    }

    /// Whether no unread byte is available.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        let mut fds = [PollFd::new(&self.input, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.heard.is_empty() && poll(&mut fds, Some(&now)).is_ok_and(|ready| ready == 0)
    }

    /// Reads available bytes; false at the end of the stream.
    fn hear(&mut self) -> bool {
        let until = Instant::now() + TIME_LIMIT;
        let mut buffer = [0; 64 * 1024];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).expect("a short time");
            let mut fds = [PollFd::new(&self.input, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) => panic!("no byte from the daemon in time; unread: {:?}", self.heard),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("poll: {error}"),
            }
            match read(&self.input, &mut buffer) {
                Ok(0) | Err(Errno::CONNRESET) => return false,
                Ok(count) => {
                    self.heard.extend_from_slice(buffer.get(..count).unwrap_or_default());
                    return true;
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => panic!("read: {error}"),
            }
        }
    }

    /// Closes the sending direction (half-close); answers can still be read.
    pub fn finish(&mut self) {
        match self.output.take() {
            Some(output) => drop(output),
            // A failure means that the other side has closed, which the next read shows.
            None => drop(shutdown(&self.input, Shutdown::Write)),
        }
    }
}

/// Text of a request.
#[must_use]
pub fn request(id: u64, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// Text of a `tools/call` with its id as progress token; `more` are further params, each with a
/// leading comma.
#[must_use]
pub fn call(id: u64, tool: &str, arguments: &str, more: &str) -> String {
    let params = format!(
        r#"{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":{id}}}{more}}}"#
    );
    request(id, "tools/call", &params)
}

/// Text of a cancellation.
#[must_use]
pub fn cancel(id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"test"}}}}"#
    )
}
