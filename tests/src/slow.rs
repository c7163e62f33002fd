//! A slow, separate reading of JSON-RPC frames: what `ceased_core::message` must agree with.
//!
//! It has its own JSON grammar (RFC 8259) and goes through an envelope member by member, so that
//! it shares nothing with the reader it is compared with but the decoding of string escapes.

/// The most levels this reader follows; callers keep the engine's own limit below it.
const LEVELS_MAX: usize = 512;

/// An id as JSON-RPC compares them: `1` and `"1"` are two.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// `null`, where a dialect takes that for one.
    Null,
    /// An integer of 64 bits.
    Number(i64),
    /// A string, with escapes resolved.
    Text(String),
}

/// What one frame says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The peer wants an answer.
    Request {
        /// Its id.
        id: Id,
        /// Its id as it was written.
        token: String,
        /// The method.
        method: String,
        /// The params as JSON text.
        params: Option<String>,
    },
    /// The peer tells us something.
    Notification {
        /// The method.
        method: String,
        /// The params as JSON text.
        params: Option<String>,
    },
    /// The peer answers.
    Response {
        /// Whose answer it is, if that can be read.
        id: Option<Id>,
        /// Whether it is a result; else it is an error.
        result: bool,
    },
    /// Several messages, as JSON text each.
    Batch(Vec<String>),
    /// None of these.
    Invalid {
        /// The id to answer to, as it was written.
        token: Option<String>,
        /// The error code.
        code: i64,
    },
}

/// Reads one frame the slow way.
#[must_use]
pub fn classify(frame: &[u8], depth_max: usize) -> Said {
    let Ok(text) = std::str::from_utf8(frame) else { return invalid(None, -32700) };
    if deepest(text) > depth_max.min(LEVELS_MAX) {
        return invalid(None, -32700);
    }
    match Reader::whole(text) {
        None => invalid(None, -32700),
        Some(Json { kind: Kind::List(items), .. }) => {
            Said::Batch(items.iter().map(|item| item.text.to_owned()).collect())
        }
        Some(json) => classify_value(&json),
    }
}

/// Reads one message that is not a batch.
#[must_use]
pub fn classify_one(text: &str) -> Said {
    Reader::whole(text).map_or_else(|| invalid(None, -32700), |json| classify_value(&json))
}

fn invalid(token: Option<&str>, code: i64) -> Said {
    Said::Invalid { token: token.map(str::to_owned), code }
}

