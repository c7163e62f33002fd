//! Defaults of a tool that is a command, in a configuration and in Rust.

use std::time::Duration;

/// Time limit of a call.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);
/// Time from SIGTERM to SIGKILL.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(2);
/// Bytes of output kept of each stream.
pub(crate) const MAX_OUTPUT: usize = 1 << 20;
/// Schema of a tool without inputs.
pub(crate) const NO_INPUT: &str = r#"{"type":"object","additionalProperties":false}"#;
