//! A slow, independent reader of JSON-RPC frames, which `ceased_core::rpc::message` must agree
//! with.
//!
//! It has its own JSON grammar (RFC 8259) and processes an envelope member by member, and shares
//! only the decoding of string escapes with the reader under test.

/// Nesting that this reader supports; callers keep the engine's limit below it.
const LEVELS_MAX: usize = 512;

/// An id as compared by the engine: `1` and `"1"` differ, `1` and `1.0` are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// `null`, in dialects that accept it.
    Null,
    /// An integer of 64 bits.
    Number(i64),
    /// A string, with escapes resolved.
    Text(String),
    /// A larger integer, or a string with half a surrogate pair, in canonical spelling.
    Canonical(String),
}

/// Meaning of one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A request.
    Request {
        /// Its id.
        id: Id,
        /// The id as written.
        token: String,
        /// The method.
        method: String,
        /// The params as JSON text.
        params: Option<String>,
    },
    /// A notification.
    Notification {
        /// The method.
        method: String,
        /// The params as JSON text.
        params: Option<String>,
    },
    /// A response.
    Response {
        /// Id of the request, if readable.
        id: Option<Id>,
        /// Whether the response is a result; otherwise it is an error.
        result: bool,
    },
    /// Several messages, each as JSON text.
    Batch(Vec<String>),
    /// None of the above.
    Invalid {
        /// The id to echo, as written.
        token: Option<String>,
        /// The error code.
        code: i64,
    },
}

/// Reads one frame.
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
        // A name that cannot be decoded is no known member.
        let Some(key) = decode(key) else { continue };
        let names = ["jsonrpc", "id", "method", "params", "result", "error"];
        if let Some(at) = names.iter().position(|name| *name == key) {
            found[at].push(value);
        }
    }
    let [version, ids, methods, params, results, errors] = &found;
    let id = ids.last().and_then(|raw| read_id(raw.text).map(|id| (id, raw.text)));
    let token = id.as_ref().map(|(_, token)| *token);
    if ids.len() > 1 {
        // The last of repeated ids is echoed.
        let last_twice = last_repeated(members);
        return invalid(token.filter(|_| last_twice.as_deref() != Some("id")), -32600);
    }
    if found.iter().any(|members| members.len() > 1) {
        return invalid(token, -32600);
    }
    if version.first().map(|raw| raw.text) != Some("\"2.0\"") {
        return invalid(token, -32600);
    }
    // A null member counts as absent, unless a response has no other member.
    let given = |found: &[&Json<'_>]| found.iter().any(|raw| raw.text != "null");
    let is_call = given(methods) && !given(results) && !given(errors);
    let is_response = !(given(methods) || given(results) && given(errors));
    let is_result = is_response && !given(errors) && !results.is_empty();
    let is_error = is_response && !is_result && !errors.is_empty();
    match (is_call, is_result, is_error) {
        (true, ..) => {
            let [method, ..] = methods[..] else { unreachable!("a request has a method") };
            let Some(method) = decode(method.text) else { return invalid(token, -32600) };
            let nothing = |raw: &&&Json<'_>| match &raw.kind {
                Kind::List(items) => items.is_empty(),
                Kind::Scalar => raw.text == "null",
                Kind::Object(_) => false,
            };
            let params = params.first().filter(|raw| !nothing(raw)).map(|raw| raw.text.to_owned());
            if ids.is_empty() {
                return Said::Notification { method, params };
            }
            let odd = params.as_ref().is_some_and(|text| !text.starts_with(['{', '[']));
            match id {
                _ if odd => invalid(token, -32600),
                Some((id, token)) => Said::Request { id, token: token.to_owned(), method, params },
                // The dialect decides whether that is an id.
                None if ids.iter().all(|raw| raw.text == "null") => {
                    Said::Request { id: Id::Null, token: "null".to_owned(), method, params }
                }
                None => invalid(token, -32600),
            }
        }
        (false, true, _) => Said::Response { id: id.map(|(id, _)| id), result: true },
        (false, false, true) => Said::Response { id: id.map(|(id, _)| id), result: false },
        (false, false, false) => invalid(token, -32600),
    }
}