fn classify_value(json: &Json<'_>) -> Said {
    let Kind::Object(members) = &json.kind else { return invalid(None, -32600) };
    let mut found: [Vec<&Json<'_>>; 6] = Default::default();
    for (key, value) in members {
        // A name that cannot be decoded makes the text no JSON for us.
        let Some(key) = decode(key) else { return invalid(None, -32700) };
        let names = ["jsonrpc", "id", "method", "params", "result", "error"];
        if let Some(at) = names.iter().position(|name| *name == key) {
            found[at].push(value);
        }
    }
    let [version, ids, methods, params, results, errors] = &found;
    let id = ids.last().and_then(|raw| read_id(raw.text).map(|id| (id, raw.text)));
    let token = id.as_ref().map(|(_, token)| *token);
    if ids.len() > 1 {
        // The last member that stands there twice decides what is echoed.
        let last_twice = last_repeated(members);
        return invalid(token.filter(|_| last_twice.as_deref() != Some("id")), -32600);
    }
    if found.iter().any(|members| members.len() > 1) {
        return invalid(token, -32600);
    }
    if version.first().map(|raw| raw.text) != Some("\"2.0\"") {
        return invalid(token, -32600);
    }
    match (methods.first(), results.first(), errors.first()) {
        (Some(method), None, None) => {
            let Some(method) = decode(method.text) else { return invalid(token, -32600) };
            let params = params.first().map(|raw| raw.text.to_owned());
            if ids.is_empty() {
                return Said::Notification { method, params };
            }
            let odd = params.as_ref().is_some_and(|text| !text.starts_with(['{', '[']));
            match id {
                _ if odd => invalid(token, -32600),
                Some((id, token)) => Said::Request { id, token: token.to_owned(), method, params },
                // Whether that is an id is the dialect's to say.
                None if ids.iter().all(|raw| raw.text == "null") => {
                    Said::Request { id: Id::Null, token: "null".to_owned(), method, params }
                }
                None => invalid(None, -32600),
            }
        }
        (None, Some(_), None) => Said::Response { id: id.map(|(id, _)| id), result: true },
        (None, None, Some(_)) => Said::Response { id: id.map(|(id, _)| id), result: false },
        (Some(_), ..) | (None, Some(_), Some(_)) | (None, None, None) => invalid(token, -32600),
    }
}

fn last_repeated(members: &[(&str, Json<'_>)]) -> Option<String> {
    let names: Vec<String> = members.iter().filter_map(|(key, _)| decode(key)).collect();
    let known = ["jsonrpc", "id", "method", "params", "result", "error"];
    let repeated =
        |at: &usize| known.contains(&names[*at].as_str()) && names[..*at].contains(&names[*at]);
    (0..names.len()).rev().find(repeated).map(|at| names[at].clone())
}

/// An id: an integer without fraction or exponent that fits 64 bits, or a string.
#[must_use]
pub fn read_id(token: &str) -> Option<Id> {
    if token.starts_with('"') {
        return decode(token).map(Id::Text);
    }
    let integer = token.chars().all(|c| c.is_ascii_digit() || c == '-');
    integer.then(|| token.parse().ok().map(Id::Number))?
}

fn decode(token: &str) -> Option<String> {
    serde_json::from_str(token).ok()
}

/// How deep the brackets outside of strings nest.
fn deepest(text: &str) -> usize {
    let (mut depth, mut most, mut quoted) = (0_usize, 0, false);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match (byte, quoted) {
            (b'\\', true) => {
                let _ = bytes.next();
            }
            (b'"', _) => quoted = !quoted,
            (b'{' | b'[', false) => depth += 1,
            (b'}' | b']', false) => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

/// A JSON value with the text it stands in.
#[derive(Debug)]
struct Json<'a> {
    text: &'a str,
    kind: Kind<'a>,
}

#[derive(Debug)]
enum Kind<'a> {
    Scalar,
    List(Vec<Json<'a>>),
    /// Names as tokens, in order, twice if they stand there twice.
    Object(Vec<(&'a str, Json<'a>)>),
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn whole(text: &'a str) -> Option<Json<'a>> {
        let mut reader = Self { text, at: 0 };
        let json = reader.value()?;
        reader.space();
        (reader.at == text.len()).then_some(json)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| b" \t\r\n".contains(&byte)) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Option<Json<'a>> {
        self.space();
        let start = self.at;
        let kind = match self.peek()? {
            b'{' => self.object()?,
            b'[' => self.list()?,
            b'"' => self.string().map(|_| Kind::Scalar)?,
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            _ => self.number()?,
        };
        Some(Json { text: &self.text[start..self.at], kind })
    }

    fn word(&mut self, word: &str) -> Option<Kind<'a>> {
        self.text[self.at..].starts_with(word).then(|| {
            self.at += word.len();
            Kind::Scalar
        })
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    fn number(&mut self) -> Option<Kind<'a>> {
        let _ = self.take(b'-');
        if self.take(b'0').is_none() {
            self.digits()?;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        if self.take(b'e').or_else(|| self.take(b'E')).is_some() {
            let _ = self.take(b'+').or_else(|| self.take(b'-'));
            self.digits()?;
        }
        Some(Kind::Scalar)
    }

    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        self.take(b'"')?;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    match self.peek()? {
                        b'u' => {
                            let hex = self.text.as_bytes().get(self.at + 1..self.at + 5)?;
                            hex.iter().all(u8::is_ascii_hexdigit).then_some(())?;
                            self.at += 5;
                        }
                        byte => {
                            b"\"\\/bfnrt".contains(&byte).then_some(())?;
                            self.at += 1;
                        }
                    }
                }
                0..=0x1f => return None,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(&self.text[start..self.at])
    }

    fn list(&mut self) -> Option<Kind<'a>> {
        self.take(b'[')?;
        let mut items = Vec::new();
        self.space();
        if self.take(b']').is_some() {
            return Some(Kind::List(items));
        }
        loop {
            items.push(self.value()?);
            self.space();
            if self.take(b',').is_none() {
                break;
            }
        }
        self.take(b']')?;
        Some(Kind::List(items))
    }

    fn object(&mut self) -> Option<Kind<'a>> {
        self.take(b'{')?;
        let mut members = Vec::new();
        self.space();
        if self.take(b'}').is_some() {
            return Some(Kind::Object(members));
        }
        loop {
            self.space();
            let key = self.string()?;
            self.space();
            self.take(b':')?;
            members.push((key, self.value()?));
            self.space();
            if self.take(b',').is_none() {
                break;
            }
        }
        self.take(b'}')?;
        Some(Kind::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_the_one_of_rfc_8259() {
        for good in
            ["0", "-0", "1.5e-7", "[]", "[1, {\"a\":[]}]", "{ }", "\"\\u00e4\\n\"", " null "]
        {
            assert!(Reader::whole(good).is_some(), "{good}");
        }
        for bad in [
            "", "01", "1.", ".5", "+1", "[1,]", "{,}", "{\"a\"}", "\"\n\"", "\"\\x\"", "nul", "1 2",
        ] {
            assert!(Reader::whole(bad).is_none(), "{bad}");
        }
    }
}
