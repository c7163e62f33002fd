//! The engine alone, on blocking standard input and output: an MCP server with one tool, without a
//! daemon, a thread or a poll.
//!
//! ```sh
//! cargo run --example hello <<'END'
//! {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}
//! {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet","arguments":{"who":"world"}}}
//! END
//! ```

use std::io::{self, BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::{Event, Identity, Outcome};
use ceased_core::id::{ConnId, Mint};
use ceased_core::role::Role;
use ceased_core::settings::Settings;
use ceased_core::time::{Instant, Now, Wall};
use ceased_core::tool::{Catalog, Ladder, TaskSupport, Tool};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

struct Random;

impl Mint for Random {
    fn uuid(&mut self) -> uuid::Uuid {
        uuid::Uuid::new_v4()
    }
}

fn main() -> io::Result<()> {
    let greet = Tool {
        name: "greet".into(),
        title: None,
        description: Some("Greets somebody".into()),
        input_schema: r#"{"type":"object","properties":{"who":{"type":"string"}}}"#.into(),
        output_schema: None,
        task_support: TaskSupport::Forbidden,
        timeout: None,
        ladder: Ladder::Handler { patience: Duration::from_secs(1) },
        check: None,
        inline: false,
        on_disconnect: ceased_core::tool::OnDisconnect::Cancel,
        allow: ceased_core::access::Allow::Everyone,
        payload: None,
    };
    let catalog = Catalog::new([greet]).map_err(io::Error::other)?;
    let settings = Settings { catalog, ..Settings::default() };
    let mut engine = Engine::new(Arc::new(settings), Box::new(Random));
    let start = std::time::Instant::now();
    let now = || Now {
        at: Instant::from_nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        wall: Wall::from_millis(0),
    };
    let (conn, mut actions) = (ConnId::new(1), Vec::new());
    let opened = Event::Opened { conn, identity: Identity::User(0), role: Role::Server };
    engine.handle(now(), opened, &mut actions);
    for line in io::stdin().lock().lines() {
        let frame = line?;
        engine.handle(now(), Event::Frame { conn, frame: frame.as_bytes() }, &mut actions);
        engine.handle(now(), Event::Turn, &mut actions);
        while let Some(action) = actions.pop() {
            if let Action::Start { job, arguments, .. } = action {
                let arguments: Value = serde_json::from_str(arguments.get())?;
                let text = format!("hello, {}", arguments["who"].as_str().unwrap_or("nobody"));
                let result = json!({"content": [{"type": "text", "text": text}], "isError": false});
                let outcome = Outcome::Result(to_raw_value(&result)?.into());
                engine.handle(now(), Event::Done { job, outcome }, &mut actions);
            }
        }
        if let Some(outbox) = engine.outbox(conn) {
            io::stdout().write_all(outbox.pending())?;
            let sent = outbox.len();
            outbox.advance(sent);
        }
    }
    Ok(())
}
