//! Logging: structured records on standard error, written by a thread of their own, so that a
//! standard error nobody reads never holds the loop up.

use std::io::IsTerminal as _;

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

use crate::config::Level;

/// Records that may wait to be written; more are dropped and counted by the writer.
const WAITING_MAX: usize = 8192;

/// Writes what is left when dropped.
#[must_use]
pub struct Logging {
    _writer: WorkerGuard,
}

/// Starts logging what is `level` or worse: text for a terminal, one JSON object a line for
/// anything else. Does nothing when the embedding program has a subscriber already.
pub fn start(level: Level) -> Logging {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(WAITING_MAX)
        .thread_name("ceased-log")
        .finish(std::io::stderr());
    let builder = tracing_subscriber::fmt()
        .with_max_level(filter(level))
        .with_writer(writer)
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false);
    // An error means that somebody subscribed before, and then it is theirs.
    let _ = if std::io::stderr().is_terminal() {
        tracing::subscriber::set_global_default(builder.finish())
    } else {
        tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish())
    };
    Logging { _writer: guard }
}

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Off => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}
