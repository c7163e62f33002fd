//! Params: their text, the frequently used members, and access to the others.

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::format;
use core::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::ids::RequestId;
use crate::json::raw::{FoundMembers, Raw};
use crate::json::scan;
use crate::rpc::error::ErrorObject;

/// The params of a request or notification: validated JSON text.
///
/// One pass finds both the end of the params and their members.
#[derive(Clone, Copy)]
pub struct Params<'a> {
    text: &'a str,
    members: &'a Members<'a>,
}

/// Members found while the params were scanned.
///
/// `null` counts as absent. The last of several members with one name counts, as for most readers;
/// the duplicates are recorded for methods that reject them.
#[derive(Debug, Default, Clone, Copy)]
pub struct Members<'a> {
    pub(crate) name: Option<Raw<'a>>,
    pub(crate) arguments: Option<Raw<'a>>,
    pub(crate) task: Option<Raw<'a>>,
    /// Also `None` for a `_meta` that is not an object: a cancel is valid with one.
    pub(crate) meta: Option<ParamsMeta<'a>>,
    pub(crate) task_id: Option<Raw<'a>>,
    pub(crate) request_id: Option<Raw<'a>>,
    pub(crate) reason: Option<Raw<'a>>,
    pub(crate) request_state: Option<Raw<'a>>,
    pub(crate) input_responses: Option<Raw<'a>>,
    /// True for a `_meta` that is not an object.
    odd_meta: bool,
    seen: SeenMembers,
}

/// Known members of `_meta`. There may be others.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ParamsMeta<'a> {
    pub(crate) progress_token: Option<Raw<'a>>,
    pub(crate) idempotency_key: Option<Raw<'a>>,
    pub(crate) reason: Option<Raw<'a>>,
    pub(crate) version: Option<Raw<'a>>,
    pub(crate) capabilities: Option<Raw<'a>>,
    pub(crate) log_level: Option<Raw<'a>>,
    /// `traceparent`, `tracestate` and `baggage`.
    pub(crate) trace: [Option<Raw<'a>>; 3],
    seen: SeenMembers,
}

/// Names that occurred, one bit for each, and names that occurred twice.
#[derive(Debug, Default, Clone, Copy)]
struct SeenMembers {
    once: u16,
    twice: u16,
}

impl SeenMembers {
    const fn note(&mut self, bit: u16) {
        self.twice |= self.once & bit;
        self.once |= bit;
    }
}

/// Names of members; the index is the bit.
const NAMES: [&str; 9] = [
    "name",
    "arguments",
    "task",
    "_meta",
    "taskId",
    "requestId",
    "reason",
    "requestState",
    "inputResponses",
];
const META: u16 = 1 << 3;
/// Bit of `requestId`.
pub(crate) const REQUEST_ID: u16 = 1 << 5;
/// Bit of `taskId`.
pub(crate) const TASK_ID: u16 = 1 << 4;

const META_NAMES: [&str; 9] = [
    "progressToken",
    "ceased/idempotencyKey",
    "ceased/reason",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
    "traceparent",
    "tracestate",
    "baggage",
];

impl<'a> ParamsMeta<'a> {
    /// Reads the object at an offset of a text, and returns its end.
    fn read(&mut self, text: &'a str, at: usize, depth_max: usize) -> Option<usize> {
        scan::object_at(text.as_bytes(), at, depth_max, |name, at, depth_max| {
            let end = scan::value(text.as_bytes(), at, depth_max)?;
            if let Some(bit) = scan::named(name, |name| self.set(name, text.get(at..end)?)) {
                self.seen.note(bit);
            }
            Some(end)
        })
    }

    /// Stores the member with this name, unless it is `null`, and returns its bit.
    fn set(&mut self, name: &[u8], value: &'a str) -> Option<u16> {
        let (place, slot) = match name {
            b"progressToken" => (0, &mut self.progress_token),
            b"ceased/idempotencyKey" => (1, &mut self.idempotency_key),
            b"ceased/reason" => (2, &mut self.reason),
            b"io.modelcontextprotocol/protocolVersion" => (3, &mut self.version),
            b"io.modelcontextprotocol/clientCapabilities" => (4, &mut self.capabilities),
            b"io.modelcontextprotocol/logLevel" => (5, &mut self.log_level),
            b"traceparent" => (6, self.trace.get_mut(0)?),
            b"tracestate" => (7, self.trace.get_mut(1)?),
            b"baggage" => (8, self.trace.get_mut(2)?),
            _ => return None,
        };
        store(slot, value);
        Some(1 << place)
    }
}

