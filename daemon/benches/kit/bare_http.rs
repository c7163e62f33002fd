//! The least that a server of Streamable HTTP can do: one thread that polls, reads, parses the head
//! with httparse and writes an answer of the same bytes, on TCP and on a Unix socket. Beside it the
//! same for lines on a Unix socket.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use memchr::memmem;
use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Events, Interest, Poll, Token};

const TCP: Token = Token(usize::MAX);
const UNIX: Token = Token(usize::MAX - 1);
const LINES: Token = Token(usize::MAX - 2);

enum Peer {
    Http(TcpStream),
    HttpUnix(UnixStream),
    Lines(UnixStream),
}

/// The socket of HTTP beside this one of lines.
pub(crate) fn http_path(lines: &Path) -> PathBuf {
    lines.with_extension("http")
}

/// Serves until the process is killed.
pub(crate) fn serve(port: u16, socket: &Path) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let mut http = TcpListener::bind(([127, 0, 0, 1], port).into())?;
    let mut unix = UnixListener::bind(http_path(socket))?;
    let mut lines = UnixListener::bind(socket)?;
    poll.registry().register(&mut http, TCP, Interest::READABLE)?;
    poll.registry().register(&mut unix, UNIX, Interest::READABLE)?;
    poll.registry().register(&mut lines, LINES, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut peers = Vec::new();
    let mut input = vec![0; 64 * 1024];
    let mut output = Vec::new();
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            match event.token() {
                TCP => {
                    while let Ok((mut stream, _)) = http.accept() {
                        stream.set_nodelay(true)?;
                        watch(&poll, &mut stream, peers.len())?;
                        peers.push(Peer::Http(stream));
                    }
                }
                UNIX => {
                    while let Ok((mut stream, _)) = unix.accept() {
                        watch(&poll, &mut stream, peers.len())?;
                        peers.push(Peer::HttpUnix(stream));
                    }
                }
                LINES => {
                    while let Ok((mut stream, _)) = lines.accept() {
                        watch(&poll, &mut stream, peers.len())?;
                        peers.push(Peer::Lines(stream));
                    }
                }
                Token(at) => {
                    output.clear();
                    let _ = match &mut peers[at] {
                        Peer::Http(stream) => answer(stream, &mut input, &mut output, answer_http),
                        Peer::HttpUnix(stream) => {
                            answer(stream, &mut input, &mut output, answer_http)
                        }
                        Peer::Lines(stream) => {
                            answer(stream, &mut input, &mut output, answer_lines)
                        }
                    };
                }
            }
        }
    }
}

fn watch(poll: &Poll, stream: &mut impl Source, at: usize) -> io::Result<()> {
    poll.registry().register(stream, Token(at), Interest::READABLE)
}

/// Answers the bytes of one read: each request of the benchmark arrives in one piece.
fn answer(
    stream: &mut (impl Read + Write),
    input: &mut [u8],
    output: &mut Vec<u8>,
    write: fn(&[u8], &mut Vec<u8>),
) -> io::Result<()> {
    let count = stream.read(input)?;
    write(&input[..count], output);
    if output.is_empty() { Ok(()) } else { stream.write_all(output) }
}

fn answer_http(request: &[u8], output: &mut Vec<u8>) {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = head.parse(request) else { return };
    let body = &request[length..];
    let has = |word: &str| memmem::find(body, word.as_bytes()).is_some();
    if has("\"notifications/") {
        return output.extend_from_slice(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
    }
    let mut frame = Vec::with_capacity(256);
    answer_lines(body, &mut frame);
    let length = frame.len().saturating_sub(1);
    output.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n");
    if has("\"initialize\"") {
        output.extend_from_slice(b"mcp-session-id: 0123456789abcdef0123456789abcdef\r\n");
    }
    let _ = write!(output, "content-length: {length}\r\n\r\n");
    output.extend_from_slice(&frame[..length]);
}

fn answer_lines(line: &[u8], output: &mut Vec<u8>) {
    let Some(at) = memmem::find(line, b"\"id\":") else { return };
    let id = &line[at + 5..];
    let id = &id[..id.iter().position(|byte| matches!(byte, b',' | b'}')).unwrap_or(id.len())];
    let result: &[u8] = if memmem::find(line, b"\"tools/call\"").is_some() {
        b"{\"content\":[{\"type\":\"text\",\"text\":\"hello\"}],\"isError\":false}"
    } else {
        b"{}"
    };
    for part in [b"{\"jsonrpc\":\"2.0\",\"id\":", id, b",\"result\":", result, b"}\n"] {
        output.extend_from_slice(part);
    }
}
