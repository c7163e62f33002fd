//! Arguments of a tool that headers of HTTP repeat, as its schema says by `x-mcp-header`
//! (2026-07-28).

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Map, Value};

/// Member of a property's schema that names its header.
const MEMBER: &str = "x-mcp-header";
/// Types of an argument that a header can repeat. `number` is none by the specification; its
/// conformance suite and SDKs take it.
const TYPES: [&str; 4] = ["string", "integer", "boolean", "number"];
/// Members of a schema that hold one schema, or several: no argument is found through them.
const BRANCHES: [&str; 15] = [
    "items",
    "prefixItems",
    "contains",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "allOf",
    "anyOf",
    "oneOf",
    "additionalItems",
];
/// Members of a schema that hold schemas by names.
const NAMED_BRANCHES: [&str; 4] = ["$defs", "definitions", "patternProperties", "dependentSchemas"];

/// Headers of one tool at most: each is sent with every call.
const MIRRORS_MAX: usize = 64;
/// Bytes of the name of a header and of the names on the way to its argument at most.
const MIRROR_BYTES_MAX: usize = 4096;

/// An argument that a header repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The header is `Mcp-Param-` and this.
    pub header: Box<str>,
    /// Names of the argument and of the objects that it is in, from the outside.
    pub path: Vec<Box<str>>,
}

/// The arguments that headers repeat, by an element of `tools/list`.
///
/// # Errors
/// Why a client must not use the tool.
pub(crate) fn mirrors(element: &str) -> Result<Vec<Mirror>, String> {
    if !element.contains(MEMBER) {
        return Ok(Vec::new());
    }
    let tool: Value = serde_json::from_str(element).map_err(|_| "it cannot be read".to_owned())?;
    let mut found = FoundMirrors::default();
    if let Some(Value::Object(schema)) = tool.get("inputSchema") {
        found.walk(schema, true)?;
    }
    Ok(found.mirrors)
}

#[derive(Default)]
struct FoundMirrors {
    path: Vec<Box<str>>,
    mirrors: Vec<Mirror>,
}

impl FoundMirrors {
    /// Looks through a schema; `is_reached` if each step to it is a property.
    fn walk(&mut self, schema: &Map<String, Value>, is_reached: bool) -> Result<(), String> {
        if let Some(header) = schema.get(MEMBER) {
            self.take(schema, header, is_reached)?;
        }
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                let Value::Object(property) = property else { continue };
                self.path.push(name.as_str().into());
                self.walk(property, is_reached)?;
                self.path.pop();
            }
        }
        let branches = BRANCHES.iter().filter_map(|name| schema.get(*name));
        let by_name = NAMED_BRANCHES.iter().filter_map(|name| schema.get(*name)?.as_object());
        let all = branches.flat_map(|branch| match branch {
            Value::Array(several) => several.as_slice(),
            one @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)) => core::slice::from_ref(one),
        });
        for branch in all.chain(by_name.flat_map(Map::values)) {
            if let Value::Object(branch) = branch {
                self.walk(branch, false)?;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        schema: &Map<String, Value>,
        header: &Value,
        is_reached: bool,
    ) -> Result<(), String> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let name = header.as_str().filter(|it| !it.is_empty() && it.bytes().all(is_word));
        let Some(name) = name else { return Err(format!("{header} is no name of a header")) };
        if !is_reached || self.path.is_empty() {
            return Err(format!("{name:?} is no property of its arguments"));
        }
        let kind = schema.get("type").and_then(Value::as_str);
        if !kind.is_some_and(|kind| TYPES.contains(&kind)) {
            return Err(format!("{name:?} is for other than a string, an integer or a boolean"));
        }
        if self.mirrors.iter().any(|known| known.header.eq_ignore_ascii_case(name)) {
            return Err(format!("{name:?} is for two arguments"));
        }
        let bytes = self.path.iter().map(|name| name.len()).sum::<usize>() + name.len();
        if self.mirrors.len() >= MIRRORS_MAX || bytes > MIRROR_BYTES_MAX {
            return Err(format!(
                "it has more than {MIRRORS_MAX} headers, or one with more than {MIRROR_BYTES_MAX} bytes"
            ));
        }
        self.mirrors.push(Mirror { header: name.into(), path: self.path.clone() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(schema: &str) -> Result<Vec<(String, String)>, String> {
        let found = mirrors(&format!("{{\"name\":\"t\",\"inputSchema\":{schema}}}"))?;
        Ok(found.iter().map(|it| (it.header.as_ref().into(), it.path.join("."))).collect())
    }

    #[test]
    fn properties_name_their_headers() {
        let schema = r#"{"properties":{
            "region":{"type":"string","x-mcp-header":"Region"},
            "x-mcp-header":{"type":"string","default":{"x-mcp-header":"No"}},
            "in":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}"#;
        let mut found = of(schema).unwrap();
        found.sort();
        let expected = [("N", "in.n"), ("Region", "region")];
        assert_eq!(found, expected.map(|(header, path)| (header.into(), path.into())));
        assert_eq!(of("{}"), Ok(Vec::new()));
    }

    #[test]
    fn headers_that_cannot_be_are_faults_of_the_tool() {
        for (property, why) in [
            (r#"{"type":"string","x-mcp-header":""}"#, "no name"),
            (r#"{"type":"string","x-mcp-header":"a b"}"#, "no name"),
            (r#"{"type":"string","x-mcp-header":"a\r\nb"}"#, "no name"),
            (r#"{"type":"string","x-mcp-header":1}"#, "no name"),
            (r#"{"type":"object","x-mcp-header":"A"}"#, "other than a string"),
            (r#"{"x-mcp-header":"A"}"#, "other than a string"),
            (r#"{"type":"array","items":{"type":"string","x-mcp-header":"A"}}"#, "no property"),
            (r#"{"anyOf":[{"type":"string","x-mcp-header":"A"}]}"#, "no property"),
            (
                r#"{"$defs":{"a":{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}}}"#,
                "no property",
            ),
        ] {
            let told = of(&format!("{{\"properties\":{{\"p\":{property}}}}}")).unwrap_err();
            assert!(told.contains(why), "{property}: {told}");
        }
        let two = r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},
            "b":{"type":"string","x-mcp-header":"a"}}}"#;
        assert!(of(two).unwrap_err().contains("two arguments"));
        assert!(of(r#"{"type":"string","x-mcp-header":"A"}"#).unwrap_err().contains("no property"));
        let text = |at: usize| format!(r#""a{at}":{{"type":"string","x-mcp-header":"A{at}"}}"#);
        let many = |count: usize| (0..count).map(text).collect::<Vec<_>>().join(",");
        let schema = |inner: &str| format!("{{\"properties\":{{{inner}}}}}");
        assert_eq!(of(&schema(&many(MIRRORS_MAX))).unwrap().len(), MIRRORS_MAX);
        assert!(of(&schema(&many(MIRRORS_MAX + 1))).unwrap_err().contains("64 headers"));
        let long = format!("\"{}\":{}", "p".repeat(MIRROR_BYTES_MAX), schema(&many(1)));
        assert!(of(&schema(&long)).unwrap_err().contains("4096 bytes"));
    }
}