fn last_repeated(members: &[(&str, Json<'_>)]) -> Option<String> {
    let names: Vec<String> = members.iter().filter_map(|(key, _)| decode(key)).collect();
    let known = ["jsonrpc", "id", "method", "params", "result", "error"];
    let repeated =
        |at: &usize| known.contains(&names[*at].as_str()) && names[..*at].contains(&names[*at]);
    (0..names.len()).rev().find(repeated).map(|at| names[at].clone())
}

/// An id: a whole number in any spelling, or a string.
#[must_use]
pub fn read_id(token: &str) -> Option<Id> {
    if token.starts_with('"') {
        return Some(decode(token).map_or_else(|| Id::Canonical(halves(token)), Id::Text));
    }
    if !token.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return None;
    }
    // The digits without the point, and the shift of the point.
    let (mut digits, mut shift, mut negative) = (String::new(), 0_i128, false);
    let mut behind = false;
    for (at, c) in token.char_indices() {
        match c {
            '-' => negative = true,
            '.' => behind = true,
            'e' | 'E' => {
                let exponent: i64 = match token[at + 1..].parse() {
                    Ok(exponent) => exponent,
                    Err(_) if digits.chars().all(|digit| digit == '0') => 0,
                    Err(_) => return None,
                };
                shift += i128::from(exponent);
                break;
            }
            digit => {
                digits.push(digit);
                shift -= i128::from(behind);
            }
        }
    }
    while digits.len() > 1 && digits.starts_with('0') {
        digits.remove(0);
    }
    if digits == "0" {
        return Some(Id::Number(0));
    }
    while digits.ends_with('0') {
        digits.pop();
        shift += 1;
    }
    if shift < 0 || shift > i128::from(i64::MAX) {
        return None;
    }
    let sign = if negative { "-" } else { "" };
    if shift > 20 {
        return Some(Id::Canonical(format!("{sign}{digits}e{shift}")));
    }
    let written = (0..shift).fold(format!("{sign}{digits}"), |written, _| written + "0");
    Some(written.parse().map_or(Id::Canonical(written), Id::Number))
}

/// Canonical spelling of a string with unpaired surrogates.
fn halves(token: &str) -> String {
    let (mut units, mut rest) = (Vec::new(), token[1..token.len() - 1].chars());
    while let Some(c) = rest.next() {
        let escape = if c == '\\' { rest.next() } else { None };
        if escape == Some('u') {
            let digits: String = rest.by_ref().take(4).collect();
            units.push(u16::from_str_radix(&digits, 16).expect("four digits"));
        } else {
            let text = escape.map_or_else(
                || c.to_string(),
                |letter| decode(&format!("\"\\{letter}\"")).expect("an escape of the grammar"),
            );
            units.extend(text.encode_utf16());
        }
    }
    let inner: String = char::decode_utf16(units)
        .map(|unit| match unit {
            Ok(c) => {
                // Without the quotes around it; a quote itself keeps its backslash.
                let quoted = serde_json::to_string(&c).expect("JSON");
                quoted[1..quoted.len() - 1].to_owned()
            }
            Err(half) => format!("\\u{:04x}", half.unpaired_surrogate()),
        })
        .collect();
    format!("\"{inner}\"")
}

/// The last member with this name that is not `null`.
#[must_use]
pub fn member(text: &str, name: &str) -> Option<String> {
    let Json { kind: Kind::Object(members), .. } = Reader::whole(text)? else { return None };
    let named = |(key, value): &&(&str, Json<'_>)| {
        decode(key).as_deref() == Some(name) && value.text != "null"
    };
    members.iter().rfind(named).map(|(_, value)| value.text.to_owned())
}

/// Value of a JSON text, with U+FFFD for each half of a surrogate pair.
///
/// # Panics
/// When the text is no JSON.
#[must_use]
pub fn value(text: &str) -> serde_json::Value {
    let mut pieces: Vec<String> = Vec::new();
    let mut reader = Reader { text, at: 0 };
    while let Some(byte) = reader.peek() {
        let start = reader.at;
        if byte == b'"' {
            let token = reader.string().expect("a valid JSON text has valid strings");
            let halves = || serde_json::Value::String(cleaned(&halves(token))).to_string();
            pieces.push(decode(token).map_or_else(halves, |_| token.to_owned()));
        } else {
            reader.at += text[start..].chars().next().map_or(1, char::len_utf8);
            pieces.push(text[start..reader.at].to_owned());
        }
    }
    serde_json::from_str(&pieces.concat()).expect("the cleaned text is JSON")
}

/// Canonical spelling of a string in which only halves of pairs are invalid.
fn cleaned(token: &str) -> String {
    let mut text = token.to_owned();
    while decode(&text).is_none() {
        let half = text.match_indices("\\ud").map(|(at, _)| at).find(|at| {
            let alone = format!("{}{}", &text[..*at], &text[at + 6..]);
            decode(&alone).is_some() || alone.matches("\\ud").count() < text.matches("\\ud").count()
        });
        let at = half.expect("a half of a pair");
        text.replace_range(at..at + 6, "\u{fffd}");
    }
    decode(&text).expect("the cleaned string can be decoded")
}

fn decode(token: &str) -> Option<String> {
    serde_json::from_str(token).ok()
}

/// First level of an object that nests deeper than this, with `{}` for its objects and arrays;
/// `None` for any other text.
#[must_use]
pub fn deep_skeleton(frame: &[u8], depth_max: usize) -> Option<String> {
    let text = std::str::from_utf8(frame).ok()?;
    if deepest(text) <= depth_max.min(LEVELS_MAX) {
        return None;
    }
    if !text.trim_ascii_start().starts_with('{') {
        return Some(String::new());
    }
    let (mut depth, mut quoted, mut escaped, mut skeleton) = (0_usize, false, false, String::new());
    for c in text.chars() {
        let was_quoted = quoted;
        (quoted, escaped) = match c {
            _ if escaped => (quoted, false),
            '"' => (!quoted, false),
            '\\' => (quoted, quoted),
            _ => (quoted, false),
        };
        match c {
            '{' | '[' if !was_quoted => {
                skeleton += ["{", "{}", ""][depth.min(2)];
                depth += 1;
            }
            '}' | ']' if !was_quoted && depth > 1 => depth -= 1,
            _ if depth < 2 => skeleton.push(c),
            _ => {}
        }
    }
    Some(skeleton)
}

/// Nesting of the brackets outside of strings.
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

/// A JSON value with its source text.
#[derive(Debug)]
struct Json<'a> {
    text: &'a str,
    kind: Kind<'a>,
}

#[derive(Debug)]
enum Kind<'a> {
    Scalar,
    List(Vec<Json<'a>>),
    /// Names as tokens, in order, with repetitions.
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
    fn grammar_is_that_of_rfc_8259() {
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
