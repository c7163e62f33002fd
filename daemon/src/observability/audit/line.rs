//! JSON objects written member by member, without intermediate values: audit records are frequent
//! and small.

use std::fmt::Display;
use std::io::Write as _;

use ceased_core::identity::Identity;
use ceased_core::ids::{ConnId, TaskId};
use ceased_core::json::format::{uuid_text, write_number, write_string};

/// A JSON object being written. Member names are literals without characters to escape.
pub(super) struct Line<'a> {
    bytes: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Line<'a> {
    /// Begins an object at the end of `bytes`.
    pub(super) const fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, is_empty: true }
    }

    /// Writes a member name; inlined, so that the length of the literal is a constant.
    #[inline]
    fn name(&mut self, name: &'static str) {
        self.bytes.extend_from_slice(if self.is_empty { b"{\"" } else { b",\"" });
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.extend_from_slice(b"\":");
        self.is_empty = false;
    }

    /// Writes an integer.
    #[inline]
    pub(super) fn number(&mut self, name: &'static str, number: u64) -> &mut Self {
        self.name(name);
        write_number(self.bytes, number);
        self
    }

    /// A whole number that may be below zero.
    pub(super) fn integer(&mut self, name: &'static str, number: i32) -> &mut Self {
        self.name(name);
        // Writing to a Vec cannot fail.
        let _ = write!(self.bytes, "{number}");
        self
    }

    /// A value that is JSON on one line.
    pub(super) fn json(&mut self, name: &'static str, json: &str) -> &mut Self {
        self.name(name);
        self.bytes.extend_from_slice(json.as_bytes());
        self
    }

    /// A whole number, or null where it is not known.
    pub(super) fn number_or_null(&mut self, name: &'static str, number: Option<u64>) -> &mut Self {
        self.name(name);
        match number {
            Some(number) => write_number(self.bytes, number),
            None => self.bytes.extend_from_slice(b"null"),
        }
        self
    }

    /// Writes a number with a fraction, or null if unknown.
    pub(super) fn fraction_or_null(
        &mut self,
        name: &'static str,
        number: Option<f64>,
    ) -> &mut Self {
        self.name(name);
        // Writing to a Vec cannot fail.
        let _ = serde_json::to_writer(&mut *self.bytes, &number);
        self
    }

    /// Writes a literal that needs no escaping.
    #[inline]
    pub(super) fn word(&mut self, name: &'static str, word: &str) -> &mut Self {
        self.name(name);
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(word.as_bytes());
        self.bytes.push(b'"');
        self
    }

    /// Writes an id that needs no escaping.
    pub(super) fn id(&mut self, name: &'static str, id: impl Display) -> &mut Self {
        self.name(name);
        // Writing to a Vec cannot fail.
        let _ = write!(self.bytes, "\"{id}\"");
        self
    }

    /// Writes a task id as peers know it.
    #[inline]
    pub(super) fn task(&mut self, name: &'static str, task: TaskId) -> &mut Self {
        self.name(name);
        self.bytes.push(b'"');
        self.bytes.extend_from_slice(&uuid_text(task.uuid()));
        self.bytes.push(b'"');
        self
    }

    /// Writes a connection id.
    #[inline]
    pub(super) fn conn(&mut self, name: &'static str, conn: ConnId) -> &mut Self {
        self.name(name);
        self.bytes.extend_from_slice(b"\"c");
        write_number(self.bytes, conn.get());
        self.bytes.push(b'"');
        self
    }

    /// Writes any text, escaped.
    #[inline]
    pub(super) fn text(&mut self, name: &'static str, text: &str) -> &mut Self {
        self.name(name);
        write_string(self.bytes, text);
        self
    }

    /// Writes an identity.
    #[inline]
    pub(super) fn identity(&mut self, name: &'static str, identity: &Identity) -> &mut Self {
        match identity {
            Identity::User(uid) => {
                self.name(name);
                self.bytes.extend_from_slice(b"\"uid:");
                write_number(self.bytes, u64::from(*uid));
                self.bytes.push(b'"');
                self
            }
            Identity::Token(_) | Identity::Subject(_) => self.text(name, &identity.to_string()),
            Identity::Anonymous => self.id(name, identity),
        }
    }

    /// Ends the object.
    pub(super) fn end(self) {
        // Every object has at least one member, so the last byte is a comma.
        self.bytes.push(b'}');
    }
}
