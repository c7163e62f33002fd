//! `_meta` and `resultType`: sets them in JSON text and leaves every other member unchanged.

use alloc::string::String;
use core::fmt;

use memchr::{memchr3, memmem};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::ids::TaskId;
use crate::json::format::{UUID_BYTES, uuid_text};
use crate::json::writer::Writer;

/// Key of `_meta` that names the task of a message (TSK-16, TSK-29).
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// Key of `_meta` that names the answering server (MOD-02).
pub(crate) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

const RESULT_TYPE: &str = "resultType";
const META: &str = "_meta";

/// JSON text of the value of [`RELATED_TASK`].
pub(crate) fn related_task(task: TaskId) -> [u8; RELATED_BYTES] {
    let mut value = [0; RELATED_BYTES];
    let (before, rest) = value.split_at_mut(BEFORE_ID.len());
    let (id, after) = rest.split_at_mut(UUID_BYTES);
    before.copy_from_slice(BEFORE_ID);
    id.copy_from_slice(&uuid_text(task.uuid()));
    after.copy_from_slice(AFTER_ID);
    value
}

const BEFORE_ID: &[u8] = b"{\"taskId\":\"";
const AFTER_ID: &[u8] = b"\"}";
const RELATED_BYTES: usize = BEFORE_ID.len() + UUID_BYTES + AFTER_ID.len();

/// Writes `object` with the members of `set` in its `_meta`; each is a name and JSON text.
pub(crate) fn write_with_meta(json: &mut Writer<'_>, object: &str, set: &[(&str, &[u8])]) {
    if set.is_empty() {
        json.raw(object);
        return;
    }
    json.raw("{");
    let members = Members { json, count: 0, reserved: None, meta: None };
    members.write(object, set);
}

/// Writes `result` with the type `kind`, in place of a type it may have, and with the members of
/// `set` in its `_meta` (MOD-02).
pub(crate) fn write_with_type(
    json: &mut Writer<'_>,
    result: &str,
    kind: &str,
    set: &[(&str, &[u8])],
) {
    json.raw("{").member(RESULT_TYPE, kind);
    let members = Members { json, count: 1, reserved: Some(RESULT_TYPE), meta: None };
    members.write(result, set);
}

/// Text of the members of an object, if the object certainly contains neither `_meta` nor the
/// reserved name.
fn plain_members<'r>(object: &'r str, reserved: Option<&str>) -> Option<&'r str> {
    let members = object.trim_ascii().strip_prefix('{')?.strip_suffix('}')?.trim_ascii();
    let has = |text: &str| memmem::find(members.as_bytes(), text.as_bytes()).is_some();
    // Each of these needs one of three bytes that most results lack: one search excludes all.
    let odd = memchr3(b'_', b'T', b'\\', members.as_bytes()).is_some();
    // A name may be written with escapes.
    let may_have = odd && (has(META) || reserved.is_some_and(has) || has("\\u00"));
    (!may_have).then_some(members)
}

/// Copies the members of an object except `_meta`, which is kept for later.
struct Members<'w, 'b, 'r> {
    json: &'w mut Writer<'b>,
    /// Number of members written.
    count: usize,
    /// Name that was written already; the object's member of that name is dropped.
    reserved: Option<&'static str>,
    meta: Option<&'r RawValue>,
}

impl<'r> Members<'_, '_, 'r> {
    /// Writes the rest of an object, up to its closing brace.
    fn write(mut self, object: &'r str, set: &[(&str, &[u8])]) {
        match plain_members(object, self.reserved) {
            Some(members) => {
                if !members.is_empty() {
                    self.json.raw(if self.count > 0 { "," } else { "" }).raw(members);
                    self.count += 1;
                }
            }
            None => {
                let mut reader = serde_json::Deserializer::from_str(object);
                // The tool's result was checked to be an object on arrival; if it is none, the
                // members read so far still form one.
                let _ = reader.deserialize_map(&mut self);
            }
        }
        let Self { json, count, meta, .. } = self;
        json.raw(if count > 0 { ",\"_meta\":{" } else { "\"_meta\":{" });
        if let Some(meta) = meta.filter(|meta| meta.get().starts_with('{')) {
            let mut others = Others { json: &mut *json, set };
            let _ = serde_json::Deserializer::from_str(meta.get()).deserialize_map(&mut others);
        }
        for (position, (name, value)) in set.iter().enumerate() {
            json.raw(if position == 0 { "" } else { "," }).string(name).raw(":").bytes(value);
        }
        json.raw("}}");
    }
}

