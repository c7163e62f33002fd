//! Documents of hosts: values with the byte ranges that write them, alike for JSON, TOML and YAML.

use std::ops::Range;
use std::path::Path;

/// Nesting limit of a document. No host's file comes near it.
pub(super) const DEPTH_MAX: usize = 256;

/// Format of a host's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON, with comments and trailing commas.
    Json,
    /// TOML, of Codex.
    Toml,
    /// YAML, of Goose and Continue.
    Yaml,
}

impl Format {
    /// The format that the name of a file tells.
    pub(crate) fn of(path: &Path) -> Self {
        match path.extension().and_then(|it| it.to_str()) {
            Some("toml") => Self::Toml,
            Some("yaml" | "yml") => Self::Yaml,
            Some(_) | None => Self::Json,
        }
    }

    /// A text as a value of the format.
    pub(super) fn quoted(self, text: &str) -> String {
        match self {
            // A string of JSON is one of YAML.
            Self::Json | Self::Yaml => serde_json::Value::from(text).to_string(),
            Self::Toml => toml::Value::from(text).to_string(),
        }
    }

    /// The name of a member as a key of the format.
    pub(super) fn key(self, name: &str) -> String {
        match self {
            Self::Json => format!("\"{name}\""),
            Self::Toml | Self::Yaml => name.to_owned(),
        }
    }

    /// The key of arguments, with the separator in front of its value.
    pub(super) const fn args_key(self) -> &'static str {
        match self {
            Self::Json => "\"args\": ",
            Self::Toml => "args = ",
            Self::Yaml => "args: ",
        }
    }
}

/// A value and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// A text that can be moved with its bytes.
    Text(String),
    /// A boolean.
    Flag(bool),
    /// Another scalar, as written.
    Plain(String),
    /// Nothing.
    Null,
    /// A value of YAML whose bytes mean something else in another place: an alias, and a value with
    /// an anchor, a tag or several lines.
    Bound(String),
    List(Vec<Node>),
    Map(Vec<Member>),
}

/// A member of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// The key.
    pub(super) key: Range<usize>,
    pub(super) node: Node,
}

impl Node {
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Flag(_)
            | Value::Plain(_)
            | Value::Null
            | Value::Bound(_)
            | Value::List(_)
            | Value::Map(_) => None,
        }
    }

    /// The members of a map; none of another value.
    pub(super) fn members(&self) -> &[Member] {
        match &self.value {
            Value::Map(members) => members,
            Value::Text(_)
            | Value::Flag(_)
            | Value::Plain(_)
            | Value::Null
            | Value::Bound(_)
            | Value::List(_) => &[],
        }
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.value, Value::Map(_))
    }

    /// The items of a list, if it is one.
    pub(super) fn items(&self) -> Option<&[Self]> {
        match &self.value {
            Value::List(items) => Some(items),
            Value::Text(_)
            | Value::Flag(_)
            | Value::Plain(_)
            | Value::Null
            | Value::Bound(_)
            | Value::Map(_) => None,
        }
    }

    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        self.members().iter().find(|member| member.name == name)
    }

    /// A scalar as the text that an environment variable gets.
    pub(super) fn scalar(&self) -> Option<String> {
        match &self.value {
            Value::Text(text) | Value::Plain(text) | Value::Bound(text) => Some(text.clone()),
            Value::Flag(flag) => Some(flag.to_string()),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }
}
