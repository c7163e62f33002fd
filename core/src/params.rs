//! Params: their text, the members that are asked for most, and reading the others.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use core::fmt;

use memchr::memchr;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json::{Json, Raw};
use crate::message::ErrorObject;
use crate::scan;

/// The params of a request or a notification: JSON text that was checked.
///
/// They are read once: to know where they end is to know their members. What is asked for most is
/// remembered then.
#[derive(Clone, Copy)]
pub struct Params<'a> {
    text: &'a str,
    known: Option<&'a Members<'a>>,
}

/// Members of params that were seen while these were read: what they remember, and nobody else looks
/// at.
#[derive(Debug, Default, Clone, Copy)]
pub struct Members<'a> {
    pub(crate) name: Option<Raw<'a>>,
    pub(crate) arguments: Option<Raw<'a>>,
    pub(crate) task: Option<Raw<'a>>,
    pub(crate) meta: Option<Meta<'a>>,
    pub(crate) task_id: Option<Raw<'a>>,
    pub(crate) request_id: Option<Raw<'a>>,
    pub(crate) reason: Option<Raw<'a>>,
}

/// Members of `_meta` that mean something here. There may be others.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Meta<'a> {
    #[serde(borrow, default, rename = "progressToken")]
    pub(crate) progress_token: Given<'a>,
    #[serde(borrow, default, rename = "ceased/idempotencyKey")]
    pub(crate) idempotency_key: Given<'a>,
    #[serde(borrow, default, rename = "ceased/reason")]
    pub(crate) reason: Given<'a>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) version: Given<'a>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub(crate) capabilities: Given<'a>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    pub(crate) log_level: Given<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Meta<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        // What is derived would take an array as well, member by member.
        impl<'de> Visitor<'de> for Object {
            type Value = Meta<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("_meta as an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
                Meta::deserialize(MapAccessDeserializer::new(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

impl<'a> Meta<'a> {
    /// Reads the object at a place of a text, and says where it ends. `None` for anything else, or
    /// where a general reader has to say what is in it: a name has an escape, one is there twice.
    fn read(&mut self, text: &'a str, at: usize, depth_max: usize) -> Option<usize> {
        scan::object_at(text.as_bytes(), at, depth_max, |name, at, depth_max| {
            let end = scan::value(text.as_bytes(), at, depth_max)?;
            let value = Raw::checked(text.get(at..end)?);
            let odd = match self.slot(name) {
                Some(slot) => slot.replace(value).is_some(),
                None => memchr(b'\\', name).is_some(),
            };
            (!odd).then_some(end)
        })
    }

    /// The place of the member with this name.
    pub(crate) fn slot(&mut self, name: &[u8]) -> Option<&mut Option<Raw<'a>>> {
        let given = match name {
            b"progressToken" => &mut self.progress_token,
            b"ceased/idempotencyKey" => &mut self.idempotency_key,
            b"ceased/reason" => &mut self.reason,
            b"io.modelcontextprotocol/protocolVersion" => &mut self.version,
            b"io.modelcontextprotocol/clientCapabilities" => &mut self.capabilities,
            b"io.modelcontextprotocol/logLevel" => &mut self.log_level,
            _ => return None,
        };
        Some(&mut given.0)
    }
}

impl<'a> Members<'a> {
    /// Reads params that are an object and nest that deep at most: whether these are all the
    /// members there are, with nothing odd about them, and where the params end.
    pub(crate) fn read(&mut self, text: &'a str, depth_max: usize) -> Option<(bool, usize)> {
        let (bytes, mut odd) = (text.as_bytes(), false);
        let end = scan::object_at(bytes, 0, depth_max, |name, at, depth_max| {
            if name == b"_meta" {
                odd |= self.meta.is_some();
                let meta = self.meta.insert(Meta::default());
                if let Some(end) = meta.read(text, at, depth_max) {
                    return Some(end);
                }
            }
            let end = scan::value(bytes, at, depth_max)?;
            let value = Raw::checked(text.get(at..end)?);
            match self.slot(name) {
                Some(slot) => odd |= slot.replace(value).is_some(),
                None => odd = true,
            }
            Some(end)
        })?;
        Some((!odd, end))
    }

    /// The place of the member with this name.
    pub(crate) fn slot(&mut self, name: &[u8]) -> Option<&mut Option<Raw<'a>>> {
        Some(match name {
            b"name" => &mut self.name,
            b"arguments" => &mut self.arguments,
            b"task" => &mut self.task,
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
    pub(crate) const fn seen(value: Raw<'a>, known: Option<&'a Members<'a>>) -> Self {
        Self { text: value.get(), known }
    }

    /// Their JSON text.
    #[must_use]
    pub const fn get(&self) -> &'a str {
        self.text
    }

    /// Their members; `None` when others than these may be there, or one of them twice.
    pub(crate) const fn known(&self) -> Option<&'a Members<'a>> {
        self.known
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
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Given<'a>(pub(crate) Option<Raw<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Given<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Raw::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}
