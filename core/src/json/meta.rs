//! `_meta` and `resultType`: sets them in JSON text and leaves every other member unchanged.

use crate::ids::TaskId;
use crate::json::format::{UUID_BYTES, uuid_text};
use crate::json::raw::Json;
use crate::json::scan;
use crate::json::writer::Writer;

/// Key of `_meta` that names the task of a message (TSK-16, TSK-29).
pub(crate) const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// Key of `_meta` that names the answering server (MOD-02).
pub(crate) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Key of `_meta` that names the client of a request (MOD-01).
pub(crate) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

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

/// Key of `_meta` that says how far the work of a cancelled or failed task is.
pub(crate) const WORK: &str = "ceased/work";

/// Writes `object` with the members of `set` in its `_meta`; each is a name and JSON text.
pub(crate) fn write_with_meta(json: &mut Writer<'_>, object: &str, set: &[(&str, &[u8])]) {
    if set.is_empty() {
        json.raw(object);
        return;
    }
    json.raw("{");
    let members = MetaMembers { json, count: 0, reserved: None, meta: None };
    members.write(object, set);
}

/// Writes `result` with the type `kind`, in place of a type it may have, and with the members of
/// `set` in its `_meta` (MOD-02).
pub(crate) fn write_with_type(
    json: &mut Writer<'_>,
    result: &Json,
    kind: &str,
    set: &[(&str, &[u8])],
) {
    json.raw("{").member(RESULT_TYPE, kind);
    let mut members = MetaMembers { json, count: 1, reserved: Some(RESULT_TYPE), meta: None };
    match result.is_bare() {
        true => {
            members.copy(inner(result.get()));
            members.end(set);
        }
        false => members.write(result.get(), set),
    }
}

/// Text of the members of an object.
fn inner(object: &str) -> &str {
    let text = object.trim_ascii();
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    text.unwrap_or_default().trim_ascii()
}

/// Copies the members of an object except `_meta`, which is kept for later.
struct MetaMembers<'w, 'b, 'r> {
    json: &'w mut Writer<'b>,
    /// Number of members written.
    count: usize,
    /// Name that was written already; the object's member of that name is dropped.
    reserved: Option<&'static str>,
    meta: Option<&'r str>,
}

impl<'r> MetaMembers<'_, '_, 'r> {
    /// Writes the rest of an object, up to its closing brace.
    fn write(mut self, object: &'r str, set: &[(&str, &[u8])]) {
        let object = object.trim_ascii();
        // The tool's result was checked to be an object on arrival; if it is none, the members read
        // so far still form one.
        let _ = scan::object(object.as_bytes(), scan::DEPTH_MAX, |name, value| {
            let value = object.get(value)?;
            let known = |name: &[u8]| {
                let is_reserved = self.reserved.is_some_and(|text| text.as_bytes() == name);
                (name == META.as_bytes() || is_reserved).then_some(is_reserved)
            };
            match scan::named(name, known) {
                Some(false) => self.meta = Some(value),
                Some(true) => {}
                None => self.member(core::str::from_utf8(name).ok()?, value),
            }
            Some(())
        });
        self.end(set);
    }

    fn member(&mut self, name: &str, value: &str) {
        self.json.raw(if self.count > 0 { ",\"" } else { "\"" });
        self.json.raw(name).raw("\":").raw(value);
        self.count += 1;
    }

    /// Appends the text of other members.
    fn copy(&mut self, members: &str) {
        if !members.is_empty() {
            self.json.raw(if self.count > 0 { "," } else { "" }).raw(members);
            self.count += 1;
        }
    }

    /// Writes `_meta` with the members of `set`, and closes the object.
    fn end(self, set: &[(&str, &[u8])]) {
        let Self { json, count, meta, .. } = self;
        json.raw(if count > 0 { ",\"_meta\":{" } else { "\"_meta\":{" });
        let meta = meta.unwrap_or_default();
        scan::object(meta.as_bytes(), scan::DEPTH_MAX, |name, value| {
            let is_set = |name: &[u8]| set.iter().find(|(set, _)| set.as_bytes() == name);
            if scan::named(name, is_set).is_none() {
                json.raw("\"").raw(core::str::from_utf8(name).ok()?).raw("\":");
                json.raw(meta.get(value)?).raw(",");
            }
            Some(())
        });
        for (position, (name, value)) in set.iter().enumerate() {
            json.raw(if position == 0 { "" } else { "," }).string(name).raw(":").bytes(value);
        }
        json.raw("}}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;
    use core::fmt;
    use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};

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
            (r#" { "a" : "}{" } "#, format!(r#"{{"a":"}}{{","_meta":{{{meta}}}}}"#)),
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
    fn result_gets_a_type() {
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
            write_with_type(
                json,
                &Json::written(result.into()),
                "complete",
                &[(SERVER_INFO, b"7")],
            );
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
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (random >> 33) as usize % below
        };
        for _ in 0..20_000 {
            let (object, seen) = any_object(&mut next);
            let tree: serde_json::Value = serde_json::from_str(&object).expect("an object");
            for kind in [None, Some("complete")] {
                let mut bytes = Vec::new();
                let json = &mut Writer::new(&mut bytes);
                match kind {
                    None => write_with_meta(json, &object, &[("k", b"7")]),
                    Some(kind) => {
                        let result = Json::written(object.clone());
                        write_with_type(json, &result, kind, &[("k", b"7")]);
                    }
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

    /// An object at random, and the names of its members.
    fn any_object(next: &mut impl FnMut(usize) -> usize) -> (String, Vec<String>) {
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
        (object, seen)
    }
}
