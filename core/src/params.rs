//! Reading the params of the methods this engine owns.

use alloc::format;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::message::ErrorObject;

/// Reads params that must be an object.
///
/// # Errors
/// `-32602` with what is wrong.
pub(crate) fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, ErrorObject> {
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
    params: Option<&'a RawValue>,
) -> Result<T, ErrorObject> {
    match params {
        None => Ok(T::default()),
        some => read(some),
    }
}

/// A member that tells `null` from being absent, which `Option<&RawValue>` does not.
#[derive(Default, Clone, Copy)]
pub(crate) struct Given<'a>(pub(crate) Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Given<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}
