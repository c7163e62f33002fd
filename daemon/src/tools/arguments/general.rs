//! Check of any JSON Schema.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::schema_error::SchemaError;
use super::violation::Violation;

/// A compiled schema.
#[derive(Debug, Clone)]
pub(super) struct General(Validator);

impl General {
    /// Compiles a schema.
    pub(super) fn new(schema: &Value) -> Result<Self, SchemaError> {
        let validator = jsonschema::options()
            .offline()
            // The regex engine runs in linear time for every pattern and text.
            .with_pattern_options(PatternOptions::regex())
            .build(schema)
            .map_err(|why| violation(&why).under("schema"))?;
        Ok(Self(validator))
    }

    /// The first violations of a value, at most this many.
    pub(super) fn violations(&self, value: &Value, max: usize) -> Vec<Violation> {
        if self.0.is_valid(value) {
            return Vec::new();
        }
        self.0.iter_errors(value).take(max).map(|error| violation(&error)).collect()
    }
}

fn violation(error: &jsonschema::ValidationError<'_>) -> Violation {
    Violation::new(error.instance_path(), error)
}
