//! The built-in tools: `echo` and `sleep`.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;

pub use crate::tools::builtin_name::Builtin;
use crate::tools::handler::{Handler, Job, ToolError, ToolResult};

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
