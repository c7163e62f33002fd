//! A raw HTTP client: it writes the bytes of a test, and reads responses and events strictly.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::TIME_LIMIT;

/// Headers of every POST of a well-behaved client.
pub const JSON: &[(&str, &str)] =
    &[("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

trait Stream: Read + Write + Send {
    fn half_close(&self);
}

impl Stream for TcpStream {
    fn half_close(&self) {
        self.shutdown(Shutdown::Write).expect("the socket is open");
    }
}

impl Stream for UnixStream {
    fn half_close(&self) {
        self.shutdown(Shutdown::Write).expect("the socket is open");
    }
}

/// An HTTP connection of a test.
pub struct Http {
    stream: Box<dyn Stream>,
    bytes: Vec<u8>,
}

/// A response, or its head.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    headers: Vec<(String, String)>,
    /// Body, decoded; empty for a stream that was begun.
    pub body: String,
}

/// A server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// Its id.
    pub id: Option<String>,
    /// Its data; empty for a priming event.
    pub data: String,
}

impl Reply {
    /// Value of the header with this name, in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// When the body is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }
}

impl SseEvent {
    /// The data as JSON.
    ///
    /// # Panics
    ///
    /// When the data is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }
}

impl Http {
    /// Connects over TCP.
    ///
    /// # Panics
    ///
    /// When that fails.
    #[must_use]
    pub fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the listener accepts");
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("a socket has timeouts");
        stream.set_write_timeout(Some(TIME_LIMIT)).expect("a socket has timeouts");
        Self { stream: Box::new(stream), bytes: Vec::new() }
    }

    /// Connects to a Unix socket.
    ///
    /// # Panics
    ///
    /// When that fails.
    #[must_use]
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the listener accepts");
        stream.set_read_timeout(Some(TIME_LIMIT)).expect("a socket has timeouts");
        stream.set_write_timeout(Some(TIME_LIMIT)).expect("a socket has timeouts");
        Self { stream: Box::new(stream), bytes: Vec::new() }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// Error of the system.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    ///
    /// When the server has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).expect("the server reads");
    }

    /// Sends a request with these headers and body.
    pub fn request(&mut self, line: &str, headers: &[(&str, &str)], body: &str) {
        let mut text = format!("{line} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            text.push_str("host: localhost\r\n");
        }
        for (name, value) in headers {
            text.extend([name, ": ", value, "\r\n"]);
        }
        if line.starts_with("POST") {
            text.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
        }
        text.push_str("\r\n");
        text.push_str(body);
        self.send(text.as_bytes());
    }

    /// Sends a POST to the endpoint with the usual headers and more.
    pub fn post(&mut self, more: &[(&str, &str)], body: &str) {
        self.request("POST /mcp", &[JSON, more].concat(), body);
    }

    /// Sends a POST and reads the whole response.
    pub fn exchange(&mut self, more: &[(&str, &str)], body: &str) -> Reply {
        self.post(more, body);
        self.reply()
    }

    /// Ends our side; responses can still be read.
    pub fn half_close(&self) {
        self.stream.half_close();
    }

    /// Reads more bytes; false at the end of the stream.
    fn read_more(&mut self) -> bool {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => false,
            Ok(count) => {
                self.bytes.extend_from_slice(&piece[..count]);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}; so far {:?}", String::from_utf8_lossy(&self.bytes)),
        }
    }

    /// Whether the server closes the connection, without another byte.
    #[must_use]
    pub fn is_closed(&mut self) -> bool {
        self.bytes.is_empty() && !self.read_more()
    }

    /// Reads until the server closes the connection, whatever it still writes.
    pub fn read_to_end(&mut self) {
        while self.read_more() {}
        self.bytes.clear();
    }

    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.bytes.windows(2).position(|pair| pair == b"\r\n") {
                let line = String::from_utf8_lossy(&self.bytes[..at]).into_owned();
                self.bytes.drain(..at + 2);
                return Some(line);
            }
            if !self.read_more() {
                return None;
            }
        }
    }

    /// Reads the head of a final response; interim responses are skipped, as clients do.
    ///
    /// # Panics
    ///
    /// When the connection ends before it.
    pub fn head(&mut self) -> Reply {
        let head = self.any_head();
        if (100..200).contains(&head.status) { self.head() } else { head }
    }

    /// Reads the head of a response, interim or final.
    ///
    /// # Panics
    ///
    /// When the connection ends before it.
    pub fn any_head(&mut self) -> Reply {
        let status = self.line().expect("a status line");
        let (version, rest) = status.split_once(' ').expect("a status line");
        assert_eq!(version, "HTTP/1.1", "{status}");
        let code = rest.get(..3).and_then(|code| code.parse().ok()).expect("a status code");
        let mut headers = Vec::new();
        loop {
            let line = self.line().expect("the end of the head");
            if line.is_empty() {
                return Reply { status: code, headers, body: String::new() };
            }
            let (name, value) = line.split_once(": ").expect("a header");
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    /// Reads a whole response.
    ///
    /// # Panics
    ///
    /// When the connection ends before its end.
    pub fn reply(&mut self) -> Reply {
        let mut reply = self.head();
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk() {
                reply.body.push_str(&chunk);
            }
        } else if let Some(length) = reply.header("content-length") {
            let length: usize = length.parse().expect("a number");
            while self.bytes.len() < length {
                assert!(self.read_more(), "the body is cut off: {reply:?}");
            }
            reply.body = String::from_utf8_lossy(&self.bytes[..length]).into_owned();
            self.bytes.drain(..length);
        }
        reply
    }

    /// Reads a chunk; `None` for the last one, which is empty.
    fn chunk(&mut self) -> Option<String> {
        let size = self.line().expect("the size of a chunk");
        let size = usize::from_str_radix(&size, 16).expect("the size of a chunk");
        while self.bytes.len() < size + 2 {
            assert!(self.read_more(), "the chunk is cut off");
        }
        let text = String::from_utf8_lossy(&self.bytes[..size]).into_owned();
        assert_eq!(&self.bytes[size..size + 2], b"\r\n");
        self.bytes.drain(..size + 2);
        (size > 0).then_some(text)
    }

    /// The next event of a stream, without comments; `None` at the end of the stream. The server
    /// writes each event as a chunk of its own.
    pub fn event(&mut self) -> Option<SseEvent> {
        loop {
            let chunk = self.chunk()?;
            for block in chunk.split_terminator("\n\n") {
                let mut event = SseEvent { id: None, data: String::new() };
                let mut is_event = false;
                for line in block.lines() {
                    match line.split_once(':') {
                        Some(("data", data)) => {
                            event.data.push_str(data.trim_start());
                            is_event = true;
                        }
                        Some(("id", id)) => event.id = Some(id.trim_start().to_owned()),
                        Some(("", _) | ("retry", _)) => {}
                        Some(_) | None => panic!("no line of an event: {line:?}"),
                    }
                }
                if is_event {
                    return Some(event);
                }
            }
        }
    }

    /// The next event with data.
    ///
    /// # Panics
    ///
    /// When the stream ends before it.
    pub fn message(&mut self) -> Value {
        loop {
            let event = self.event().expect("a message");
            if !event.data.is_empty() {
                return event.json();
            }
        }
    }

    /// Waits for the answer to a request on a stream or as JSON, whatever the server chose.
    ///
    /// # Panics
    ///
    /// When the response is no success, or ends before the answer.
    pub fn answer(&mut self) -> Value {
        let head = self.head();
        if head.header("content-type") == Some("text/event-stream") {
            loop {
                let message = self.message();
                if message.get("method").is_none() {
                    while self.event().is_some() {}
                    return message;
                }
            }
        }
        let length: usize = head.header("content-length").expect("a length").parse().expect("it");
        while self.bytes.len() < length {
            assert!(self.read_more(), "the body is cut off");
        }
        let body: Vec<u8> = self.bytes.drain(..length).collect();
        assert_eq!(head.status, 200, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("JSON")
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
