//! Rewriting of messages between client and upstream: JSON text in, JSON text out, every member
//! but the named ones byte for byte as it was.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use crate::json::meta::{CLIENT_INFO, SERVER_INFO};
use crate::json::raw::{Json, Raw};
use crate::json::scan;
use crate::json::writer::Writer;
use crate::rpc::error::{ErrorObject, code};
use crate::rpc::result::HopMembers;
use crate::rpc::result::ResultText;

/// Keys of a client's `_meta` that belong to its own hop (UPS-01, UPS-03).
const HOP_KEYS: [&str; 5] = [
    "progressToken",
    "io.modelcontextprotocol/protocolVersion",
    CLIENT_INFO,
    "io.modelcontextprotocol/logLevel",
    "io.modelcontextprotocol/related-task",
];

/// One member of an object: the key as it is written between its quotes, and its value.
pub(crate) type TextMember<'a> = (&'a str, &'a str);

/// The members of an object, in order; none for a text that is no object.
pub(crate) fn members(object: &str) -> Vec<TextMember<'_>> {
    let mut all = Vec::new();
    scan::object(object.as_bytes(), scan::DEPTH_MAX, |name, value| {
        all.push((core::str::from_utf8(name).ok()?, object.get(value)?));
        Some(())
    });
    all
}

/// The name of a member, if it is one of `names`.
fn known<'n>(key: &str, names: &[&'n str]) -> Option<&'n str> {
    scan::named(key.as_bytes(), |key| names.iter().copied().find(|name| name.as_bytes() == key))
}

fn push(out: &mut String, (key, value): TextMember<'_>) {
    out.push_str(if out.ends_with('{') { "\"" } else { ",\"" });
    out.push_str(key);
    out.push_str("\":");
    out.push_str(value);
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    let mut bytes = Vec::new();
    Writer::new(&mut bytes).string(text);
    String::from_utf8(bytes).unwrap_or_default()
}

/// The params of a request as the other side of the engine gets them: with the name that the server
/// knows, and without the keys of `_meta` that belong to one hop. `of_task`: without a wish for a
/// task, which this engine fulfils itself.
pub(crate) fn params_for_other_hop(params: &str, name: Option<&str>, of_task: bool) -> String {
    let mut out = String::with_capacity(params.len() + 16);
    out.push('{');
    for (key, value) in members(params) {
        match (known(key, &["name", "task", "_meta"]), name) {
            (Some("name"), Some(name)) => push(&mut out, ("name", &quoted(name))),
            (Some("task"), _) if of_task => {}
            (Some("_meta"), _) => {
                let meta = meta_for_other_hop(value);
                if meta.len() > 2 {
                    push(&mut out, (key, &meta));
                }
            }
            _ => push(&mut out, (key, value)),
        }
    }
    out.push('}');
    out
}

fn meta_for_other_hop(meta: &str) -> String {
    let mut out = String::from("{");
    for (key, value) in members(meta) {
        if known(key, &HOP_KEYS).is_none() {
            push(&mut out, (key, value));
        }
    }
    out.push('}');
    out
}

/// An object with one member set to this JSON text: in its place if it is there, else at the end.
pub(crate) fn with_member(object: &str, name: &str, json: &str) -> String {
    let mut out = String::with_capacity(object.len() + json.len() + name.len() + 4);
    let mut is_set = false;
    out.push('{');
    for (key, value) in members(object) {
        if known(key, &[name]).is_some() {
            is_set = true;
            push(&mut out, (key, json));
        } else {
            push(&mut out, (key, value));
        }
    }
    if !is_set {
        push(&mut out, (name, json));
    }
    out.push('}');
    out
}

/// A result without the members that a server without sessions has to put into each, and that
/// describe its hop alone (UPS-01): its type, and its name and version in `_meta`.
pub(crate) fn without_hop_members(result: ResultText<'_>) -> Json {
    let Some(hop) = result.hop() else {
        // Readers disagree on a member that occurs twice.
        return Json::written(without(result.get(), &["resultType", "_meta"]));
    };
    let (edits, is_bare) = edits_without(result.get(), hop);
    Json::of_result(edited(result.get(), &edits).into(), is_bare)
}

/// Parts of the text of a result to replace, in order, and whether neither member is left.
fn edits_without(text: &str, hop: &HopMembers) -> (Vec<MemberEdit>, bool) {
    let (mut edits, mut is_bare) = (Vec::<MemberEdit>::new(), true);
    let places = [hop.kind().map(|place| (place, false)), hop.meta().map(|place| (place, true))];
    let mut places: Vec<_> = places.into_iter().flatten().collect();
    places.sort_unstable_by_key(|(place, _)| place.member().start);
    for (place, is_meta) in places {
        let Range { start, end } = place.member();
        let value = text.get(place.value()).unwrap_or_default();
        if let Some(meta) = meta_without_server(value).filter(|_| is_meta) {
            edits.push((place.value(), meta));
            is_bare = false;
            continue;
        }
        let behind = scan::space(text.as_bytes(), end);
        if text.as_bytes().get(behind) == Some(&b',') {
            let next = scan::space(text.as_bytes(), behind + 1);
            edits.push((start..next, String::new()));
            continue;
        }
        // The last member: the comma before it goes, or the one before members that go as well.
        let goes = |(range, text): &mut MemberEdit| range.end == start && text.is_empty();
        let start = edits.pop_if(goes).map_or(start, |(range, _)| range.start);
        let before = text.get(..start).unwrap_or_default().trim_ascii_end();
        let start = before.strip_suffix(',').map_or(start, str::len);
        edits.push((start..end, String::new()));
    }
    (edits, is_bare)
}

/// A part of a text, and the text in its place.
type MemberEdit = (Range<usize>, String);

