//! Responses of HTTP/1.1 and their server-sent events, from pieces of bytes.

use ceased_client::LINE_BYTES_MAX;

const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 100;

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    /// Value of the header with this name, in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }
}

/// The way in which the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// A response that is being received.
#[derive(Debug, Default)]
pub(crate) struct Response {
    raw: Vec<u8>,
    head: Option<(Head, Framing)>,
    /// Decoded body that is in no text yet.
    body: Vec<u8>,
    /// The whole body of an answer without events, or the data of each event.
    texts: Vec<String>,
    is_over: bool,
}

impl Response {
    /// The head, once it is there.
    pub(crate) fn head(&self) -> Option<&Head> {
        self.head.as_ref().map(|(head, _)| head)
    }

    /// Whether its end was received.
    pub(crate) const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The texts received since the last call.
    pub(crate) fn take_texts(&mut self) -> Vec<String> {
        std::mem::take(&mut self.texts)
    }

    /// Takes bytes.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), String> {
        self.raw.extend_from_slice(piece);
        while self.head.is_none() {
            if !self.read_head()? {
                return Ok(());
            }
        }
        self.read_body()?;
        if self.body.len() > LINE_BYTES_MAX {
            return Err(format!("a message longer than {LINE_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    /// The connection is closed.
    pub(crate) fn close(&mut self) {
        if !self.is_over {
            self.end();
        }
    }

    /// Reads a head; interim responses are skipped. False if it is not complete.
    fn read_head(&mut self) -> Result<bool, String> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(&self.raw) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.raw.len() > HEAD_BYTES_MAX => {
                return Err(format!("a head longer than {HEAD_BYTES_MAX} bytes"));
            }
            Ok(httparse::Status::Partial) => return Ok(false),
            Err(why) => return Err(format!("no HTTP response: {why}")),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let pairs = parsed.headers.iter();
        let headers = pairs.map(|it| (it.name.to_ascii_lowercase(), text(it.value))).collect();
        let head = Head { status: parsed.code.unwrap_or_default(), headers };
        self.raw.drain(..length);
        if (100..200).contains(&head.status) {
            return Ok(!self.raw.is_empty());
        }
        let is_chunked = head.header("transfer-encoding").is_some_and(|it| it.contains("chunked"));
        let length = head.header("content-length").and_then(|it| it.parse().ok());
        let framing = match (head.status, is_chunked, length) {
            (204 | 304, _, _) => Framing::Length(0),
            (_, true, _) => Framing::Chunked,
            (_, false, Some(length)) => Framing::Length(length),
            (_, false, None) => Framing::UntilClose,
        };
        self.head = Some((head, framing));
        Ok(true)
    }

    fn read_body(&mut self) -> Result<(), String> {
        match self.head.as_ref().map(|(_, framing)| *framing) {
            None => return Ok(()),
            Some(_) if self.is_over => self.raw.clear(),
            Some(Framing::UntilClose) => self.body.append(&mut self.raw),
            Some(Framing::Length(length)) => {
                let taken = self.raw.len().min(length);
                self.body.extend(self.raw.drain(..taken));
                if let Some((_, framing)) = &mut self.head {
                    *framing = Framing::Length(length - taken);
                }
                if length == taken {
                    self.end();
                }
            }
            Some(Framing::Chunked) => {
                let read = self.read_chunks();
                // Events before a wrong chunk count, for pieces of every size.
                self.read_events();
                return read;
            }
        }
        self.read_events();
        Ok(())
    }

    fn read_chunks(&mut self) -> Result<(), String> {
        let mut begin = 0;
        let read = loop {
            match self.read_chunk(begin) {
                Ok(Some(end)) => begin = end,
                Ok(None) => break Ok(()),
                Err(why) => break Err(why),
            }
            if self.is_over {
                break Ok(());
            }
        };
        // Once: a drain of each of many small chunks would move the rest as often.
        self.raw.drain(..begin);
        read
    }

    /// Reads the whole chunk that begins there; its end. `None` if it is not complete.
    fn read_chunk(&mut self, begin: usize) -> Result<Option<usize>, String> {
        let raw = self.raw.get(begin..).unwrap_or_default();
        let (at, size) = match httparse::parse_chunk_size(raw) {
            Ok(httparse::Status::Complete(found)) => found,
            Ok(httparse::Status::Partial) if raw.len() <= HEAD_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) | Err(_) => return Err("a wrong chunk".to_owned()),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > LINE_BYTES_MAX {
            return Err(format!("a chunk of {size} bytes"));
        }
        let end = at + size;
        if raw.len() < end + 2 {
            return Ok(None);
        }
        self.body.extend_from_slice(raw.get(at..end).unwrap_or_default());
        if size == 0 {
            self.end();
        }
        Ok(Some(begin + end + 2))
    }

    fn end(&mut self) {
        self.is_over = true;
        self.read_events();
        let is_stream = self.head().is_some_and(Head::is_stream);
        let rest = std::mem::take(&mut self.body);
        if !is_stream && !rest.is_empty() {
            self.texts.push(match String::from_utf8(rest) {
                Ok(text) => text,
                Err(why) => marked(&String::from_utf8_lossy(why.as_bytes())),
            });
        }
    }

    /// Cuts whole events from the body.
    fn read_events(&mut self) {
        if !self.head().is_some_and(Head::is_stream) {
            return;
        }
        let mut begin = 0;
        while let Some(end) = event_end(self.body.get(begin..).unwrap_or_default()) {
            let event = self.body.get(begin..begin + end).unwrap_or_default();
            begin += end;
            let is_text = str::from_utf8(event).is_ok();
            let event = String::from_utf8_lossy(event);
            let data: Vec<&str> = event
                .lines()
                .filter_map(|line| line.strip_prefix("data:"))
                .map(|data| data.strip_prefix(' ').unwrap_or(data))
                .collect();
            let data = data.join("\n");
            if !data.is_empty() {
                self.texts.push(if is_text { data } else { marked(&data) });
            }
        }
        self.body.drain(..begin);
    }
}

/// The text of other bytes than UTF-8, with a mark that makes it no JSON.
fn marked(text: &str) -> String {
    format!("\u{fffd}{text}")
}

/// The place after the empty line that ends the first event.
fn event_end(body: &[u8]) -> Option<usize> {
    let mut starts = memchr::memchr_iter(b'\n', body).map(|at| at + 1);
    starts.find_map(|at| match body.get(at..) {
        Some([b'\n', ..]) => Some(at + 1),
        Some([b'\r', b'\n', ..]) => Some(at + 2),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of a response, whatever its pieces are.
    fn texts(bytes: &str) -> (u16, Vec<String>, bool) {
        let mut last = None;
        for size in [1, 7, bytes.len()] {
            let (mut response, mut texts) = (Response::default(), Vec::new());
            for piece in bytes.as_bytes().chunks(size) {
                response.take(piece).unwrap();
                texts.extend(response.take_texts());
            }
            let is_over = response.is_over();
            response.close();
            texts.extend(response.take_texts());
            let found = (response.head().unwrap().status, texts, is_over);
            assert!(last.is_none_or(|last| last == found), "in pieces of {size}");
            last = Some(found);
        }
        last.unwrap()
    }

    #[test]
    fn bodies_and_events_are_cut_whatever_the_pieces_are() {
        let plain = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(texts(plain), (200, vec!["{}".to_owned()], true));
        let interim = format!("HTTP/1.1 100 Continue\r\n\r\n{plain}");
        assert_eq!(texts(&interim), (200, vec!["{}".to_owned()], true));
        assert_eq!(texts("HTTP/1.0 404 No\r\n\r\nno"), (404, vec!["no".to_owned()], false));
        assert_eq!(texts("HTTP/1.1 204 No Content\r\n\r\n"), (204, Vec::new(), true));
        let events = "id: 1\r\ndata:\r\n\r\n: comment\n\ndata: {\"a\":\ndata: 1}\n\ndata: 2\n\n";
        let kind = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
        let expected = vec!["{\"a\":\n1}".to_owned(), "2".to_owned()];
        assert_eq!(texts(&format!("{kind}\r\n{events}")), (200, expected.clone(), false));
        let (first, second) = events.split_at(20);
        let chunks = format!("14\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", second.len());
        let chunked = format!("{kind}Transfer-Encoding: chunked\r\n\r\n{chunks}");
        assert_eq!(texts(&chunked), (200, expected, true));
    }

    /// Events in front of a wrong chunk count, whether or not they come together with it.
    #[test]
    fn events_before_a_wrong_chunk_are_read() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
        let all = format!("{head}transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\nz\r\n");
        for size in [1, all.len()] {
            let mut response = Response::default();
            assert!(all.as_bytes().chunks(size).any(|piece| response.take(piece).is_err()));
            assert_eq!(response.take_texts(), ["1"], "in pieces of {size}");
        }
    }

    #[test]
    fn other_bytes_than_utf_8_are_no_json() {
        let cases: [(&str, &[u8]); 2] = [
            ("application/json", b"{\"a\": \"\xff\"}"),
            ("text/event-stream", b"data: {\"a\": \"\xff\"}\n\n"),
        ];
        for (kind, body) in cases {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n");
            let mut response = Response::default();
            response.take(&[head.as_bytes(), body].concat()).unwrap();
            response.close();
            assert_eq!(response.take_texts(), ["\u{fffd}{\"a\": \"\u{fffd}\"}"], "{kind}");
        }
    }

    #[test]
    fn what_is_no_response_is_refused() {
        for bytes in
            ["SSH-2.0\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nz\r\n"]
        {
            assert!(Response::default().take(bytes.as_bytes()).is_err(), "{bytes}");
        }
    }
}
