//! Results of statements.

use std::ops::Range;
use std::str;

use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::DataRowBody;

use super::error::PgError;

/// Result of one statement.
#[derive(Debug, Default)]
pub struct Rows {
    /// Its rows.
    pub rows: Vec<Row>,
    /// How many rows it wrote or read.
    pub count: u64,
}

/// One row.
#[derive(Debug)]
pub struct Row {
    body: DataRowBody,
    columns: Vec<Option<Range<usize>>>,
}

impl Row {
    pub(super) fn read(body: DataRowBody) -> Result<Self, PgError> {
        let columns = body.ranges().collect()?;
        Ok(Self { body, columns })
    }

    /// The bytes of a column; `None` for NULL.
    ///
    /// # Errors
    /// When there is no such column.
    pub fn bytes(&self, column: usize) -> Result<Option<&[u8]>, PgError> {
        let range =
            self.columns.get(column).ok_or(PgError::Unexpected("a row with too few columns"))?;
        Ok(range.clone().and_then(|range| self.body.buffer().get(range)))
    }

    /// A text; `None` for NULL.
    ///
    /// # Errors
    /// When the column is no text.
    pub fn text(&self, column: usize) -> Result<Option<&str>, PgError> {
        let text = self.bytes(column)?.map(str::from_utf8).transpose();
        text.map_err(|_| PgError::Unexpected("a text that is not UTF-8"))
    }

    /// An `int8`, `int4`, `int2` or `bool`; `None` for NULL.
    ///
    /// # Errors
    /// When the column is no number.
    pub fn number(&self, column: usize) -> Result<Option<i64>, PgError> {
        let Some(bytes) = self.bytes(column)? else { return Ok(None) };
        let number = match *bytes {
            [byte] => Some(byte.into()),
            [a, b] => Some(i16::from_be_bytes([a, b]).into()),
            [a, b, c, d] => Some(i32::from_be_bytes([a, b, c, d]).into()),
            _ => bytes.try_into().ok().map(i64::from_be_bytes),
        };
        number.map(Some).ok_or(PgError::Unexpected("a number of an unknown size"))
    }

    /// A `uuid`; `None` for NULL.
    ///
    /// # Errors
    /// When the column is none.
    pub fn uuid(&self, column: usize) -> Result<Option<[u8; 16]>, PgError> {
        let id = self.bytes(column)?.map(TryInto::try_into).transpose();
        id.map_err(|_| PgError::Unexpected("an id of an unknown size"))
    }
}