/// A text with these parts replaced, given in order.
fn edited(text: &str, edits: &[MemberEdit]) -> String {
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for (range, new) in edits {
        out.push_str(text.get(at..range.start).unwrap_or_default());
        out.push_str(new);
        at = range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

/// The `_meta` of a result without the name and version of its server; `None` if nothing is left.
fn meta_without_server(meta: &str) -> Option<String> {
    let others = without(meta, &[SERVER_INFO]);
    (others != "{}" || member(meta, SERVER_INFO).is_none()).then_some(others)
}

/// An object without the members of these names.
pub(crate) fn without(object: &str, names: &[&str]) -> String {
    let mut out = String::from("{");
    for member in members(object) {
        if known(member.0, names).is_none() {
            push(&mut out, member);
        }
    }
    out.push('}');
    out
}

/// A member of an object that is a string.
pub(crate) fn text_member(object: &str, name: &'static str) -> Option<Box<str>> {
    let found = Raw::checked(object).members([name])?;
    Some(found.members[0]?.string()?.as_ref().into())
}

/// The text of a JSON string; `None` for another value.
pub(crate) fn text_of(value: &str) -> Option<Box<str>> {
    Raw::checked(value).string().map(|text| text.as_ref().into())
}

/// A member of an object, as JSON text.
pub(crate) fn member<'a>(object: &'a str, name: &'static str) -> Option<&'a str> {
    Raw::checked(object).members([name])?.members[0].map(Raw::get)
}

/// The elements of an array, as JSON text.
pub(crate) fn elements(array: &str) -> Vec<&str> {
    let mut all = Vec::new();
    scan::array_at(array.as_bytes(), 0, scan::DEPTH_MAX, |at, depth| {
        let end = scan::value(array.as_bytes(), at, depth)?;
        all.push(array.get(at..end)?);
        Some(end)
    });
    all
}

/// The error object of a peer.
pub(crate) fn error_of(text: &str) -> ErrorObject {
    let code = member(text, "code").and_then(|code| code.parse().ok());
    let message: Box<str> = text_member(text, "message").unwrap_or_default();
    let error = ErrorObject::new(code.unwrap_or(code::INTERNAL_ERROR), String::from(message));
    match member(text, "data") {
        Some(data) => error.with_data(String::from(data)),
        None => error,
    }
}

/// Result of a tool that did not run.
pub(crate) fn failed_result(why: &str) -> Json {
    Json::written(alloc::format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{}}}],\"isError\":true}}",
        quoted(why)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UPS-01, UPS-10: only the members of the hop go.
    #[test]
    fn result_of_a_stateless_server_keeps_every_other_byte() {
        let info = r#""io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}"#;
        let with_info = |text: &str| text.replace("INFO", info);
        for (result, expected, is_bare) in [
            (r#"{"content":[ ],"x":1.50}"#, r#"{"content":[ ],"x":1.50}"#, true),
            ("{}", "{}", true),
            (
                r#"{"_meta":{INFO},"resultType":"complete","a":{"resultType":1}}"#,
                r#"{"a":{"resultType":1}}"#,
                true,
            ),
            (r#"{"a":1,"_meta":{"k":[1, 2],INFO}}"#, r#"{"a":1,"_meta":{"k":[1, 2]}}"#, false),
            (r#"{"resultType":"complete","_meta":{}}"#, r#"{"_meta":{}}"#, false),
            (r#"{ "resultType" : "complete" }"#, "{  }", true),
            (r#"{"a":1, "resultType":"complete" , "_meta":{INFO} }"#, r#"{"a":1 }"#, true),
            (
                r#"{"resultType":"x","_meta":{INFO,"k":2},"a": 1}"#,
                r#"{"_meta":{"k":2},"a": 1}"#,
                false,
            ),
            (r#"{"_meta":{"k":2},"r\u0065sultType":"x"}"#, r#"{"_meta":{"k":2}}"#, false),
            (r#"{"resultType":"x","a":1,"resultType":"y"}"#, r#"{"a":1}"#, false),
        ] {
            let result = with_info(result);
            let json = without_hop_members(ResultText::of(&result));
            assert_eq!((json.get(), json.is_bare()), (expected, is_bare), "{result}");
        }
    }

    /// UPS-03, UPS-10: only the name, the task and the keys of the hop change.
    #[test]
    fn params_keep_every_other_byte() {
        for (params, name, expected) in [
            ("{}", None, "{}"),
            (
                r#"{ "name" : "p_a", "arguments":{"x": 1.50, "name":"n"} ,"z":null}"#,
                Some("a"),
                r#"{"name":"a","arguments":{"x": 1.50, "name":"n"},"z":null}"#,
            ),
            (
                r#"{"n\u0061me":"p_a","task":{},"_meta":{"progressToken":7}}"#,
                Some("a"),
                r#"{"name":"a"}"#,
            ),
            (
                r#"{"uri":"x","_meta":{"progressToken":"t","a/b":[ 1 ],"io.modelcontextprotocol/clientInfo":{}}}"#,
                None,
                r#"{"uri":"x","_meta":{"a/b":[ 1 ]}}"#,
            ),
        ] {
            assert_eq!(params_for_other_hop(params, name, true), expected, "{params}");
        }
    }

    #[test]
    fn member_is_set_in_its_place() {
        assert_eq!(with_member(r#"{"a":1,"b": 2}"#, "a", "3"), r#"{"a":3,"b":2}"#);
        assert_eq!(with_member("{}", "a", "3"), r#"{"a":3}"#);
        assert_eq!(without(r#"{"a":1,"\u0062":2}"#, &["b"]), r#"{"a":1}"#);
        assert_eq!(elements("[1, {} ,\"]\"]"), ["1", "{}", "\"]\""]);
    }
}