impl<'a> Members<'a> {
    /// Members of absent params.
    const NONE: &'static Members<'static> = &Members {
        name: None,
        arguments: None,
        task: None,
        meta: None,
        task_id: None,
        request_id: None,
        reason: None,
        request_state: None,
        input_responses: None,
        odd_meta: false,
        seen: SeenMembers { once: 0, twice: 0 },
    };

    /// Reads the params at an offset of a text, with at most `depth_max` levels of nesting, and
    /// returns their end. `self` must be empty.
    pub(crate) fn read(&mut self, text: &'a str, at: usize, depth_max: usize) -> Option<usize> {
        let bytes = text.as_bytes();
        if bytes.get(at) != Some(&b'{') {
            return scan::value(bytes, at, depth_max);
        }
        scan::object_at(bytes, at, depth_max, |name, at, depth_max| {
            if bytes.get(at) == Some(&b'{')
                && scan::named(name, |name| (name == b"_meta").then_some(())).is_some()
            {
                self.seen.note(META);
                return self.meta.insert(ParamsMeta::default()).read(text, at, depth_max);
            }
            let end = scan::value(bytes, at, depth_max)?;
            if let Some(bit) = scan::named(name, |name| self.set(name, text.get(at..end)?)) {
                self.seen.note(bit);
            }
            Some(end)
        })
    }

    /// Stores the member with this name, unless it is `null`, and returns its bit.
    fn set(&mut self, name: &[u8], value: &'a str) -> Option<u16> {
        let (place, slot) = match name {
            b"name" => (0, &mut self.name),
            b"arguments" => (1, &mut self.arguments),
            b"task" => (2, &mut self.task),
            b"_meta" => {
                self.odd_meta = value != "null";
                return Some(META);
            }
            b"taskId" => (4, &mut self.task_id),
            b"requestId" => (5, &mut self.request_id),
            b"reason" => (6, &mut self.reason),
            b"requestState" => (7, &mut self.request_state),
            b"inputResponses" => (8, &mut self.input_responses),
            _ => return None,
        };
        store(slot, value);
        Some(1 << place)
    }

    /// Rejects duplicate members: readers disagree on which of them counts.
    ///
    /// # Errors
    ///
    /// `-32602` with the first name.
    pub(crate) fn once(&self, members: u16) -> Result<(), ErrorObject> {
        let meta = self.meta.as_ref().map_or(0, |meta| meta.seen.twice);
        let twice = self.seen.twice & members;
        if twice == 0 && (meta == 0 || members & META == 0) {
            return Ok(());
        }
        let first =
            |names: &[&'static str], bits: u16| names.get(bits.trailing_zeros() as usize).copied();
        Err(given_twice(match first(&NAMES, twice) {
            Some(name) => Cow::Borrowed(name),
            None => format!("_meta.{}", first(&META_NAMES, meta).unwrap_or_default()).into(),
        }))
    }
}

/// Bits of all members.
pub(crate) const ALL: u16 = u16::MAX;

fn store<'a>(slot: &mut Option<Raw<'a>>, value: &'a str) {
    if let Some(value) = Raw::checked(value).non_null() {
        *slot = Some(value);
    }
}

fn given_twice(name: Cow<'_, str>) -> ErrorObject {
    ErrorObject::invalid_params(format!("params.{name} is there twice"))
}

impl<'a> Params<'a> {
    /// Combines validated params with their members.
    pub(crate) const fn seen(value: Raw<'a>, members: &'a Members<'a>) -> Self {
        Self { text: value.get(), members }
    }

