//! Params: their text, the members that are asked for most, and reading the others.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use core::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

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
    pub(crate) name: Option<&'a RawValue>,
    pub(crate) arguments: Option<&'a RawValue>,
    pub(crate) task: Option<&'a RawValue>,
    pub(crate) meta: Option<&'a RawValue>,
    pub(crate) task_id: Option<&'a RawValue>,
    pub(crate) request_id: Option<&'a RawValue>,
    pub(crate) reason: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    pub(crate) fn of(value: &'a RawValue) -> Self {
        Self { text: value.get(), known: None }
    }

    /// Reads the object at the start of a text; gives back what follows it.
    pub(crate) fn read_object(text: &'a str) -> Option<(Self, &'a str)> {
        if !text.starts_with('{') {
            return None;
        }
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Seen<'a>>();
        let Seen(known) = values.next()?.ok()?;
        let (text, after) = text.split_at_checked(values.byte_offset())?;
        Some((Self { text, known }, after))
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
}

impl fmt::Debug for Params<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

/// The members of an object, if there are no others.
struct Seen<'a>(Option<Members<'a>>);

impl<'de> Deserialize<'de> for Seen<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SeenVisitor;
        impl<'de> Visitor<'de> for SeenVisitor {
            type Value = Seen<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("params as an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Seen<'de>, A::Error> {
                let (mut known, mut odd) = (Members::default(), false);
                while let Some(member) = map.next_key()? {
                    let slot = match member {
                        Member::Name => &mut known.name,
                        Member::Arguments => &mut known.arguments,
                        Member::Task => &mut known.task,
                        Member::Meta => &mut known.meta,
                        Member::TaskId => &mut known.task_id,
                        Member::RequestId => &mut known.request_id,
                        Member::Reason => &mut known.reason,
                        Member::Other => {
                            map.next_value::<IgnoredAny>()?;
                            odd = true;
                            continue;
                        }
                    };
                    odd |= slot.replace(map.next_value()?).is_some();
                }
                Ok(Seen((!odd).then_some(known)))
            }
        }
        deserializer.deserialize_map(SeenVisitor)
    }
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum Member {
    #[serde(rename = "name")]
    Name,
    #[serde(rename = "arguments")]
    Arguments,
    #[serde(rename = "task")]
    Task,
    #[serde(rename = "_meta")]
    Meta,
    #[serde(rename = "taskId")]
    TaskId,
    #[serde(rename = "requestId")]
    RequestId,
    #[serde(rename = "reason")]
    Reason,
    #[serde(other)]
    Other,
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

/// A member that tells `null` from being absent, which `Option<&RawValue>` does not.
#[derive(Default, Clone, Copy)]
pub(crate) struct Given<'a>(pub(crate) Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Given<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}
