//! Statements that are carried out together.

use std::error::Error;

use bytes::{BufMut as _, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend::{self, BindError};

/// A statement that a session prepares when it is used first. The types of its parameters are those
/// that its text gives them (`$1::int8`).
#[derive(Debug)]
pub struct Statement {
    /// Its name within a session; no other has it.
    pub name: &'static str,
    /// Its text.
    pub sql: &'static str,
}

/// A parameter, in the binary form of its type.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Value<'a> {
    /// NULL of any type.
    Null,
    /// `bool`.
    Bool(bool),
    /// `int2`.
    Int2(i16),
    /// `int4`.
    Int4(i32),
    /// `int8`.
    Int8(i64),
    /// `text`.
    Text(&'a str),
    /// `bytea`.
    Bytes(&'a [u8]),
    /// `uuid`.
    Uuid([u8; 16]),
    /// `uuid[]`.
    Uuids(&'a [[u8; 16]]),
    /// `int8[]`.
    Int8s(&'a [i64]),
    /// `text[]`.
    Texts(&'a [&'a str]),
}

/// Type numbers of array elements.
const INT8: u32 = 20;
const TEXT: u32 = 25;
const UUID: u32 = 2950;

impl Value<'_> {
    fn write(self, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Bool(value) => out.put_u8(value.into()),
            Self::Int2(value) => out.put_i16(value),
            Self::Int4(value) => out.put_i32(value),
            Self::Int8(value) => out.put_i64(value),
            Self::Text(text) => out.put_slice(text.as_bytes()),
            Self::Bytes(bytes) => out.put_slice(bytes),
            Self::Uuid(id) => out.put_slice(&id),
            Self::Uuids(ids) => array(out, UUID, ids.iter().map(|id| Value::Uuid(*id)))?,
            Self::Int8s(numbers) => array(out, INT8, numbers.iter().copied().map(Value::Int8))?,
            Self::Texts(texts) => array(out, TEXT, texts.iter().copied().map(Value::Text))?,
        }
        Ok(IsNull::No)
    }
}

/// Writes an array of one dimension without NULL.
fn array<'a>(
    out: &mut BytesMut,
    element: u32,
    elements: impl ExactSizeIterator<Item = Value<'a>>,
) -> Result<(), Box<dyn Error + Sync + Send>> {
    out.put_i32(1);
    out.put_i32(0);
    out.put_u32(element);
    out.put_i32(i32::try_from(elements.len())?);
    out.put_i32(1);
    for value in elements {
        let size_at = out.len();
        out.put_i32(0);
        value.write(out)?;
        let size = i32::try_from(out.len() - size_at - 4)?;
        out[size_at..size_at + 4].copy_from_slice(&size.to_be_bytes());
    }
    Ok(())
}

/// Statements of one transaction, ready to be sent.
#[derive(Debug, Default)]
pub struct Batch {
    /// `Bind`, `Execute` of each, without `Parse`.
    pub(super) steps: Vec<Step>,
}

/// One statement with its parameters.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) statement: &'static Statement,
    pub(super) messages: BytesMut,
}

impl Batch {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// True without a statement.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Number of its statements, and so of its results.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.steps.len()
    }

    /// Adds a statement with its parameters.
    ///
    /// # Errors
    /// When a parameter is larger than the protocol can send (2 GiB).
    pub fn push(
        &mut self,
        statement: &'static Statement,
        values: &[Value<'_>],
    ) -> Result<(), TooLarge> {
        let mut messages = BytesMut::new();
        // Parameters and results in binary form.
        let bound = frontend::bind(
            "",
            statement.name,
            [1],
            values.iter().copied(),
            Value::write,
            [1],
            &mut messages,
        );
        bound.map_err(|error| match error {
            BindError::Conversion(_) | BindError::Serialization(_) => TooLarge,
        })?;
        frontend::execute("", 0, &mut messages).map_err(|_| TooLarge)?;
        self.steps.push(Step { statement, messages });
        Ok(())
    }
}

/// A parameter is larger than the protocol can send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;