    /// Returns the JSON text.
    #[must_use]
    pub const fn get(&self) -> &'a str {
        self.text
    }

    /// Copies the JSON text.
    pub(crate) fn to_raw(self) -> Box<RawValue> {
        RawValue::from_string(self.text.to_owned()).expect("params are JSON")
    }

    /// The request named by a member. `None` without one, and for duplicates that name different
    /// requests. If `null_ids` is set, `null` names a request unless a duplicate names another.
    pub(crate) fn request_named(self, member: &str, null_ids: bool) -> Option<RequestId> {
        let (mut named, mut is_null, mut is_odd) = (None, false, false);
        scan::object(self.text.as_bytes(), scan::DEPTH_MAX, |key, value| {
            if scan::named(key, |key| (key == member.as_bytes()).then_some(())).is_none() {
                return Some(());
            }
            let token = self.text.get(value)?;
            match RequestId::parse(token) {
                Some(id) if named.as_ref().is_none_or(|named| *named == id) => named = Some(id),
                None if token == "null" => is_null = true,
                Some(_) | None => is_odd = true,
            }
            Some(())
        })?;
        let named = named.or((is_null && null_ids).then_some(RequestId::Null));
        named.filter(|_| !is_odd)
    }

    /// Finds other members; `None` when the params are not an object.
    pub(crate) fn find<const N: usize>(
        self,
        names: [&'static str; N],
    ) -> Option<FoundMembers<'a, N>> {
        Raw::checked(self.text).members(names)
    }
}

impl fmt::Debug for Params<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

/// Members of params that are an object, or of absent params.
///
/// # Errors
///
/// `-32602` for another type.
pub(crate) fn members<'a>(params: Option<&Params<'a>>) -> Result<&'a Members<'a>, ErrorObject> {
    match params {
        None => Ok(Members::NONE),
        Some(params) if params.text.starts_with('{') => Ok(params.members),
        Some(_) => Err(not_an_object()),
    }
}

/// Rejects a `_meta` that is not an object; only a cancel is valid with one.
///
/// # Errors
///
/// `-32602`
pub(crate) fn check_meta(params: Option<&Params<'_>>) -> Result<(), ErrorObject> {
    match any_members(params).odd_meta {
        true => Err(ErrorObject::invalid_params("params._meta must be an object")),
        false => Ok(()),
    }
}

/// Members of params of any type; none for absent params.
pub(crate) fn any_members<'a>(params: Option<&Params<'a>>) -> &'a Members<'a> {
    params.map_or(Members::NONE, |params| params.members)
}

/// Members with these names; none for absent params.
///
/// # Errors
///
/// `-32602` when the params are not an object, or a name occurs twice.
pub(crate) fn find<'a, const N: usize>(
    params: Option<&Params<'a>>,
    names: [&'static str; N],
) -> Result<[Option<Raw<'a>>; N], ErrorObject> {
    let Some(params) = params else { return Ok([None; N]) };
    match params.find(names) {
        None => Err(not_an_object()),
        Some(FoundMembers { twice: Some(name), .. }) => Err(given_twice(name.into())),
        Some(FoundMembers { members, twice: None }) => Ok(members),
    }
}

/// A required string.
///
/// # Errors
///
/// `-32602` when the member is absent or has another type.
pub(crate) fn text<'a>(name: &str, member: Option<Raw<'a>>) -> Result<Cow<'a, str>, ErrorObject> {
    required(name, member)?
        .string()
        .ok_or_else(|| ErrorObject::invalid_params(format!("params.{name} must be a string")))
}

/// A required member.
///
/// # Errors
///
/// `-32602` when the member is absent.
pub(crate) fn required<'a>(name: &str, member: Option<Raw<'a>>) -> Result<Raw<'a>, ErrorObject> {
    member.ok_or_else(|| ErrorObject::invalid_params(format!("params.{name} is required")))
}

fn not_an_object() -> ErrorObject {
    ErrorObject::invalid_params("params must be an object")
}

