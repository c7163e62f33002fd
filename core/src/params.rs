//! Params: their text, the members that are asked for most, and reading the others.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use core::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::{Json, Raw};
use crate::message::ErrorObject;

/// The params of a request or a notification: JSON text that was checked.
///
/// They are read once: to know where they end is to know their members. What is asked for most is
/// remembered then.
#[derive(Clone, Copy)]
pub struct Params<'a> {
    text: &'a str,
    known: Option<Members<'a>>,
}

/// Members that were seen while the params were read.
#[derive(Default, Clone, Copy)]
pub(crate) struct Members<'a> {
    pub(crate) name: Option<Raw<'a>>,
    pub(crate) arguments: Option<Raw<'a>>,
    pub(crate) task: Option<Raw<'a>>,
    pub(crate) meta: Option<Raw<'a>>,
    pub(crate) task_id: Option<Raw<'a>>,
    pub(crate) request_id: Option<Raw<'a>>,
    pub(crate) reason: Option<Raw<'a>>,
}

impl<'a> Members<'a> {
    /// The place of the member with this name.
    pub(crate) fn slot(&mut self, name: &[u8]) -> Option<&mut Option<Raw<'a>>> {
        Some(match name {
            b"name" => &mut self.name,
            b"arguments" => &mut self.arguments,
            b"task" => &mut self.task,
            b"_meta" => &mut self.meta,
            b"taskId" => &mut self.task_id,
            b"requestId" => &mut self.request_id,
            b"reason" => &mut self.reason,
            _ => return None,
        })
    }
}

impl<'a> Params<'a> {
    pub(crate) const fn of(value: Raw<'a>) -> Self {
        Self { text: value.get(), known: None }
    }

    /// The params in a text that was checked, and their members if there are no others.
    pub(crate) const fn seen(value: Raw<'a>, known: Option<Members<'a>>) -> Self {
        Self { text: value.get(), known }
    }

    /// Their JSON text.
    #[must_use]
    pub const fn get(&self) -> &'a str {
        self.text
    }

    /// Their members; `None` when others than these may be there, or one of them twice.
    pub(crate) const fn known(&self) -> Option<&Members<'a>> {
        self.known.as_ref()
    }

    /// A copy of their text.
    pub(crate) fn to_raw(self) -> Box<RawValue> {
        RawValue::from_string(self.text.to_owned()).expect("params are JSON")
    }

    /// The same, not read again.
    pub(crate) fn to_json(self) -> Json {
        Raw::checked(self.text).to_json()
    }
}

impl fmt::Debug for Params<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

/// Reads params that must be an object.
///
/// # Errors
/// `-32602` with what is wrong.
pub(crate) fn read<'a, T: Deserialize<'a>>(params: Option<&Params<'a>>) -> Result<T, ErrorObject> {
    let Some(params) = params else {
        return Err(ErrorObject::invalid_params("params are missing"));
    };
    // A derived struct would take an array as well, member by member.
    if !params.get().starts_with('{') {
        return Err(ErrorObject::invalid_params("params must be an object"));
    }
    serde_json::from_str(params.get()).map_err(|error| {
        let mut message = format!("params: {error}");
        // It quotes what it did not expect, which may be as long as the frame.
        if message.len() > MESSAGE_BYTES_MAX {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
            message.push('…');
        }
        ErrorObject::invalid_params(message)
    })
}

/// Longest sentence about params that could not be read, in bytes.
const MESSAGE_BYTES_MAX: usize = 300;

/// Reads params that may be left out.
///
/// # Errors
/// `-32602` with what is wrong.
pub(crate) fn read_or_default<'a, T: Deserialize<'a> + Default>(
    params: Option<&Params<'a>>,
) -> Result<T, ErrorObject> {
    match params {
        None => Ok(T::default()),
        some => read(some),
    }
}

/// A member that tells `null` from being absent, which `Option<Raw>` does not.
#[derive(Default, Clone, Copy)]
pub(crate) struct Given<'a>(pub(crate) Option<Raw<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Given<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Raw::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}
