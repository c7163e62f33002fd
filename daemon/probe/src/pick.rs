//! The choice of a tool that takes long, by the schemas of the tools.

use serde_json::{Map, Value, json};

use super::options::ToolCall;

/// Parts of the name of a tool that waits and changes nothing.
const NAMES: [&str; 8] = ["sleep", "wait", "delay", "slow", "long", "idle", "pause", "countdown"];

/// Chosen arguments of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picked {
    /// A call that takes a minute.
    pub(crate) long: ToolCall,
    /// Arguments with which it takes a second.
    pub(crate) brief: Value,
}

/// The first tool, in the order of the list, that waits for a time given in its arguments and needs
/// no other argument.
pub(crate) fn pick(tools: &[Value]) -> Option<Picked> {
    tools.iter().find_map(|tool| {
        let name = tool["name"].as_str()?;
        let lower = name.to_ascii_lowercase();
        let is_harmful = tool["annotations"]["destructiveHint"] == json!(true);
        if is_harmful || !NAMES.iter().any(|part| lower.contains(part)) {
            return None;
        }
        let long = arguments(&tool["inputSchema"], 60)?;
        let brief = arguments(&tool["inputSchema"], 1)?;
        Some(Picked { long: ToolCall { name: name.to_owned(), arguments: long }, brief })
    })
}

/// Arguments for a duration in seconds; `None` if the schema has no duration, or requires something
/// else.
fn arguments(schema: &Value, seconds: u64) -> Option<Value> {
    let properties = schema["properties"].as_object()?;
    let mut given = Map::new();
    for (name, property) in properties {
        let is_number = ["number", "integer"].iter().any(|kind| property["type"] == *kind);
        if let Some(value) = is_number.then(|| amount(name, seconds)).flatten() {
            let most = property["maximum"].as_u64().unwrap_or(u64::MAX);
            given.insert(name.clone(), json!(value.min(most)));
        }
    }
    let has_duration = given.keys().any(|name| unit(name).is_some());
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_given = |name: &Value| name.as_str().is_some_and(|name| given.contains_key(name));
    (has_duration && required.iter().all(is_given)).then_some(Value::Object(given))
}

/// Milliseconds, or seconds, that a property counts.
fn unit(name: &str) -> Option<u64> {
    let name = name.to_ascii_lowercase();
    let is_millis = name == "ms" || name.ends_with("_ms") || name.contains("milli");
    let is_seconds = ["second", "duration", "delay", "time", "secs"];
    match is_millis {
        true => Some(1000),
        false => (name == "s" || is_seconds.iter().any(|part| name.contains(part))).then_some(1),
    }
}

fn amount(name: &str, seconds: u64) -> Option<u64> {
    let is_count = ["step", "count", "iterations"];
    match unit(name) {
        Some(factor) => Some(seconds * factor),
        // Five steps a second.
        None => is_count
            .iter()
            .any(|part| name.to_ascii_lowercase().contains(part))
            .then_some(seconds * 5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, schema: &Value) -> Value {
        json!({"name": name, "inputSchema": schema})
    }

    #[test]
    fn tool_with_a_duration_is_chosen() {
        let schema = json!({"type": "object", "properties": {
            "duration": {"type": "number"}, "steps": {"type": "number"}}});
        let tools = [tool("echo", &json!({})), tool("longRunningOperation", &schema)];
        let picked = pick(&tools).unwrap();
        assert_eq!(picked.long.arguments, json!({"duration": 60, "steps": 300}));
        assert_eq!(picked.brief, json!({"duration": 1, "steps": 5}));
        let schema = json!({"properties": {"ms": {"type": "integer", "maximum": 30_000}}});
        let picked = pick(&[tool("sleep", &schema)]).unwrap();
        assert_eq!(picked.long.arguments, json!({"ms": 30_000}));
    }

    #[test]
    fn tool_that_may_do_harm_or_needs_more_is_left_alone() {
        let duration = json!({"properties": {"seconds": {"type": "integer"}}});
        assert!(pick(&[tool("delete_all", &duration)]).is_none());
        let mut harmful = tool("wait", &duration);
        harmful["annotations"] = json!({"destructiveHint": true});
        assert!(pick(&[harmful]).is_none());
        let mut more = duration;
        more["required"] = json!(["path"]);
        assert!(pick(&[tool("wait", &more)]).is_none());
        assert!(pick(&[tool("wait", &json!({}))]).is_none());
    }
}