/// A member that distinguishes `null` from absence, unlike `Option<Raw>`.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Nullable<'a>(pub(crate) Option<Raw<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Nullable<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Raw::deserialize(deserializer).map(|raw| Self(Some(raw)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::scan::tests::mutants;
    use alloc::collections::BTreeMap;
    use alloc::string::String;

    fn read<'a>(text: &'a str, members: &mut Members<'a>) -> bool {
        members.read(text, 0, 64) == Some(text.len())
    }

    /// RPC-02, MOD-01: members in every spelling equal those of serde_json.
    #[test]
    fn members_equal_those_of_serde_json() {
        let texts = [
            r#"{"name":"echo","arguments":{"a":[1]},"_meta":{"progressToken":"t","ceased/reason":"r"}}"#,
            r#"{ "taskId" : "t" , "_meta" : { "ceased/idempotencyKey" : null } , "reason" : 7 }"#,
            r#"{"_meta":{"traceparent":"00-a","trace\u0073tate":"a=1","baggage":null}}"#,
            r#"{"t\u0061sk":{},"request\u0049d":1.0,"\ud800":1,"_m\u0065ta":{"progress\u0054oken":1}}"#,
            r#"{"requestState":"s","inputResponses":{},"_meta":{"io.modelcontextprotocol\/logLevel":"info"}}"#,
        ];
        let mut checked = 0;
        for text in texts {
            mutants(text, 20_000, |text| checked += usize::from(agrees(text)));
        }
        assert!(checked > 2_000, "{checked}");
    }

    /// Whether a text is an object whose members were compared.
    fn agrees(text: &str) -> bool {
        let mut members = Members::default();
        let is_read = text.starts_with('{') && read(text, &mut members);
        let Ok(all) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
            // Only a name with an unpaired surrogate makes a difference.
            assert!(!is_read || text.contains("\\u"), "{text}");
            return false;
        };
        if !text.starts_with('{') || text.ends_with(char::is_whitespace) {
            return false;
        }
        assert!(is_read, "{text}");
        let Members { name, arguments, task, task_id, request_id, reason, seen, meta, .. } =
            members;
        let (state, responses) = (members.request_state, members.input_responses);
        let slots = [name, arguments, task, None, task_id, request_id, reason, state, responses];
        for (place, (slot, name)) in slots.into_iter().zip(NAMES).enumerate() {
            let expected = all.get(name).map(|raw| raw.get());
            assert_eq!(seen.once & 1 << place != 0, expected.is_some(), "{name} of {text}");
            if name != "_meta" && seen.twice & 1 << place == 0 {
                let expected = expected.filter(|value| *value != "null");
                assert_eq!(slot.map(Raw::get), expected, "{name} of {text}");
            }
        }
        let Some(raw) = all.get("_meta").filter(|_| seen.twice & META == 0) else { return true };
        let meta_is = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw.get());
        let (Some(meta), Ok(all)) = (meta, meta_is) else {
            return meta.is_none() || text.contains("\\u");
        };
        let slots = [
            meta.progress_token,
            meta.idempotency_key,
            meta.reason,
            meta.version,
            meta.capabilities,
            meta.log_level,
            meta.trace[0],
            meta.trace[1],
            meta.trace[2],
        ];
        for (slot, name) in slots.into_iter().zip(META_NAMES) {
            let expected = all.get(name).map(|raw| raw.get()).filter(|value| *value != "null");
            if meta.seen.twice == 0 {
                assert_eq!(slot.map(Raw::get), expected, "{name} of {text}");
            }
        }
        true
    }

    /// RPC-02: the error names a duplicate member in every spelling.
    #[test]
    fn duplicate_members_are_named() {
        for (text, name) in [
            (r#"{"name":"x","name":"x"}"#, "params.name is there twice"),
            (r#"{"name":null,"n\u0061me":"x"}"#, "params.name is there twice"),
            (r#"{"_meta":{},"_meta":7}"#, "params._meta is there twice"),
            (
                r#"{"_meta":{"progressToken":1,"progress\u0054oken":1}}"#,
                "params._meta.progressToken is there twice",
            ),
        ] {
            let mut members = Members::default();
            assert!(read(text, &mut members), "{text}");
            let refusal = members.once(ALL).map_err(|error| error.message);
            assert_eq!(refusal, Err(name.into()), "{text}");
            assert_eq!(members.once(TASK_ID), Ok(()), "{text}");
        }
    }
}
