//! A daemon inside another program, with one tool that is a Rust function and looks at its token.
//!
//! ```sh
//! cargo run --example embed
//! ```

use std::time::Duration;

use ceased::client::{Client, Notification, Options};
use ceased::{Daemon, HandlerTool, Job, ToolError, ToolResult};
use serde_json::json;

/// Counts to ten. Between two numbers the handler sleeps on its token, and a cancel wakes it.
fn count(job: &Job) -> Result<ToolResult, ToolError> {
    for number in 1..=10 {
        job.progress(f64::from(number), Some(10.0), Some("counting"));
        if let Err(cancelled) = job.token().sleep(Duration::from_millis(100)) {
            println!("tool: {cancelled} at {number}");
            return Err(cancelled.into());
        }
    }
    Ok(ToolResult::text("ten"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Required only if a tool is a command; has no cost otherwise.
    ceased::process::guard::init();

    let tool = HandlerTool::new("count", count).description("Counts to ten").build()?;
    let daemon = Daemon::new().tool(tool).start()?;

    let mut client = Client::on(daemon.connect()?, Options::default())?;
    let call = client.start_tool("count", &json!({}))?;
    let mut seen = 0.0;
    while seen < 3.0 {
        client.idle(Duration::from_millis(50), &mut |notification| {
            if let Notification::Progress(progress) = notification {
                seen = progress.done;
                println!("peer: at {seen}");
            }
        })?;
    }
    client.cancel(call, Some("three is enough"))?;
    client.flush(Duration::from_secs(1))?;

    drop(client);
    daemon.shut_down()?;
    println!("daemon: stopped, no process left");
    Ok(())
}
