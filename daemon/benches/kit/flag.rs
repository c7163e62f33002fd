//! Times at which cancel flags are set, from the daemon's log of cancelled calls.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Receives the times of cancelled calls in this process from now on.
pub(crate) fn watch() -> Result<Receiver<Instant>, Box<dyn Error>> {
    let (sender, receiver) = channel();
    tracing::subscriber::set_global_default(Watch { sender: Mutex::new(sender) })?;
    Ok(receiver)
}

struct Watch {
    sender: Mutex<Sender<Instant>>,
}

impl Subscriber for Watch {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::DEBUG && metadata.target() == "ceased::event_loop::actions"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let now = Instant::now();
        let mut said = IsCancelled(false);
        event.record(&mut said);
        if said.0
            && let Ok(sender) = self.sender.lock()
        {
            let _ = sender.send(now);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Whether an event reports a cancelled call.
struct IsCancelled(bool);

impl Visit for IsCancelled {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 |= field.name() == "message" && format!("{value:?}") == "call cancelled";
    }
}
