//! The built-in tools: `echo` and `sleep`.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;

use crate::tools::handler::{Handler, Job, ToolError, ToolResult};

/// A built-in tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Builtin {
    /// Returns its argument `text`.
    Echo,
    /// Sleeps for `ms` milliseconds or until it is cancelled.
    Sleep,
}

impl Builtin {
    /// All built-in tools by configuration name.
    pub(crate) const ALL: [(&'static str, Self); 2] =
        [("echo", Self::Echo), ("sleep", Self::Sleep)];

    /// Configuration name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Sleep => "sleep",
        }
    }

    /// Description for models.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Echo => "Returns the given text.",
            Self::Sleep => "Sleeps for a number of milliseconds; ends at once when cancelled.",
        }
    }

    /// JSON Schema of the arguments.
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

impl Handler for Builtin {
    fn run(&self, job: &Job) -> Result<ToolResult, ToolError> {
        match self {
            Self::Echo => {
                #[derive(Deserialize)]
                struct Arguments<'a> {
                    #[serde(borrow)]
                    text: Cow<'a, str>,
                }
                let arguments: Arguments<'_> = job.arguments()?;
                Ok(ToolResult::text(arguments.text))
            }
            Self::Sleep => {
                // The schema's integers include 5.0.
                #[derive(Deserialize)]
                struct Arguments {
                    ms: f64,
                }
                let Arguments { ms } = job.arguments()?;
                job.token().sleep(Duration::from_secs_f64(ms / 1000.0))?;
                Ok(ToolResult::text(format!("slept {ms} ms")))
            }
        }
    }
}
