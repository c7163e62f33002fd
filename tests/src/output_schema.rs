//! The published schema of the JSON output of commands.

use std::collections::BTreeSet;
use std::fs;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::workspace;

/// The schema of the JSON output of commands.
#[derive(Debug)]
pub struct OutputSchema(Value);

impl OutputSchema {
    /// Reads it, and forbids members that it does not name: those would be undocumented.
    ///
    /// # Panics
    ///
    /// When there is no such file, or it is not JSON.
    #[must_use]
    pub fn read() -> Self {
        let path = workspace::root().join("daemon/schema/output.schema.json");
        let text =
            fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let mut schema: Value = serde_json::from_str(&text).expect("the schema is JSON");
        close(&mut schema);
        Self(schema)
    }

    /// The definitions of whole outputs, which are named like commands.
    ///
    /// # Panics
    ///
    /// When the schema has no list of them.
    #[must_use]
    pub fn commands(&self) -> BTreeSet<String> {
        let listed = self.0["anyOf"].as_array().expect("a list of outputs");
        let name = |entry: &Value| {
            let name = entry["$ref"].as_str()?.strip_prefix("#/$defs/")?;
            Some(name.to_owned())
        };
        listed.iter().filter_map(name).collect()
    }

    /// Validates a value against one definition.
    ///
    /// # Errors
    /// The first violation and its place.
    ///
    /// # Panics
    ///
    /// When there is no such definition.
    pub fn check(&self, definition: &str, value: &Value) -> Result<(), String> {
        assert!(self.0["$defs"].get(definition).is_some(), "the schema defines no {definition}");
        let mut schema = self.0.clone();
        if let Some(members) = schema.as_object_mut() {
            members.remove("anyOf");
            members.insert("$ref".to_owned(), json!(format!("#/$defs/{definition}")));
        }
        let validator: Validator = jsonschema::validator_for(&schema).expect("the schema is valid");
        validator.validate(value).map_err(|error| format!("{error} at {}", error.instance_path()))
    }
}

/// Forbids further members of every object that says nothing about them.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(close);
            if members.get("properties").is_some_and(Value::is_object)
                && members.get("type").is_some_and(|kind| kind == "object")
            {
                members.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(entries) => entries.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
