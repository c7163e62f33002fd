//! Errors of schemas.

use std::fmt;

/// Why a schema cannot describe the arguments of a tool, or its output.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is invalid, or MCP does not allow it; the reason.
    Invalid(String),
    /// It has other rules than types of properties, bounds of integers and required properties, and
    /// the package is built without its feature `schema`, which checks all others.
    Unsupported,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(why) => f.write_str(why),
            Self::Unsupported => f.write_str(
                "schema: this program cannot check it: it was built without the feature `schema` of \
                 ceased, and has only strings, numbers, booleans, integers with `minimum` and \
                 `maximum`, and `required`; enable the feature, or use a simpler schema",
            ),
        }
    }
}

impl std::error::Error for SchemaError {}

impl From<String> for SchemaError {
    fn from(why: String) -> Self {
        Self::Invalid(why)
    }
}

impl From<&str> for SchemaError {
    fn from(why: &str) -> Self {
        Self::Invalid(why.to_owned())
    }
}
