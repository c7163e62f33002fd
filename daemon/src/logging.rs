//! Logging: structured records on standard error, written by a thread of their own, so that a
//! standard error nobody reads never holds the loop up.

use std::io::IsTerminal as _;
use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{fmt, reload};

use crate::config::Level;

/// Records that may wait to be written; more are dropped and counted by the writer.
const WAITING_MAX: usize = 2048;

/// Writes what is left when dropped.
#[must_use]
pub struct Logging {
    _writer: WorkerGuard,
    set_level: SetLevel,
}

/// Changes what is logged from now on.
pub(crate) type SetLevel = Arc<dyn Fn(Level) + Send + Sync>;

impl Logging {
    /// What changes the level; nothing does where the embedding program has its own subscriber.
    pub(crate) fn level_setter(&self) -> SetLevel {
        Arc::clone(&self.set_level)
    }
}

/// Starts logging what is `level` or worse: text for a terminal, one JSON object a line for
/// anything else. Does nothing when the embedding program has a subscriber already.
pub fn start(level: Level) -> Logging {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(WAITING_MAX)
        .thread_name("ceased-log")
        .finish(std::io::stderr());
    let (level, handle) = reload::Layer::new(filter(level));
    let layer = fmt::layer()
        .with_writer(writer)
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(level);
    // An error means that somebody subscribed before, and then it is theirs.
    let _ = if std::io::stderr().is_terminal() {
        tracing::subscriber::set_global_default(registry.with(layer))
    } else {
        tracing::subscriber::set_global_default(registry.with(layer.json().flatten_event(true)))
    };
    let set_level: SetLevel = Arc::new(move |level| drop(handle.reload(filter(level))));
    Logging { _writer: guard, set_level }
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
