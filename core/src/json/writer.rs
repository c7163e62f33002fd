//! Writer of JSON text into a byte buffer, without a value tree.

use alloc::vec::Vec;
use core::fmt::{Display, Write as _};
use core::time::Duration;

use uuid::Uuid;

use crate::ids::RequestId;
use crate::json::format::{uuid_text, write_number, write_string};
use crate::rpc::error::ErrorObject;
use crate::time::Stamp;

/// Length in bytes from which a value is long: to move it costs more than to reserve.
const LONG: usize = 16 * 1024;
/// Bytes that are reserved for the end of a message behind a long value.
const SLACK: usize = 256;

/// Appends JSON text to a buffer. The caller writes braces and commas.
pub(crate) struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Appends JSON text.
    pub(crate) fn raw(&mut self, json: &str) -> &mut Self {
        if json.len() > LONG {
            // The end of the message must not move a long value once more.
            self.bytes.reserve(json.len() + SLACK);
        }
        self.bytes.extend_from_slice(json.as_bytes());
        self
    }

    /// Appends JSON text given as bytes.
    pub(crate) fn bytes(&mut self, json: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(json);
        self
    }

    /// Appends a value whose `Display` is JSON: numbers, booleans.
    pub(crate) fn display(&mut self, value: impl Display) -> &mut Self {
        // Writing to a Vec cannot fail.
        let _ = write!(ByteSink(self.bytes), "{value}");
        self
    }

    /// Appends a whole number.
    pub(crate) fn number(&mut self, number: i64) -> &mut Self {
        if number < 0 {
            self.bytes.push(b'-');
        }
        self.digits(number.unsigned_abs())
    }

    fn digits(&mut self, number: u64) -> &mut Self {
        write_number(self.bytes, number);
        self
    }

    /// Appends a duration in whole milliseconds.
    pub(crate) fn millis(&mut self, span: Duration) -> &mut Self {
        self.digits(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }

    /// Appends the hyphenated text of a UUID, without quotes.
    pub(crate) fn uuid(&mut self, uuid: Uuid) -> &mut Self {
        self.bytes(&uuid_text(uuid))
    }

    /// Appends a string, quoted and escaped.
    pub(crate) fn string(&mut self, text: &str) -> &mut Self {
        write_string(self.bytes, text);
        self
    }

    /// Appends `"name":"text"`; `name` must need no escapes.
    pub(crate) fn member(&mut self, name: &'static str, text: &str) -> &mut Self {
        self.raw("\"").raw(name).raw("\":").string(text)
    }

    /// Appends `"name":"2025-11-01T00:00:00.000Z"` (TSK-12).
    pub(crate) fn stamp(&mut self, name: &'static str, stamp: &Stamp) -> &mut Self {
        self.raw("\"").raw(name).raw("\":\"").bytes(stamp).raw("\"")
    }

    /// Appends an id: the token of the request, or its only spelling.
    pub(crate) fn id(&mut self, id: &RequestId, token: Option<&str>) -> &mut Self {
        match (token, id) {
            (Some(token), _) => self.raw(token),
            (None, RequestId::Number(number)) => self.number(*number),
            (None, RequestId::Text(text)) => self.string(text),
            (None, RequestId::Canonical(token)) => self.raw(token),
            (None, RequestId::Null) => self.raw("null"),
        }
    }

    /// Appends the members of the object that `write` writes, behind other members.
    pub(crate) fn members_of(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> &mut Self {
        let start = self.bytes.len();
        write(&mut Writer::new(self.bytes));
        self.bytes.pop();
        if self.bytes.len() == start + 1 {
            self.bytes.pop();
        } else if let Some(opening) = self.bytes.get_mut(start) {
            *opening = b',';
        }
        self
    }

    /// Appends an error object.
    pub(crate) fn error(&mut self, error: &ErrorObject) -> &mut Self {
        self.raw("{\"code\":").number(error.code).raw(",").member("message", &error.message);
        if let Some(data) = &error.data {
            self.raw(",\"data\":").raw(data);
        }
        self.raw("}")
    }
}

struct ByteSink<'a>(&'a mut Vec<u8>);

impl core::fmt::Write for ByteSink<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, -7, 10, 909, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            Writer::new(&mut bytes).number(number);
            assert_eq!(bytes, alloc::format!("{number}").as_bytes());
        }
    }

    #[test]
    fn strings_survive_a_round_trip() {
        for text in [
            "",
            "plain",
            "a\"b\\c",
            "sixteen or more, \n",
            "a text of more than sixteen",
            "\n\r\t\u{0}\u{1f}\u{7f}",
            "äöü\u{2028}🦀",
        ] {
            let mut bytes = Vec::new();
            Writer::new(&mut bytes).string(text);
            assert_eq!(serde_json::from_slice::<String>(&bytes).ok().as_deref(), Some(text));
        }
    }
}
