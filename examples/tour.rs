//! A tool starts, reports progress and is cancelled. Every process of it ends, including one that
//! detached itself. Takes ten seconds.
//!
//! ```sh
//! cargo run --example tour
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use ceased::Daemon;
use ceased::client::{Client, Notification, Options};
use ceased::config::Config;
use serde_json::{Value, json};

/// A tool that is hard to stop: the tool and its child ignore SIGTERM, and the child moves into a
/// new session with an empty environment, like a badly written daemon.
const TOOL: &str = r#"
[[tool]]
name = "stubborn"
description = "Counts, and leaves a detached process behind"
kill_grace = "1s"
command = ["sh", "-c", '''
  trap "" TERM
  setsid sh -c 'trap "" TERM; exec env -i sleep "$1"' runaway "$1" &
  n=0
  while :; do n=$((n + 1)); echo "$n/100 working" >&3; sleep 0.3; done
''', "stubborn", "{marker}"]
[tool.input.marker]
type = "string"
"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    ceased::process::guard::init();
    let marker = format!("8640{}", std::process::id());
    let config = Config::parse(TOOL, Path::new("tour.toml"))?;
    let daemon = Daemon::from_config(&config).without_listeners().start()?;
    let mut client = Client::on(daemon.connect()?, Options::default())?;

    println!("1. call the tool \"stubborn\"");
    let call = client.start_tool("stubborn", &json!({ "marker": marker }))?;
    let mut steps = 0;
    while steps < 3 {
        client.idle(Duration::from_millis(50), &mut |notification| {
            if let Notification::Progress(progress) = notification {
                steps += 1;
                let total = progress.total.unwrap_or_default();
                println!("   progress: {} of {total}", progress.done);
            }
        })?;
    }
    println!("2. it runs as");
    for process in processes(&marker) {
        println!("   {process}");
    }

    println!("3. cancel it: notifications/cancelled");
    let cancelled = Instant::now();
    client.cancel(call, Some("seen enough"))?;
    println!("   the daemon says: {}", jobs(&mut client)?);

    while !processes(&marker).is_empty() {
        if cancelled.elapsed() > Duration::from_secs(30) {
            return Err("the processes are still there".into());
        }
        client.idle(Duration::from_millis(10), &mut |_| {})?;
    }
    let took = cancelled.elapsed().as_millis();
    println!("4. {took} ms later no process is left (SIGTERM, 1 s of grace, SIGKILL)");
    while !jobs(&mut client)?.is_empty() {
        client.idle(Duration::from_millis(10), &mut |_| {})?;
    }
    println!("   and the daemon has no job left: cancelled means ceased");
    drop(client);
    daemon.shut_down()?;
    Ok(())
}

/// The daemon's list of jobs.
fn jobs(client: &mut Client) -> Result<String, Box<dyn std::error::Error>> {
    let status = client.call("ceased/status", json!({}))?;
    let jobs = status["jobs"].as_array().into_iter().flatten();
    let lines: Vec<String> = jobs
        .map(|job| {
            let word = |name: &str| job.get(name).and_then(Value::as_str).unwrap_or("-").to_owned();
            format!("job {} is {} ({})", job["job"], word("state"), word("step"))
        })
        .collect();
    Ok(lines.join(", "))
}

/// Every process of this machine with the marker among its arguments, whatever its current parent.
fn processes(marker: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let mut words = command.split(|byte| *byte == 0);
            let program = String::from_utf8_lossy(words.next()?).into_owned();
            words.any(|word| word == marker.as_bytes()).then(|| format!("{pid:>7}  {program}"))
        })
        .collect()
}
