//! An MCP server on standard input and output with a Rust function and a command as tools.
//!
//! ```sh
//! cargo run --example stdio_server
//! ceased probe -- target/debug/examples/stdio_server
//! ```

use std::time::Duration;

use ceased::{Address, CommandTool, Daemon, HandlerTool, Job, ServerInfo, ToolError, ToolResult};
use serde_json::Value;

/// Waits for the seconds of its argument, and reports each; a cancel wakes it.
fn wait(job: &Job) -> Result<ToolResult, ToolError> {
    let arguments: Value = job.arguments()?;
    let seconds = arguments["seconds"].as_u64().and_then(|it| u32::try_from(it).ok());
    let seconds = seconds.unwrap_or_default();
    for second in 1..=seconds {
        job.token().sleep(Duration::from_secs(1))?;
        job.progress(f64::from(second), Some(f64::from(seconds)), None);
    }
    Ok(ToolResult::text(format!("{seconds} seconds")))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // First: this program may be started again as the guard of a command.
    ceased::process::guard::init();

    let wait = HandlerTool::new("wait", wait)
        .description("Waits")
        .input_schema(
            r#"{"type": "object", "properties": {"seconds": {"type": "integer", "minimum": 0, "maximum": 3600}}, "required": ["seconds"]}"#,
        )
        .build()?;
    let list = CommandTool::new(["ls", "-l", "--", "{path}"])
        .name("list")
        .description("Lists a directory")
        .input_schema(
            r#"{"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}"#,
        )
        .run_as(ceased::config::RunAs::Daemon)
        .read_only()
        .build()?;
    Daemon::new()
        .server(ServerInfo::new("example", "1.0.0"))
        .tool(wait)
        .tool(list)
        .listen(Address::Stdio)
        .build()?
        .run()?;
    Ok(())
}