impl<'r> Visitor<'r> for &mut Members<'_, '_, 'r> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'r>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let value: &RawValue = map.next_value()?;
            if key == META {
                self.meta = Some(value);
                continue;
            }
            if Some(key.as_str()) == self.reserved {
                continue;
            }
            self.json.raw(if self.count > 0 { "," } else { "" });
            self.json.string(&key).raw(":").raw(value.get());
            self.count += 1;
        }
        Ok(())
    }
}

/// Copies the members of a `_meta` except those in `set`, each followed by a comma.
struct Others<'w, 'b, 's> {
    json: &'w mut Writer<'b>,
    set: &'s [(&'s str, &'s [u8])],
}

impl<'r> Visitor<'r> for &mut Others<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a _meta object")
    }

    fn visit_map<A: MapAccess<'r>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if self.set.iter().any(|(name, _)| *name == key) {
                map.next_value::<IgnoredAny>()?;
            } else {
                let value: &RawValue = map.next_value()?;
                self.json.string(&key).raw(":").raw(value.get()).raw(",");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;

    /// TSK-16: members are merged, other keys are preserved, a forged one is replaced.
    #[test]
    fn meta_is_merged() {
        let set =
            [(RELATED_TASK, br#"{"taskId":"t"}"#.as_slice()), ("progressToken", b"7".as_slice())];
        let meta = format!(r#""{RELATED_TASK}":{{"taskId":"t"}},"progressToken":7"#);
        for (object, expected) in [
            ("{}", format!(r#"{{"_meta":{{{meta}}}}}"#)),
            ("{ }", format!(r#"{{"_meta":{{{meta}}}}}"#)),
            (r#"{"a":[1, 2]}"#, format!(r#"{{"a":[1, 2],"_meta":{{{meta}}}}}"#)),
            (r#" { "a" : "}{" } "#, format!(r#"{{"a" : "}}{{","_meta":{{{meta}}}}}"#)),
            (
                r#"{"\u005fmet\u0061":{"x":1},"a":1}"#,
                format!(r#"{{"a":1,"_meta":{{"x":1,{meta}}}}}"#),
            ),
            (
                r#"{"_meta":{"x":{"y":1}},"a":null}"#,
                format!(r#"{{"a":null,"_meta":{{"x":{{"y":1}},{meta}}}}}"#),
            ),
            (
                r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"forged"}}}"#,
                format!(r#"{{"_meta":{{{meta}}}}}"#),
            ),
        ] {
            let mut bytes = Vec::new();
            write_with_meta(&mut Writer::new(&mut bytes), object, &set);
            assert_eq!(core::str::from_utf8(&bytes), Ok(expected.as_str()), "{object}");
        }
        let mut bytes = Vec::new();
        write_with_meta(&mut Writer::new(&mut bytes), r#"{"a":1}"#, &[]);
        assert_eq!(bytes, br#"{"a":1}"#);
    }

    /// MOD-02: the engine sets the type and the server; everything else is the tool's.
    #[test]
    fn a_result_gets_a_type() {
        let us = format!(r#""{SERVER_INFO}":7"#);
        for (result, rest) in [
            ("{ }", format!(r#""_meta":{{{us}}}"#)),
            (r#"{"resultType":"task","content":[]}"#, format!(r#""content":[],"_meta":{{{us}}}"#)),
            (r#"{"a":1}"#, format!(r#""a":1,"_meta":{{{us}}}"#)),
            (r#"{"result\u0054ype":"task","a":1}"#, format!(r#""a":1,"_meta":{{{us}}}"#)),
            (
                r#"{"_meta":{"x":1,"io.modelcontextprotocol/serverInfo":0},"a":null}"#,
                format!(r#""a":null,"_meta":{{"x":1,{us}}}"#),
            ),
        ] {
            let mut bytes = Vec::new();
            let json = &mut Writer::new(&mut bytes);
            write_with_type(json, result, "complete", &[(SERVER_INFO, b"7")]);
            let expected = format!("{{\"resultType\":\"complete\",{rest}}}");
            assert_eq!(core::str::from_utf8(&bytes), Ok(expected.as_str()), "{result}");
        }
    }

    /// Names of an object's members, in order.
    fn names(object: &str) -> Vec<String> {
        struct Names(Vec<String>);
        impl<'r> Visitor<'r> for &mut Names {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'r>>(self, mut map: A) -> Result<(), A::Error> {
                while let Some((name, IgnoredAny)) = map.next_entry()? {
                    self.0.push(name);
                }
                Ok(())
            }
        }
        let mut found = Names(Vec::new());
        let mut reader = serde_json::Deserializer::from_str(object);
        reader.deserialize_map(&mut found).expect("the written text is an object");
        found.0
    }

    /// TSK-16, MOD-02: random objects in every spelling give the members of a merged `serde_json`
    /// tree, each once and in order.
    #[test]
    fn any_object_is_merged() {
        const NAMES: [&str; 8] = [
            "a",
            "_meta",
            r"\u005fmeta",
            "resultType",
            r"result\u0054ype",
            "_Meta",
            "\u{e4}",
            r"\\u00",
        ];
        const VALUES: [&str; 7] = [
            "1",
            "null",
            r#""_meta""#,
            r#"{"_meta":{}}"#,
            "[ {} ]",
            r#"{"x":1,"k":2}"#,
            r#""\"},""#,
        ];
        const SPACES: [&str; 4] = ["", "", " ", "\n\t"];
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (random >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let (mut object, mut seen) = (String::from("{"), Vec::new());
            for _ in 0..next(5) {
                let name = NAMES[next(NAMES.len())];
                let read: String =
                    serde_json::from_str(&format!("\"{name}\"")).expect("a name is a string");
                if seen.contains(&read) {
                    continue;
                }
                let comma = if seen.is_empty() { "" } else { "," };
                seen.push(read);
                let [a, b, c, d] = core::array::from_fn(|_| SPACES[next(SPACES.len())]);
                let value = VALUES[next(VALUES.len())];
                object += &format!("{comma}{a}\"{name}\"{b}:{c}{value}{d}");
            }
            object += "}";
            let tree: serde_json::Value = serde_json::from_str(&object).expect("an object");
            for kind in [None, Some("complete")] {
                let mut bytes = Vec::new();
                let json = &mut Writer::new(&mut bytes);
                match kind {
                    None => write_with_meta(json, &object, &[("k", b"7")]),
                    Some(kind) => write_with_type(json, &object, kind, &[("k", b"7")]),
                }
                let written = core::str::from_utf8(&bytes).expect("the written text is UTF-8");
                let mut wanted = tree.clone();
                if !wanted[META].is_object() {
                    wanted[META] = serde_json::json!({});
                }
                wanted[META]["k"] = 7.into();
                let mut order: Vec<String> = seen.clone();
                if let Some(kind) = kind {
                    wanted[RESULT_TYPE] = kind.into();
                    order.retain(|name| name != RESULT_TYPE);
                    order.insert(0, RESULT_TYPE.into());
                }
                order.retain(|name| name != META);
                order.push(META.into());
                assert_eq!(names(written), order, "{object} became {written}");
                let read: serde_json::Value =
                    serde_json::from_str(written).expect("the written text is JSON");
                assert_eq!(read, wanted, "{object}");
            }
        }
    }
}
