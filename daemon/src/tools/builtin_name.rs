//! The names, descriptions and schemas of the builtin tools.

/// A tool this library brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    /// Answers `text` with `text`.
    Echo,
    /// Sleeps for `ms` milliseconds or until it is cancelled, whichever is first.
    Sleep,
}

impl Builtin {
    /// Every one of them, by its name in a configuration.
    pub(crate) const ALL: [(&'static str, Self); 2] =
        [("echo", Self::Echo), ("sleep", Self::Sleep)];

    /// Its name in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Sleep => "sleep",
        }
    }

    /// Its description for models.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Echo => "Gives back the text it gets.",
            Self::Sleep => "Sleeps for a number of milliseconds; ends at once when cancelled.",
        }
    }

    /// The JSON Schema of its arguments.
    #[must_use]
    pub const fn input_schema(self) -> &'static str {
        match self {
            Self::Echo => {
                r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}"#
            }
            Self::Sleep => {
                r#"{"type":"object","properties":{"ms":{"type":"integer","minimum":0,"maximum":86400000}},"required":["ms"],"additionalProperties":false}"#
            }
        }
    }
}
