//! The engine alone, on blocking standard input and output: an MCP server with one tool, without a
//! daemon, a thread or a poll.
//!
//! ```sh
//! cargo run --example hello <<'END'
//! {"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}
//! {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet","arguments":{"name":"world"}}}
//! END
//! ```

use std::io::{self, BufRead as _, Write as _};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ceased_core::action::Action;
use ceased_core::engine::Engine;
use ceased_core::event::{Event, Outcome};
use ceased_core::identity::{Identity, Rights};
use ceased_core::ids::{ConnId, IdSource};
use ceased_core::protocol::role::Role;
use ceased_core::rpc::error::ErrorObject;
use ceased_core::rpc::frame::{Frame, Inbox};
use ceased_core::settings::Settings;
use ceased_core::time::{Instant, Now, Wall};
use ceased_core::tool::{Catalog, StopPolicy, Tool};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

const PEER: ConnId = ConnId::new(1);

struct Random;

impl IdSource for Random {
    fn uuid(&mut self) -> uuid::Uuid {
        uuid::Uuid::new_v4()
    }
}

/// The engine with a clock, and the actions it has requested.
struct Host {
    engine: Engine,
    start: std::time::Instant,
    actions: Vec<Action>,
}

impl Host {
    fn now(&self) -> Now {
        let nanos = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = Wall::from_millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        Now { at: Instant::from_nanos(nanos), wall }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.engine.handle(self.now(), event, &mut self.actions);
    }

    fn take(&mut self, frame: &Frame<'_>) {
        self.handle(match *frame {
            Frame::Line(frame) => Event::Frame { conn: PEER, frame },
            Frame::TooLong(skeleton) => Event::TooLong { conn: PEER, skeleton },
            Frame::NotJsonRpc(bytes) => Event::NotJsonRpc { conn: PEER, bytes },
        });
    }

    /// Performs the requested actions in order, until the engine needs input.
    fn act(&mut self) -> io::Result<ControlFlow<()>> {
        loop {
            // Reading standard input blocks, so no timer fires meanwhile; hello needs none.
            while self.engine.deadline().is_some_and(|(at, _)| at <= self.now().at) {
                self.handle(Event::Tick);
            }
            // Jobs that have ended have freed their slots.
            self.handle(Event::Turn);
            if self.actions.is_empty() {
                return Ok(Continue(()));
            }
            for action in std::mem::take(&mut self.actions) {
                match action {
                    Action::Start { job, arguments, .. } => {
                        let outcome = greet(arguments.get());
                        self.handle(Event::Done { job, outcome });
                    }
                    Action::Flush { .. } => self.send()?,
                    Action::Close { .. } => return self.send().map(Break),
                    Action::CollectHostStatus { survey, .. } => {
                        let host = to_raw_value(&json!({}))?;
                        self.handle(Event::HostStatusCollected { survey, host: &host });
                    }
                    // Each job has ended before the next line is read.
                    Action::Stop { .. }
                    // This server sends no requests, is never told to stop, and keeps no tasks.
                    | Action::Tell { .. }
                    | Action::TellProgress { .. }
                    | Action::Notified { .. }
                    | Action::RefuseCancel { .. }
                    | Action::Store { .. }
                    | Action::Load { .. }
                    | Action::LookUp(_)
                    | Action::ReadOutput(_)
                    | Action::Exit
                    // There is no operator.
                    | Action::Operate { .. }
                    // No audit log.
                    | Action::Upstream(_)
                    | Action::Audit(_) => {}
                }
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let Some(queue) = self.engine.send_queue(PEER) else { return Ok(()) };
        queue.runs().try_for_each(|run| io::stdout().write_all(run))?;
        let sent = queue.len();
        queue.advance(sent);
        Ok(())
    }
}

/// The tool's result.
fn greet(arguments: &str) -> Outcome {
    let greeting = serde_json::from_str(arguments).and_then(|arguments: Value| {
        let text = format!("hello, {}", arguments["name"].as_str().unwrap_or("stranger"));
        to_raw_value(&json!({"content": [{"type": "text", "text": text}], "isError": false}))
    });
    match greeting {
        Ok(result) => Outcome::Result(result.into()),
        // A JSON number can exceed the range of every Rust type.
        Err(error) => Outcome::Error(ErrorObject::invalid_params(error.to_string())),
    }
}

fn main() -> io::Result<()> {
    let greet = Tool {
        description: Some("Greets a person by name".into()),
        input_schema: r#"{"type":"object","properties":{"name":{"type":"string"}}}"#.into(),
        ..Tool::new("greet", StopPolicy::Handler { abandon_after: Duration::from_secs(1) })
    };
    let catalog = Catalog::new([greet]).map_err(io::Error::other)?;
    let settings = Settings { catalog, ..Settings::default() };
    let mut inbox = Inbox::new(settings.limits.frames);
    let engine = Engine::new(Arc::new(settings), Box::new(Random));
    let mut host = Host { engine, start: std::time::Instant::now(), actions: Vec::new() };
    host.handle(Event::Opened {
        conn: PEER,
        identity: Identity::User(0),
        rights: Rights::Full,
        role: Role::Server,
    });
    let mut input = io::stdin().lock();
    loop {
        let piece = input.fill_buf()?;
        let count = piece.len();
        match count {
            0 => inbox.finish(&mut |frame| host.take(&frame)),
            _ => inbox.feed(piece, &mut |frame| host.take(&frame)),
        }
        input.consume(count);
        if host.act()?.is_break() || count == 0 {
            return Ok(());
        }
    }
}
